//! Signatures as IKEv2 makes and checks them: which key with which hash in which encoding.
//!
//! ```text
//!   method 1       RSA, PKCS#1 v1.5                                    RFC 7296 3.8
//!   method 9…11    ECDSA with one hash for each curve, r | s           RFC 4754
//!   method 14      an AlgorithmIdentifier names the algorithm          RFC 7427, RFC 8420
//! ```
//!
//! The library draws the random numbers that RSA blinds with and ECDSA needs; they are no part of any protocol.

use std::{error::Error, fmt};

pub mod algorithm_identifier;
pub mod choice;
mod private_key;
mod public_key;

pub use private_key::{PrivateKey, PrivateKeyError};
pub use public_key::{PublicKey, PublicKeyError};

/// A hash function of SIGNATURE_HASH_ALGORITHMS (RFC 7427 7, RFC 8420 2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hash {
    /// SHA-1: checked in signatures of method 1 alone, never made (RFC 8247 4.2).
    Sha1,
    /// SHA2-256.
    Sha256,
    /// SHA2-384.
    Sha384,
    /// SHA2-512.
    Sha512,
    /// None: hashing is part of the algorithm, as in Ed25519.
    Identity,
}

impl Hash {
    /// What the notification of a peer that can check everything here lists.
    pub const ANNOUNCED: [Self; 4] = [Self::Sha256, Self::Sha384, Self::Sha512, Self::Identity];

    /// Its number in SIGNATURE_HASH_ALGORITHMS.
    pub fn number(self) -> u16 {
        match self {
            Self::Sha1 => 1,
            Self::Sha256 => 2,
            Self::Sha384 => 3,
            Self::Sha512 => 4,
            Self::Identity => 5,
        }
    }
}

/// An elliptic curve of ECDSA.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Curve {
    /// P-256.
    P256,
    /// P-384.
    P384,
    /// P-521.
    P521,
}

/// What a signature is, apart from its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 (RFC 8017 8.2).
    RsaPkcs1(Hash),
    /// RSASSA-PSS with MGF1 and a salt, both of this hash (RFC 8017 8.1).
    RsaPss(Hash),
    /// ECDSA, encoded as a SEQUENCE of r and s (RFC 5758).
    Ecdsa(Hash),
    /// ECDSA, r | s in the length of the curve (RFC 4754 7).
    EcdsaFixed(Hash),
    /// Ed25519 (RFC 8420).
    Ed25519,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, hash) = match self {
            Self::RsaPkcs1(hash) => ("RSA PKCS#1 with ", hash),
            Self::RsaPss(hash) => ("RSA-PSS with ", hash),
            Self::Ecdsa(hash) | Self::EcdsaFixed(hash) => ("ECDSA with ", hash),
            Self::Ed25519 => return f.write_str("Ed25519"),
        };
        f.write_str(name)?;
        fmt::Display::fmt(hash, f)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
            Self::Identity => "no hash",
        })
    }
}

/// Why a signature is not good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureError {
    /// The key is of another kind than the signature.
    WrongKey(Scheme),
    /// It was not made by this key over these bytes.
    Mismatch(Scheme),
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongKey(scheme) => write!(f, "the key cannot have made a signature by {scheme}"),
            Self::Mismatch(scheme) => write!(f, "the signature by {scheme} does not verify"),
        }
    }
}

impl Error for SignatureError {}

#[cfg(test)]
mod tests;
