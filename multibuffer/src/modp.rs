//! Diffie-Hellman in the MODP groups of IKE: safe primes, generator 2, short exponents.

use std::{error::Error, fmt, sync::OnceLock};

use aws_lc_sys::{
    BN_get_rfc3526_prime_1536, BN_get_rfc3526_prime_2048, BN_get_rfc3526_prime_3072,
    BN_get_rfc3526_prime_4096, BN_get_rfc3526_prime_6144, BN_get_rfc3526_prime_8192,
};
use zeroize::Zeroizing;

use crate::kernels::aws_lc::{Field, KnownPrime};

/// A MODP group of IKE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ModpGroup {
    /// 1024 bits (RFC 2409 6.2). Within reach of large attackers; for old peers.
    Modp1024,
    /// 1536 bits (RFC 3526 2). Too short; for old peers.
    Modp1536,
    /// 2048 bits (RFC 3526 3).
    Modp2048,
    /// 3072 bits (RFC 3526 4).
    Modp3072,
    /// 4096 bits (RFC 3526 5).
    Modp4096,
    /// 6144 bits (RFC 3526 6).
    Modp6144,
    /// 8192 bits (RFC 3526 7).
    Modp8192,
}

impl ModpGroup {
    /// Every group, the smallest first.
    pub const ALL: [Self; 7] = [
        Self::Modp1024,
        Self::Modp1536,
        Self::Modp2048,
        Self::Modp3072,
        Self::Modp4096,
        Self::Modp6144,
        Self::Modp8192,
    ];

    /// Bytes of a public value and of the shared secret.
    pub fn public_len(self) -> usize {
        match self {
            Self::Modp1024 => 128,
            Self::Modp1536 => 192,
            Self::Modp2048 => 256,
            Self::Modp3072 => 384,
            Self::Modp4096 => 512,
            Self::Modp6144 => 768,
            Self::Modp8192 => 1024,
        }
    }

    /// Bytes of the secret exponent: at least twice the strength of the group, as RFC 7919 A counts it for primes of
    /// these sizes (225, 275, 325, 375 and 400 bits).
    pub fn exponent_len(self) -> usize {
        match self {
            Self::Modp1024 | Self::Modp1536 | Self::Modp2048 => 32,
            Self::Modp3072 => 40,
            Self::Modp4096 => 48,
            Self::Modp6144 => 56,
            Self::Modp8192 => 64,
        }
    }

    /// Its field, made once.
    fn field(self) -> &'static Field {
        static FIELDS: [OnceLock<Field>; ModpGroup::ALL.len()] =
            [const { OnceLock::new() }; ModpGroup::ALL.len()];
        FIELDS[self as usize].get_or_init(|| match self {
            Self::Modp1024 => Field::of_prime(&PRIME_1024),
            Self::Modp1536 => known(BN_get_rfc3526_prime_1536),
            Self::Modp2048 => known(BN_get_rfc3526_prime_2048),
            Self::Modp3072 => known(BN_get_rfc3526_prime_3072),
            Self::Modp4096 => known(BN_get_rfc3526_prime_4096),
            Self::Modp6144 => known(BN_get_rfc3526_prime_6144),
            Self::Modp8192 => known(BN_get_rfc3526_prime_8192),
        })
    }
}

fn known(prime: KnownPrime) -> Field {
    Field::of_known(prime)
}

/// Why a peer's public value was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublicValueError {
    /// It has not the length of the group's prime (RFC 7296 3.4).
    Length {
        /// Bytes that the group requires.
        expected: usize,
        /// Bytes received.
        received: usize,
    },
    /// It is 0, 1, or not smaller than the prime less one, so that the secret could be guessed (RFC 6989 2.1).
    OutOfRange,
}

impl fmt::Display for PublicValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, received } => write!(
                f,
                "the public value has {received} bytes where the group wants {expected}"
            ),
            Self::OutOfRange => {
                f.write_str("the public value is not between 1 and the prime less 1")
            }
        }
    }
}

