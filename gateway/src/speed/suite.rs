//! The suites by name: every row of the algorithm table with every length of key, joined by `+`.

use crate::failure::Failure;
use ipsec::algorithm::{Encryption, Integrity};
use ipsec::setkey::nearest;
use multibuffer::Cipher;

/// A suite; its keys are generated.
#[derive(Clone)]
pub(super) struct NamedSuite {
    pub(super) name: String,
    pub(super) encryption: Option<Encryption>,
    /// Salt or nonce included.
    pub(super) key_len: usize,
    pub(super) integrity: Option<Integrity>,
}

impl NamedSuite {
    pub(super) fn cipher(&self) -> Cipher {
        self.encryption.map_or(Cipher::Null, |row| row.cipher)
    }

    pub(super) fn icv_len(&self) -> usize {
        match (self.integrity, self.encryption) {
            (Some(row), _) => row.icv_len,
            (None, Some(row)) => row.icv_len,
            (None, None) => 0,
        }
    }

    /// What a plaintext is padded to in ESP.
    pub(super) fn align(&self) -> usize {
        self.encryption.map_or(4, |row| row.block_len.max(4))
    }

    /// The cipher's key of the `n`th association.
    pub(super) fn cipher_key(&self, n: usize) -> Vec<u8> {
        key_bytes(self.key_len, n, 1)
    }

    /// The integrity algorithm's key of the `n`th association.
    pub(super) fn mac_key(&self, n: usize) -> Vec<u8> {
        key_bytes(self.integrity.map_or(0, |row| row.key_len), n, 2)
    }

    /// The library that computes it where this project has no kernel for it.
    pub(super) fn library(&self) -> &'static str {
        self.cipher().library()
    }

    /// Whether it is measured by default, as the usual choice for its algorithms.
    fn is_typical(&self) -> bool {
        let cipher = self.encryption.map_or("null", |row| row.name);
        let mac = self.integrity.map_or("", |row| row.name);
        match (cipher, mac) {
            ("null", _) => true,
            ("aes-cbc", "" | "hmac-md5" | "hmac-sha1" | "hmac-sha2-256" | "hmac-sha2-512") => {
                self.key_len == 16
            }
            ("3des-cbc", "hmac-sha1") => true,
            ("aes-gcm-16", _) => true,
            ("aes-gcm-12" | "aes-gcm-8" | "aes-ccm-12" | "aes-ccm-8" | "aes-gcm-16-iiv", _) => {
                false
            }
            ("blowfish-cbc" | "cast128-cbc", "") => self.key_len == 16,
            (_, "") => matches!(self.key_len, 8 | 16 | 19 | 20 | 24 | 36),
            _ => false,
        }
    }
}

/// Bytes that differ from association to association.
fn key_bytes(len: usize, n: usize, salt: usize) -> Vec<u8> {
    let mixed = |at: usize| (n * 193 + at * 31 + salt).wrapping_mul(0x9e37_79b9) >> 11;
    (0..len).map(|at| mixed(at) as u8).collect()
}

/// Every suite.
pub(super) fn all() -> impl Iterator<Item = NamedSuite> {
    let alone = Integrity::all().map(|row| NamedSuite {
        name: format!("null+{}", row.name),
        encryption: None,
        key_len: 0,
        integrity: Some(row),
    });
    Encryption::all()
        .filter(|row| row.cipher != Cipher::Null && row.iv_len > 0)
        .flat_map(with_encryption)
        .chain(alone)
}

fn with_encryption(row: Encryption) -> impl Iterator<Item = NamedSuite> {
    row.key_lens.iter().flat_map(move |&key_len| {
        let macs = Integrity::all().filter(move |mac| row.icv_len == 0 && mac.iv_len == 0);
        let macs = macs.map(Some);
        [None].into_iter().chain(macs).map(move |integrity| {
            let cipher = cipher_name(row, key_len);
            let name = match integrity {
                Some(mac) => format!("{cipher}+{}", mac.name),
                None => cipher,
            };
            NamedSuite {
                name,
                encryption: Some(row),
                key_len,
                integrity,
            }
        })
    })
}

/// The table's name with the bits of the key behind the first word, unless there is only one length.
fn cipher_name(row: Encryption, key_len: usize) -> String {
    let bits = 8 * (key_len - row.salt_len);
    match row.name.split_once('-') {
        Some((first, rest)) if row.key_lens.len() > 1 => {
            let rest = rest.strip_suffix("-16").unwrap_or(rest);
            format!("{first}-{bits}-{rest}")
        }
        _ => row.name.to_owned(),
    }
}

/// The suites that the arguments select: those of these names, else those with these words in their names, else the
/// typical ones.
pub(super) fn chosen(words: &[String]) -> Result<Vec<NamedSuite>, Failure> {
    if words.is_empty() {
        return Ok(all().filter(NamedSuite::is_typical).collect());
    }
    let mut chosen = Vec::new();
    for word in words {
        let named: Vec<NamedSuite> = all().filter(|suite| suite.name == *word).collect();
        let found = if named.is_empty() {
            all()
                .filter(|suite| suite.name.contains(word.as_str()))
                .collect()
        } else {
            named
        };
        if found.is_empty() {
            return Err(unknown(word));
        }
        chosen.extend(found);
    }
    Ok(chosen)
}

fn unknown(word: &str) -> Failure {
    let names: Vec<String> = all().map(|suite| suite.name).collect();
    Failure::new(match nearest(word, names.iter().map(String::as_str)) {
        Some(near) => format!("there is no suite `{word}`; did you mean `{near}`?"),
        None => format!("there is no suite `{word}`; see `esplanade speed --list`"),
    })
}
