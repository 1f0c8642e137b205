//! What the processes of IKE are given: connections to the one, secrets to the other.

use crate::config::{ConfiguredPeer, Credential};
use crate::ike::message::{Configuration, SecretEntry, Trusted};
use zeroize::Zeroizing;

/// Pairs of child SAs that one life of the ike process may number: those of an earlier life stay different.
const CHILDREN_PER_START: u64 = 1 << 32;

/// Everything but secrets. `starts`: how often the processes were started, this time included.
pub(crate) fn configuration(
    peers: &[ConfiguredPeer],
    starts: u64,
    log_keys: bool,
) -> Configuration {
    let trusted = peers.iter().filter_map(|peer| {
        let files = peer.trust.as_ref()?;
        Some(Trusted {
            number: peer.number(),
            roots: files.roots.clone(),
            lists: files.lists.clone(),
            revocation: files.revocation,
        })
    });
    Configuration {
        connections: peers.iter().map(|peer| peer.connection.clone()).collect(),
        trusted: trusted.collect(),
        first_child: starts * CHILDREN_PER_START,
        log_keys,
    }
}

/// What the key process alone has.
pub(crate) fn secrets(peers: &[ConfiguredPeer]) -> Vec<SecretEntry> {
    let entry = |peer: &ConfiguredPeer| match &peer.credential {
        Credential::SharedSecret(secret) => {
            let octets = Zeroizing::new(secret.expose().to_vec());
            SecretEntry::SharedSecret(peer.number(), octets)
        }
        Credential::PrivateKey(pem) => SecretEntry::PrivateKey(peer.number(), pem.clone()),
    };
    peers.iter().map(entry).collect()
}
