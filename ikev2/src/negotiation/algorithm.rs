//! One transform, with the length of its key where that is not fixed, and its name in a suite.

use crate::message::payload::{Attributes, Protocol, Transform, TransformType};
use ipsec::algorithm::{Encryption, Integrity};
use std::fmt;

/// The transform ID of "none" among integrity algorithms and groups, and of 32-bit sequence numbers.
pub(super) const NONE: u16 = 0;

/// One algorithm of one type, as it is negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Algorithm {
    /// What it is for.
    pub kind: TransformType,
    /// Its transform ID.
    pub id: u16,
    /// The length of its key in bits, for ciphers that have several.
    pub key_bits: Option<u16>,
}

type Row = (&'static str, u16, Option<u16>);

/// Names of ciphers, as they are written in suites.
#[rustfmt::skip]
const ENCRYPTION: [Row; 33] = [
    ("aes128gcm16", 20, Some(128)), ("aes192gcm16", 20, Some(192)), ("aes256gcm16", 20, Some(256)),
    ("aes128gcm12", 19, Some(128)), ("aes192gcm12", 19, Some(192)), ("aes256gcm12", 19, Some(256)),
    ("aes128gcm8", 18, Some(128)), ("aes192gcm8", 18, Some(192)), ("aes256gcm8", 18, Some(256)),
    ("chacha20poly1305", 28, None),
    ("aes128ccm16", 16, Some(128)), ("aes192ccm16", 16, Some(192)), ("aes256ccm16", 16, Some(256)),
    ("aes128ccm12", 15, Some(128)), ("aes192ccm12", 15, Some(192)), ("aes256ccm12", 15, Some(256)),
    ("aes128ccm8", 14, Some(128)), ("aes192ccm8", 14, Some(192)), ("aes256ccm8", 14, Some(256)),
    ("aes128", 12, Some(128)), ("aes192", 12, Some(192)), ("aes256", 12, Some(256)),
    ("aes128ctr", 13, Some(128)), ("aes192ctr", 13, Some(192)), ("aes256ctr", 13, Some(256)),
    ("camellia128", 23, Some(128)), ("camellia192", 23, Some(192)), ("camellia256", 23, Some(256)),
    ("3des", 3, None),
    ("aes128gmac", 21, Some(128)), ("aes192gmac", 21, Some(192)), ("aes256gmac", 21, Some(256)),
    ("null", 11, None),
];

const PRF: [Row; 6] = [
    ("prfsha1", 2, None),
    ("prfaesxcbc", 4, None),
    ("prfsha256", 5, None),
    ("prfsha384", 6, None),
    ("prfsha512", 7, None),
    ("prfaescmac", 8, None),
];

const INTEGRITY: [Row; 10] = [
    ("md5", 1, None),
    ("sha1", 2, None),
    ("aesxcbc", 5, None),
    ("aescmac", 8, None),
    ("sha256", 12, None),
    ("sha384", 13, None),
    ("sha512", 14, None),
    ("gmac128", 9, None),
    ("gmac192", 10, None),
    ("gmac256", 11, None),
];

const KEY_EXCHANGE: [Row; 11] = [
    ("x25519", 31, None),
    ("ecp256", 19, None),
    ("ecp384", 20, None),
    ("ecp521", 21, None),
    ("modp2048", 14, None),
    ("modp3072", 15, None),
    ("modp4096", 16, None),
    ("modp6144", 17, None),
    ("modp8192", 18, None),
    ("modp1536", 5, None),
    ("modp1024", 2, None),
];

const SEQUENCE_NUMBERS: [Row; 2] = [("noesn", NONE, None), ("esn", 1, None)];

/// Other names for the same, as other programs and RFCs write them.
const ALIASES: [(&str, &str); 9] = [
    ("curve25519", "x25519"),
    ("p256", "ecp256"),
    ("p384", "ecp384"),
    ("p521", "ecp521"),
    ("sha", "sha1"),
    ("sha2_256", "sha256"),
    ("sha2_384", "sha384"),
    ("sha2_512", "sha512"),
    ("chacha20", "chacha20poly1305"),
];

/// AES-GMAC is a cipher in ESP and an integrity algorithm in AH (RFC 4543 5.3); it is written in the same way in both.
const IN_AH: [(&str, &str); 3] = [
    ("aes128gmac", "gmac128"),
    ("aes192gmac", "gmac192"),
    ("aes256gmac", "gmac256"),
];

const TABLES: [(TransformType, &[Row]); 5] = [
    (TransformType::ENCRYPTION, &ENCRYPTION),
    (TransformType::PRF, &PRF),
    (TransformType::INTEGRITY, &INTEGRITY),
    (TransformType::KEY_EXCHANGE, &KEY_EXCHANGE),
    (TransformType::SEQUENCE_NUMBERS, &SEQUENCE_NUMBERS),
];

impl Algorithm {
    /// The algorithm of this name in a suite.
    pub fn named(name: &str) -> Option<Self> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name, |(_, name)| name);
        Self::all().find(|algorithm| algorithm.name() == Some(name))
    }

    /// The algorithm of this name in a suite for a protocol.
    pub fn named_for(name: &str, protocol: Protocol) -> Option<Self> {
        let in_ah = IN_AH.iter().find(|(name_in_esp, _)| *name_in_esp == name);
        match in_ah.filter(|_| protocol == Protocol::AH) {
            Some((_, name)) => Self::named(name),
            None => Self::named(name),
        }
    }

    /// Every algorithm that has a name.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLES.into_iter().flat_map(|(kind, rows)| {
            rows.iter()
                .map(move |&(_, id, key_bits)| Self { kind, id, key_bits })
        })
    }

    /// Its name in a suite.
    pub fn name(&self) -> Option<&'static str> {
        let (_, rows) = TABLES.into_iter().find(|(kind, _)| *kind == self.kind)?;
        let row = rows
            .iter()
            .find(|&&(_, id, bits)| id == self.id && bits == self.key_bits);
        row.map(|(name, ..)| *name)
    }

    /// None of this type.
    pub(super) fn none(kind: TransformType) -> Self {
        Self {
            kind,
            id: NONE,
            key_bits: None,
        }
    }

    /// What a transform names. `None` if it has attributes that are not known: such a one is never chosen (RFC 7296
    /// 3.3.6).
    pub fn of(transform: &Transform<'_>) -> Option<Self> {
        let key_bits = match transform.attributes {
            Attributes::None => None,
            Attributes::KeyLength(bits) => Some(bits),
            Attributes::Other(_) => return None,
        };
        Some(Self {
            kind: transform.kind,
            id: transform.id,
            key_bits,
        })
    }

    /// The transform that names it.
    pub fn transform(&self) -> Transform<'static> {
        let attributes = self
            .key_bits
            .map_or(Attributes::None, Attributes::KeyLength);
        Transform {
            kind: self.kind,
            id: self.id,
            attributes,
        }
    }

    /// The cipher's row in the table of suites, with the bytes of its key, salt included.
    pub fn encryption(&self) -> Option<(Encryption, usize)> {
        if self.kind != TransformType::ENCRYPTION {
            return None;
        }
        let row = Encryption::all().find(|row| row.ike == Some(self.id))?;
        let len = match self.key_bits {
            Some(bits) => usize::from(bits) / 8 + row.salt_len,
            None => *row.key_lens.first()?,
        };
        row.key_lens.contains(&len).then_some((row, len))
    }

    /// The integrity algorithm's row in the table of suites.
    pub fn integrity(&self) -> Option<Integrity> {
        let is_integrity = self.kind == TransformType::INTEGRITY;
        Integrity::all().find(|row| is_integrity && row.ike == Some(self.id))
    }

    /// Whether it is for AH alone (RFC 4543 5.3).
    pub fn is_only_for_ah(&self) -> bool {
        self.integrity().is_some_and(|row| row.iv_len > 0)
    }

    /// Whether it encrypts and authenticates too: then no integrity algorithm is proposed with it (RFC 7296 3.3).
    pub fn is_aead(&self) -> bool {
        self.encryption().is_some_and(|(row, _)| row.icv_len > 0)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.key_bits) {
            (Some(name), _) => f.write_str(name),
            (None, _) if self.id == NONE => f.write_str("none"),
            (None, Some(bits)) => write!(f, "number {} with a key of {bits} bits", self.id),
            (None, None) => write!(f, "number {}", self.id),
        }
    }
}

/// The names of several algorithms in one text.
pub(super) fn joined(algorithms: &[Algorithm], between: &str) -> String {
    let names: Vec<_> = algorithms.iter().map(Algorithm::to_string).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(between),
    }
}
