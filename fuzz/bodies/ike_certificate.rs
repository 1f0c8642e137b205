//! Any bytes as a peer's certificates, and as files of roots and revocation lists.

use ikev2::certificate::{Certificate, Trust, UnixTime};
use std::time::Duration;

/// Noon of a day on which the certificates of the corpus are valid.
const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));

/// Reads `data` as certificates one after another, each behind its length in two bytes; the first of them as root too.
///
/// # Panics
///
/// If a chain without its root is accepted, or a certificate does not name an identity that it lists.
pub fn check(data: &[u8]) {
    let mut chain = Vec::new();
    let mut rest = data;
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (der, behind) = behind.split_at(len);
        chain.extend(Certificate::from_der(der));
        rest = behind;
    }
    let mut trust = Trust::default();
    assert!(trust.validate(&chain, NOW).is_err(), "there is no root");
    let _ = trust.add_revocation_lists(data);
    let _ = trust.add_roots(data);
    let root = chain.last().map(|root| trust.add_roots(root.der()));
    if root.is_none_or(|added| added.is_err()) {
        return;
    }
    if let Err(failure) = trust.validate(&chain, NOW) {
        assert!(!failure.to_string().contains(char::is_control));
        return;
    }
    for identity in chain.iter().take(1).flat_map(Certificate::identities) {
        assert!(trust.authenticate(&chain, identity, NOW).is_ok());
    }
}
