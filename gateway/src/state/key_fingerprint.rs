//! The name of an association in the file: it reveals nothing about the key.

use ipsec::sa::SaConfig;
use multibuffer::{Cipher, Integrity, Iv, Key, SignJob, without_stack_copies};
use std::net::IpAddr;
use zeroize::Zeroizing;

/// Bytes of a name.
pub(super) const FINGERPRINT_LEN: usize = 32;

/// The name of an association: equal for equal keys, SPI, addresses and protocol, and for nothing else.
pub(super) type KeyFingerprint = [u8; FINGERPRINT_LEN];

/// HMAC-SHA-256 under the association's own keys, over its other identifying fields and the file's salt. The salt
/// differs from file to file, so that names in two files cannot be compared. The caller must allocate in memory for
/// keys.
pub(super) fn key_fingerprint(config: &SaConfig, salt: &[u8]) -> KeyFingerprint {
    let mut key = Zeroizing::new(Vec::with_capacity(256));
    let mut about = salt.to_vec();
    about.extend(config.id.spi.get().to_be_bytes());
    about.push(config.id.protocol.number());
    for address in [config.source, config.id.destination] {
        match address {
            IpAddr::V4(address) => about.extend(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => about.extend(address.octets()),
        }
    }
    // The lengths make different lists of parts different as bytes.
    let mut part = |algorithm: &str, secret: &[u8]| {
        for len in [algorithm.len(), secret.len()] {
            about.extend((len as u32).to_be_bytes());
        }
        about.extend(algorithm.as_bytes());
        key.extend_from_slice(secret);
    };
    if let Some((row, secret)) = config.suite.encryption() {
        part(row.name, secret.expose());
    }
    if let Some((row, secret)) = config.suite.integrity() {
        part(row.name, secret.expose());
    }
    if key.is_empty() {
        key.push(0);
    }
    without_stack_copies(|| keyed_hash(&key, &about))
}

/// HMAC-SHA-256. The key has 1 to 1024 bytes.
pub(crate) fn keyed_hash(key: &[u8], message: &[u8]) -> KeyFingerprint {
    let key = Key::new(
        Cipher::Null,
        &[],
        Integrity::HmacSha256,
        key,
        FINGERPRINT_LEN,
    )
    .expect("HMAC takes keys of these lengths");
    let mut name = [0; FINGERPRINT_LEN];
    multibuffer::sign(&mut [SignJob {
        key: &key,
        input: [message, &[], &[]],
        iv: Iv::default(),
        icv: &mut name,
    }]);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::command::Command;
    use ipsec::setkey::{Forwarding, NoNames, compile};

    fn named(text: &str, salt: &[u8]) -> KeyFingerprint {
        let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
        let Command::AddSa(config) = &lowered.commands[0] else {
            panic!("no association");
        };
        key_fingerprint(config, salt)
    }

    const SA: &str = "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;";

    #[test]
    fn a_name_depends_on_keys_spi_addresses_protocol_and_file_and_on_no_option() {
        let base = named(SA, b"salt");
        assert_eq!(
            base,
            named(&SA.replace("-m tunnel", "-m transport -r 64"), b"salt")
        );
        assert_ne!(base, named(SA, b"another"));
        for (old, new) in [
            ("0x1001", "0x1002"),
            ("192.0.2.1 ", "192.0.2.3 "),
            ("192.0.2.2", "192.0.2.3"),
            ("10111213;", "10111214;"),
            ("aes-gcm-16", "aes-gcm-12"),
        ] {
            let other = SA.replace(old, new);
            assert_ne!(other, SA);
            assert_ne!(base, named(&other, b"salt"), "{other}");
        }
    }

    #[test]
    fn every_suite_has_a_name() {
        for text in [
            "add 192.0.2.1 192.0.2.2 ah 0x1001 -A hmac-sha1 0x000102030405060708090a0b0c0d0e0f10111213;",
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -E null -A hmac-sha2-512 \
             0x000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f;",
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -E null;",
        ] {
            assert_ne!(named(text, b"salt"), [0; FINGERPRINT_LEN]);
        }
    }

    /// RFC 4231 4.3.
    #[test]
    fn the_hash_is_hmac_sha_256() {
        let hash = keyed_hash(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hash[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }
}
