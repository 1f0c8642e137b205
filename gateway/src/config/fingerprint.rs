//! Whether what is configured about a peer is the same in two processes, one after the other.

use super::checked::{ConfiguredPeer, Credential};
use crate::state::keyed_hash;
use zeroize::Zeroizing;

/// The hash is not that of anything else.
const PURPOSE: &[u8] = b"esplanade: a configured peer";

impl ConfiguredPeer {
    /// Equal for peers that differ in hooks alone, and otherwise for no others: names, networks, proposals, secrets,
    /// trusted roots, and whether the kernel's own IPsec serves them. None, which equals nothing, if it cannot be made.
    /// The caller must allocate in memory for keys.
    pub(crate) fn fingerprint(&self, by_kernel: bool) -> Option<[u8; 32]> {
        let mut peer = self.clone();
        // Numbers of secrets depend on the other peers.
        peer.renumber(0);
        let mut all = Zeroizing::new(Vec::new());
        let mut part = |octets: &[u8]| {
            all.extend((octets.len() as u64).to_be_bytes());
            all.extend_from_slice(octets);
        };
        part(&postcard::to_stdvec(&peer.connection).ok()?);
        part(format!("{:?}", peer.mode).as_bytes());
        match &peer.credential {
            Credential::SharedSecret(secret) => part(secret.expose()),
            Credential::PrivateKey(pem) => part(pem),
        }
        if let Some(trust) = &peer.trust {
            part(format!("{:?}", trust.revocation).as_bytes());
            for files in [&trust.roots, &trust.lists] {
                part(&(files.len() as u64).to_be_bytes());
                for file in files {
                    part(file);
                }
            }
        }
        if by_kernel {
            part(b"kernel");
        }
        Some(keyed_hash(PURPOSE, &all))
    }
}
