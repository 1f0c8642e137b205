//! Public keys, as certificates carry them, and checking signatures by them.

use super::{Curve, Hash, Scheme, SignatureError};
use aws_lc_rs::signature::{self as library, ParsedPublicKey, VerificationAlgorithm};
use std::{error::Error, fmt};
use x509_cert::{
    der::{Decode, asn1::ObjectIdentifier},
    spki::SubjectPublicKeyInfoRef,
};

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const CURVES: [(ObjectIdentifier, Curve); 3] = [
    (
        ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"),
        Curve::P256,
    ),
    (ObjectIdentifier::new_unwrap("1.3.132.0.34"), Curve::P384),
    (ObjectIdentifier::new_unwrap("1.3.132.0.35"), Curve::P521),
];

/// A public key of a kind that IKEv2 signs with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey {
    kind: Kind,
    /// What lies in the BIT STRING of a SubjectPublicKeyInfo.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Rsa,
    /// RFC 4055 1.2: a key that is for PSS alone.
    RsaPssOnly,
    Ec(Curve),
    Ed25519,
}

/// Why a public key is not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublicKeyError {
    /// It is no SubjectPublicKeyInfo.
    Malformed,
    /// It is of a kind that is not used here: the object identifier of its algorithm or curve.
    Unsupported(String),
}

impl fmt::Display for PublicKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the public key is malformed"),
            Self::Unsupported(oid) => write!(
                f,
                "the public key is of a kind that is not supported ({oid}); RSA, ECDSA on P-256, P-384 and P-521, and Ed25519 are"
            ),
        }
    }
}

impl Error for PublicKeyError {}

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo (RFC 5280 4.1.2.7).
    pub fn from_spki(der: &[u8]) -> Result<Self, PublicKeyError> {
        let spki = SubjectPublicKeyInfoRef::from_der(der).map_err(|_| PublicKeyError::Malformed)?;
        let bytes = spki.subject_public_key.as_bytes();
        let kind = match spki.algorithm.oid {
            RSA => Kind::Rsa,
            RSA_PSS => Kind::RsaPssOnly,
            ED25519 => Kind::Ed25519,
            EC => {
                let curve = spki.algorithm.parameters_oid();
                Kind::Ec(named_curve(curve.map_err(|_| PublicKeyError::Malformed)?)?)
            }
            other => return Err(PublicKeyError::Unsupported(other.to_string())),
        };
        Ok(Self {
            kind,
            bytes: bytes.ok_or(PublicKeyError::Malformed)?.to_vec(),
        })
    }

    pub(super) fn new(kind: Kind, bytes: &[u8]) -> Self {
        Self {
            kind,
            bytes: bytes.to_vec(),
        }
    }

    /// Whether `signature` was made over `message` by the owner of this key.
    pub fn verify(
        &self,
        scheme: Scheme,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        let algorithm = self
            .algorithm(scheme)
            .ok_or(SignatureError::WrongKey(scheme))?;
        let key = ParsedPublicKey::new(algorithm, &self.bytes);
        let verified = key.map(|key| key.verify_sig(message, signature));
        match verified {
            Ok(Ok(())) => Ok(()),
            _ => Err(SignatureError::Mismatch(scheme)),
        }
    }

    /// The curve, for ECDSA.
    pub fn curve(&self) -> Option<Curve> {
        match self.kind {
            Kind::Ec(curve) => Some(curve),
            _ => None,
        }
    }

    /// Its kind in a word, for people.
    pub fn describe(&self) -> &'static str {
        match self.kind {
            Kind::Rsa | Kind::RsaPssOnly => "RSA",
            Kind::Ec(Curve::P256) => "ECDSA P-256",
            Kind::Ec(Curve::P384) => "ECDSA P-384",
            Kind::Ec(Curve::P521) => "ECDSA P-521",
            Kind::Ed25519 => "Ed25519",
        }
    }

    fn algorithm(&self, scheme: Scheme) -> Option<&'static dyn VerificationAlgorithm> {
        match (self.kind, scheme) {
            (Kind::Rsa, Scheme::RsaPkcs1(hash)) => pkcs1(hash),
            (Kind::Rsa | Kind::RsaPssOnly, Scheme::RsaPss(hash)) => pss(hash),
            (Kind::Ec(curve), Scheme::Ecdsa(hash)) => ecdsa(curve, hash),
            (Kind::Ec(curve), Scheme::EcdsaFixed(hash)) => ecdsa_fixed(curve, hash),
            (Kind::Ed25519, Scheme::Ed25519) => Some(&library::ED25519),
            _ => None,
        }
    }
}

fn named_curve(oid: ObjectIdentifier) -> Result<Curve, PublicKeyError> {
    let row = CURVES.iter().find(|row| row.0 == oid);
    row.map(|row| row.1)
        .ok_or_else(|| PublicKeyError::Unsupported(oid.to_string()))
}

/// RSA keys of 2048 to 8192 bits (RFC 8247 4.1.1).
fn pkcs1(hash: Hash) -> Option<&'static dyn VerificationAlgorithm> {
    match hash {
        Hash::Sha1 => Some(&library::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY),
        Hash::Sha256 => Some(&library::RSA_PKCS1_2048_8192_SHA256),
        Hash::Sha384 => Some(&library::RSA_PKCS1_2048_8192_SHA384),
        Hash::Sha512 => Some(&library::RSA_PKCS1_2048_8192_SHA512),
        Hash::Identity => None,
    }
}

fn pss(hash: Hash) -> Option<&'static dyn VerificationAlgorithm> {
    match hash {
        Hash::Sha256 => Some(&library::RSA_PSS_2048_8192_SHA256),
        Hash::Sha384 => Some(&library::RSA_PSS_2048_8192_SHA384),
        Hash::Sha512 => Some(&library::RSA_PSS_2048_8192_SHA512),
        Hash::Sha1 | Hash::Identity => None,
    }
}

fn ecdsa(curve: Curve, hash: Hash) -> Option<&'static dyn VerificationAlgorithm> {
    match (curve, hash) {
        (Curve::P256, Hash::Sha256) => Some(&library::ECDSA_P256_SHA256_ASN1),
        (Curve::P256, Hash::Sha384) => Some(&library::ECDSA_P256_SHA384_ASN1),
        (Curve::P256, Hash::Sha512) => Some(&library::ECDSA_P256_SHA512_ASN1),
        (Curve::P384, Hash::Sha256) => Some(&library::ECDSA_P384_SHA256_ASN1),
        (Curve::P384, Hash::Sha384) => Some(&library::ECDSA_P384_SHA384_ASN1),
        (Curve::P384, Hash::Sha512) => Some(&library::ECDSA_P384_SHA512_ASN1),
        (Curve::P521, Hash::Sha256) => Some(&library::ECDSA_P521_SHA256_ASN1),
        (Curve::P521, Hash::Sha384) => Some(&library::ECDSA_P521_SHA384_ASN1),
        (Curve::P521, Hash::Sha512) => Some(&library::ECDSA_P521_SHA512_ASN1),
        (_, Hash::Sha1 | Hash::Identity) => None,
    }
}

fn ecdsa_fixed(curve: Curve, hash: Hash) -> Option<&'static dyn VerificationAlgorithm> {
    match (curve, hash) {
        (Curve::P256, Hash::Sha256) => Some(&library::ECDSA_P256_SHA256_FIXED),
        (Curve::P384, Hash::Sha384) => Some(&library::ECDSA_P384_SHA384_FIXED),
        (Curve::P521, Hash::Sha512) => Some(&library::ECDSA_P521_SHA512_FIXED),
        _ => None,
    }
}
