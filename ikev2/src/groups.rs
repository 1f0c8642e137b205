//! Key exchange: the groups, their key pairs, and the shared secret, after the checks that RFC 6989 requires.

use std::{error::Error, fmt};

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use multibuffer::{ModpGroup, ModpKey, PublicValueError};
use zeroize::Zeroizing;

/// Fills bytes with random bits. The crate has no source of its own.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// How often a scalar may be refused before the random source is considered broken: with P-256 one in 2^32 is refused.
const MAX_SCALAR_DRAWS: usize = 16;

/// The first byte of an uncompressed point (SEC 1 2.3.3), which does not travel in IKE (RFC 5903 7).
const UNCOMPRESSED: u8 = 4;

/// A group for key exchange (transform type 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Group {
    /// Exponentiation modulo a prime (RFC 2409, RFC 3526).
    Modp(ModpGroup),
    /// The curve P-256 (RFC 5903).
    P256,
    /// The curve P-384 (RFC 5903).
    P384,
    /// The curve P-521 (RFC 5903).
    P521,
    /// Curve25519 (RFC 8031).
    X25519,
}

/// Every group with its transform ID and its name.
#[rustfmt::skip]
pub const GROUPS: [(u16, Group, &str); 11] = [
    (2, Group::Modp(ModpGroup::Modp1024), "modp1024"),
    (5, Group::Modp(ModpGroup::Modp1536), "modp1536"),
    (14, Group::Modp(ModpGroup::Modp2048), "modp2048"),
    (15, Group::Modp(ModpGroup::Modp3072), "modp3072"),
    (16, Group::Modp(ModpGroup::Modp4096), "modp4096"),
    (17, Group::Modp(ModpGroup::Modp6144), "modp6144"),
    (18, Group::Modp(ModpGroup::Modp8192), "modp8192"),
    (19, Group::P256, "ecp256"),
    (20, Group::P384, "ecp384"),
    (21, Group::P521, "ecp521"),
    (31, Group::X25519, "x25519"),
];

impl Group {
    /// The group with this transform ID.
    pub fn from_transform(id: u16) -> Option<Self> {
        let row = GROUPS.iter().find(|row| row.0 == id);
        row.map(|row| row.1)
    }

    /// The group of this name.
    pub fn named(name: &str) -> Option<Self> {
        let row = GROUPS.iter().find(|row| row.2 == name);
        row.map(|row| row.1)
    }

    /// Its transform ID.
    pub fn transform(self) -> u16 {
        self.row().0
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> &'static (u16, Self, &'static str) {
        let row = GROUPS.iter().find(|row| row.1 == self);
        // INVARIANT: a test looks up every group.
        row.expect("a row of the table")
    }

    /// Why it is offered and accepted only where the configuration names it (RFC 8247 2.4).
    pub fn weakness(self) -> Option<&'static str> {
        match self {
            Self::Modp(ModpGroup::Modp1024) => Some(
                "1024 bits are within reach of large attackers, who break the group once for all its users",
            ),
            Self::Modp(ModpGroup::Modp1536) => {
                Some("1536 bits are too short for keys that must stay secret for years")
            }
            _ => None,
        }
    }

    /// Bytes of the public value in a KE payload.
    pub fn public_len(self) -> usize {
        match self {
            Self::Modp(group) => group.public_len(),
            Self::X25519 => 32,
            Self::P256 => 64,
            Self::P384 => 96,
            Self::P521 => 132,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why there is no shared secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyExchangeError {
    /// The peer's public value has not the group's length (RFC 7296 3.4, RFC 5903 7).
    Length {
        /// Bytes that the group requires.
        expected: usize,
        /// Bytes received.
        received: usize,
    },
    /// The peer's public value would give the secret away or is no point of the curve (RFC 6989 2).
    PublicValue,
    /// The source of randomness does not give random bytes.
    Random,
}

impl fmt::Display for KeyExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, received } => write!(
                f,
                "the peer's public value has {received} bytes where the group wants {expected}"
            ),
            Self::PublicValue => f.write_str(
                "the peer's public value is outside of the group or gives the secret away: refused",
            ),
            Self::Random => f.write_str("the system's source of random bytes is broken"),
        }
    }
}

impl Error for KeyExchangeError {}

