//! The numbers by which connections name their secrets: the secrets themselves are in another process. A number never
//! changes its meaning while a gateway runs, so that a connection that is the same after a reload compares equal, and
//! one whose secret changed does not.

use super::checked::ConfiguredPeer;
use ikev2::connection::{LocalProof, RemoteProof};
use std::collections::HashMap;

/// Gives every peer whose secrets are those of the peer of its name in `previous` that one's number, and every other
/// one a number that no peer of both has.
pub(super) fn keep(peers: &mut [ConfiguredPeer], previous: &[ConfiguredPeer]) {
    let mut next = previous
        .iter()
        .map(ConfiguredPeer::number)
        .max()
        .unwrap_or(0);
    let by_name: HashMap<_, _> = previous
        .iter()
        .map(|old| (&old.connection.name, old))
        .collect();
    for peer in peers {
        let same = by_name.get(&peer.connection.name);
        let kept = same.filter(|old| old.credential == peer.credential && old.trust == peer.trust);
        let number = kept.map(|old| old.number()).unwrap_or_else(|| {
            next += 1;
            next
        });
        peer.renumber(number);
    }
}

impl ConfiguredPeer {
    /// The number of its pre-shared key, or of its private key and its roots.
    pub(crate) fn number(&self) -> u32 {
        match self.connection.local_proof {
            LocalProof::SharedSecret(number) | LocalProof::Certificate { key: number, .. } => {
                number
            }
        }
    }

    /// Gives its secrets this number.
    pub(super) fn renumber(&mut self, to: u32) {
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