impl Error for PublicValueError {}

/// A secret exponent and the public value that belongs to it: the first is zeroed when dropped and never printed.
pub struct ModpKey {
    group: ModpGroup,
    exponent: Zeroizing<Vec<u8>>,
    public: Vec<u8>,
}

impl ModpKey {
    /// A key pair from random bytes, [`ModpGroup::exponent_len`] of them.
    ///
    /// # Panics
    /// If they are fewer or more: an error of the caller.
    pub fn new(group: ModpGroup, random: &[u8]) -> Self {
        assert_eq!(random.len(), group.exponent_len(), "bytes of the exponent");
        let mut exponent = Zeroizing::new(random.to_vec());
        // Every exponent is of full length, so none is 0.
        exponent[0] |= 0x80;
        Self::with_exponent(group, exponent)
    }

    fn with_exponent(group: ModpGroup, exponent: Zeroizing<Vec<u8>>) -> Self {
        let public = group.field().power(&[2], &exponent);
        Self {
            group,
            // INVARIANT: 2 is smaller than every prime.
            public: public.expect("a power of two").to_vec(),
            exponent,
        }
    }

    /// The group.
    pub fn group(&self) -> ModpGroup {
        self.group
    }

    /// What the peer is sent, as long as the prime (RFC 7296 3.4).
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The secret shared with the owner of `peer`, as long as the prime (RFC 7296 2.14).
    pub fn agree(&self, peer: &[u8]) -> Result<Zeroizing<Vec<u8>>, PublicValueError> {
        let field = self.group.field();
        if peer.len() != field.len() {
            return Err(PublicValueError::Length {
                expected: field.len(),
                received: peer.len(),
            });
        }
        // RFC 6989 2.1: MUST check that 1 < y < p - 1. The primes are safe, so there are no other small subgroups.
        if !field.is_public_value(peer) {
            return Err(PublicValueError::OutOfRange);
        }
        let secret = field.power(peer, &self.exponent);
        secret.ok_or(PublicValueError::OutOfRange)
    }
}

/// RFC 2409 6.2; the others are known to the library.
#[rustfmt::skip]
const PRIME_1024: [u8; 128] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc9, 0x0f, 0xda, 0xa2, 0x21, 0x68, 0xc2, 0x34,
    0xc4, 0xc6, 0x62, 0x8b, 0x80, 0xdc, 0x1c, 0xd1, 0x29, 0x02, 0x4e, 0x08, 0x8a, 0x67, 0xcc, 0x74,
    0x02, 0x0b, 0xbe, 0xa6, 0x3b, 0x13, 0x9b, 0x22, 0x51, 0x4a, 0x08, 0x79, 0x8e, 0x34, 0x04, 0xdd,
    0xef, 0x95, 0x19, 0xb3, 0xcd, 0x3a, 0x43, 0x1b, 0x30, 0x2b, 0x0a, 0x6d, 0xf2, 0x5f, 0x14, 0x37,
    0x4f, 0xe1, 0x35, 0x6d, 0x6d, 0x51, 0xc2, 0x45, 0xe4, 0x85, 0xb5, 0x76, 0x62, 0x5e, 0x7e, 0xc6,
    0xf4, 0x4c, 0x42, 0xe9, 0xa6, 0x37, 0xed, 0x6b, 0x0b, 0xff, 0x5c, 0xb6, 0xf4, 0x06, 0xb7, 0xed,
    0xee, 0x38, 0x6b, 0xfb, 0x5a, 0x89, 0x9f, 0xa5, 0xae, 0x9f, 0x24, 0x11, 0x7c, 0x4b, 0x1f, 0xe6,
    0x49, 0x28, 0x66, 0x51, 0xec, 0xe6, 0x53, 0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
];

#[cfg(test)]
mod tests;