impl From<PublicValueError> for KeyExchangeError {
    fn from(error: PublicValueError) -> Self {
        match error {
            PublicValueError::Length { expected, received } => Self::Length { expected, received },
            PublicValueError::OutOfRange => Self::PublicValue,
        }
    }
}

/// One side's key pair, for one exchange: gone and zeroed when the secret is computed.
pub struct KeyPair {
    group: Group,
    public: Vec<u8>,
    private: Private,
}

enum Private {
    Modp(ModpKey),
    Curve(Box<PrivateKey>),
}

impl KeyPair {
    /// A fresh key pair.
    pub fn generate(group: Group, random: Random<'_>) -> Result<Self, KeyExchangeError> {
        match group {
            Group::Modp(modp) => Ok(Self::modp(modp, random)),
            Group::P256 => Self::of_curve(group, &agreement::ECDH_P256, 32, random),
            Group::P384 => Self::of_curve(group, &agreement::ECDH_P384, 48, random),
            Group::P521 => Self::of_curve(group, &agreement::ECDH_P521, 66, random),
            Group::X25519 => Self::of_curve(group, &agreement::X25519, 32, random),
        }
    }

    /// The group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// What goes into the KE payload.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// g^ir with the peer's public value: as long as the prime (RFC 7296 2.14), or the x coordinate (RFC 5903 7).
    pub fn agree(self, peer: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyExchangeError> {
        if peer.len() != self.group.public_len() {
            return Err(KeyExchangeError::Length {
                expected: self.group.public_len(),
                received: peer.len(),
            });
        }
        match self.private {
            Private::Modp(key) => Ok(key.agree(peer)?),
            Private::Curve(key) => agree_on_curve(self.group, &key, peer),
        }
    }

    fn modp(group: ModpGroup, random: Random<'_>) -> Self {
        let mut exponent = Zeroizing::new(vec![0; group.exponent_len()]);
        random(&mut exponent);
        let key = ModpKey::new(group, &exponent);
        Self {
            group: Group::Modp(group),
            public: key.public().to_vec(),
            private: Private::Modp(key),
        }
    }

    fn of_curve(
        group: Group,
        algorithm: &'static agreement::Algorithm,
        scalar_len: usize,
        random: Random<'_>,
    ) -> Result<Self, KeyExchangeError> {
        let mut scalar = Zeroizing::new(vec![0; scalar_len]);
        for _ in 0..MAX_SCALAR_DRAWS {
            random(&mut scalar);
            if group == Group::P521 {
                // 521 bits in 66 bytes; nearly all other draws would be larger than the order.
                scalar[0] &= 1;
            }
            // The library refuses 0 and what is not smaller than the order (NIST SP 800-56A 5.6.1.2.2).
            if let Ok(key) = PrivateKey::from_private_key(algorithm, &scalar) {
                return Self::with_private(group, key);
            }
        }
        Err(KeyExchangeError::Random)
    }

    fn with_private(group: Group, key: PrivateKey) -> Result<Self, KeyExchangeError> {
        let point = key
            .compute_public_key()
            .map_err(|_| KeyExchangeError::Random)?;
        let public = match (group, point.as_ref()) {
            (Group::X25519, public) => public,
            // RFC 5903 7: x and y, without the byte for the form of encoding.
            (_, [UNCOMPRESSED, coordinates @ ..]) => coordinates,
            _ => return Err(KeyExchangeError::Random),
        };
        Ok(Self {
            group,
            public: public.to_vec(),
            private: Private::Curve(Box::new(key)),
        })
    }
}

/// RFC 6989 2.3: the library refuses a point that is not on the curve, RFC 8031 3: and an X25519 secret of zeroes.
fn agree_on_curve(
    group: Group,
    key: &PrivateKey,
    peer: &[u8],
) -> Result<Zeroizing<Vec<u8>>, KeyExchangeError> {
    let encoded = match group {
        Group::X25519 => peer.to_vec(),
        _ => [&[UNCOMPRESSED], peer].concat(),
    };
    let peer = UnparsedPublicKey::new(key.algorithm(), encoded);
    agreement::agree(key, peer, KeyExchangeError::PublicValue, |secret| {
        let secret = Zeroizing::new(secret.to_vec());
        let zeroes = vec![0; secret.len()];
        if multibuffer::constant_time_eq(&secret, &zeroes) {
            return Err(KeyExchangeError::PublicValue);
        }
        Ok(secret)
    })
}

#[cfg(test)]
mod tests;
