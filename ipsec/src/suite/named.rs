//! Suites that RFCs give a name: both algorithms and the length of their keys in one word.
//!
//! Such a suite has one key, cut as RFC 4301 4.5.2 cuts keying material: the first bytes encrypt, the rest
//! authenticates.

use crate::algorithm::{Encryption, Integrity};

/// The algorithms of one name.
#[derive(Debug)]
pub struct NamedSuite {
    /// The name setkey reads.
    pub name: &'static str,
    /// Which RFC names it.
    pub document: &'static str,
    encryption: &'static str,
    encryption_key_len: usize,
    integrity: Option<&'static str>,
}

/// Every named suite of ESP.
#[rustfmt::skip]
pub static NAMED_SUITES: [NamedSuite; 6] = [
    NamedSuite { name: "vpn-a", document: "RFC 4308 2.1", encryption: "3des-cbc", encryption_key_len: 24, integrity: Some("hmac-sha1") },
    NamedSuite { name: "vpn-b", document: "RFC 4308 2.2", encryption: "aes-cbc", encryption_key_len: 16, integrity: Some("aes-xcbc-mac") },
    NamedSuite { name: "suite-b-gcm-128", document: "RFC 6379 3.1", encryption: "aes-gcm-16", encryption_key_len: 20, integrity: None },
    NamedSuite { name: "suite-b-gcm-256", document: "RFC 6379 3.2", encryption: "aes-gcm-16", encryption_key_len: 36, integrity: None },
    NamedSuite { name: "suite-b-gmac-128", document: "RFC 6379 3.3", encryption: "aes-gmac", encryption_key_len: 20, integrity: None },
    NamedSuite { name: "suite-b-gmac-256", document: "RFC 6379 3.4", encryption: "aes-gmac", encryption_key_len: 36, integrity: None },
];

impl NamedSuite {
    /// The suite of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        NAMED_SUITES.iter().find(|suite| suite.name == name)
    }

    /// What encrypts, and how many of the key's first bytes are its own.
    pub fn encryption(&self) -> (Encryption, usize) {
        // INVARIANT: a test looks up every name of the table.
        let row = Encryption::named(self.encryption).expect("a row of the table");
        (row, self.encryption_key_len)
    }

    /// The integrity algorithm, which takes the rest of the key; none for an AEAD cipher.
    pub fn integrity(&self) -> Option<Integrity> {
        self.integrity.and_then(Integrity::named)
    }

    /// Bytes of the one key for both.
    pub fn key_len(&self) -> usize {
        self.encryption_key_len + self.integrity().map_or(0, |row| row.key_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_rows_of_the_table_whose_keys_fit() {
        for suite in &NAMED_SUITES {
            let (encryption, len) = suite.encryption();
            assert!(encryption.key_lens.contains(&len), "{}", suite.name);
            assert_eq!(suite.integrity().is_some(), suite.integrity.is_some());
            assert_eq!(suite.integrity().is_none(), encryption.icv_len > 0);
            assert!(Encryption::named(suite.name).is_none());
        }
    }
}
