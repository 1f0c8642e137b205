//! The numbers by which connections name their secrets: the secrets themselves are in another process. A number never
//! changes its meaning while a gateway runs, so that a connection that is the same after a reload compares equal, and
//! one whose secret changed does not.

use super::checked::Peer;
use ikev2::connection::{LocalProof, RemoteProof};

/// Gives every peer whose secrets are those of the peer of its name in `previous` that one's number, and every other
/// one a number that no peer of both has.
pub(super) fn keep(peers: &mut [Peer], previous: &[Peer]) {
    let mut next = previous.iter().map(Peer::number).max().unwrap_or(0);
    for peer in peers {
        let same = previous
            .iter()
            .find(|old| old.connection.name == peer.connection.name);
        let kept = same.filter(|old| old.credential == peer.credential && old.trust == peer.trust);
        let number = kept.map(Peer::number).unwrap_or_else(|| {
            next += 1;
            next
        });
        peer.renumber(number);
    }
}

impl Peer {
    /// The number of its pre-shared key, or of its private key and its roots.
    pub(crate) fn number(&self) -> u32 {
        match self.connection.local_proof {
            LocalProof::SharedSecret(number) | LocalProof::Certificate { key: number, .. } => {
                number
            }
        }
    }

    fn renumber(&mut self, to: u32) {
        match &mut self.connection.local_proof {
            LocalProof::SharedSecret(number) | LocalProof::Certificate { key: number, .. } => {
                *number = to
            }
        }
        match &mut self.connection.remote_proof {
            RemoteProof::SharedSecret(number) | RemoteProof::Certificate { trust: number, .. } => {
                *number = to
            }
        }
    }
}
