//! Private keys from PEM files, and signing by them.

use super::{Curve, Hash, PublicKey, Scheme, public_key::Kind};
use aws_lc_rs::{
    rand::SystemRandom,
    rsa,
    signature::{self as library, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use rustls_pki_types::{PrivateKeyDer, pem, pem::PemObject};
use std::{error::Error, fmt, sync::Arc};
use zeroize::Zeroizing;

/// What the library calls an RSA key of fewer than 2048 bits.
const TOO_SMALL: &str = "TooSmall";

/// A private key: zeroed when the last copy is dropped, never printed. Copies share what is computed once for a key.
#[derive(Clone)]
pub struct PrivateKey {
    pair: Arc<Pair>,
    public: PublicKey,
}

enum Pair {
    Rsa(rsa::KeyPair),
    /// One key for both encodings, r | s and a SEQUENCE.
    Ec {
        curve: Curve,
        fixed: EcdsaKeyPair,
        sequence: EcdsaKeyPair,
    },
    Ed25519(Ed25519KeyPair),
}

/// Why there is no private key. Says nothing of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrivateKeyError {
    /// The file has no section that is a private key.
    None,
    /// The key is encrypted by a passphrase.
    Encrypted,
    /// The text between the lines is not base64.
    Malformed,
    /// It is no key of RSA, ECDSA on a supported curve, or Ed25519, or its parts contradict each other.
    Unsupported,
    /// An RSA key of fewer than 2048 bits, which are no longer safe (RFC 8247 4.1.1).
    Short,
}

impl fmt::Display for PrivateKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no private key is in the file; it has to be in PEM, as `openssl genpkey` writes it"),
            Self::Encrypted => f.write_str(
                "the private key is encrypted; decrypt it by `openssl pkey -in KEY -out PLAIN` and protect the file instead",
            ),
            Self::Malformed => f.write_str("the file is no proper PEM"),
            Self::Unsupported => f.write_str(
                "the private key is damaged or of a kind that is not supported; RSA, ECDSA on P-256, P-384 and P-521, and Ed25519 are",
            ),
            Self::Short => f.write_str("the RSA key has fewer than 2048 bits; make a longer one"),
        }
    }
}

impl Error for PrivateKeyError {}

impl PrivateKey {
    /// The first private key of a PEM file: PKCS#8, PKCS#1 or SEC1.
    pub fn from_pem(text: &[u8]) -> Result<Self, PrivateKeyError> {
        // Said first, because to the reader it is no private key at all.
        let contains = |what: &[u8]| text.windows(what.len()).any(|window| window == what);
        if contains(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(b"Proc-Type: 4,ENCRYPTED")
        {
            return Err(PrivateKeyError::Encrypted);
        }
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
            pem::Error::NoItemsFound => PrivateKeyError::None,
            _ => PrivateKeyError::Malformed,
        })?;
        Self::from_der(&Zeroizing::new(key))
    }

    fn from_der(key: &PrivateKeyDer<'_>) -> Result<Self, PrivateKeyError> {
        let (der, rsa) = match key {
            PrivateKeyDer::Pkcs1(key) => (
                key.secret_pkcs1_der(),
                rsa::KeyPair::from_der(key.secret_pkcs1_der()),
            ),
            PrivateKeyDer::Pkcs8(key) => (
                key.secret_pkcs8_der(),
                rsa::KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            ),
            PrivateKeyDer::Sec1(key) => return ec(key.secret_sec1_der()),
            _ => return Err(PrivateKeyError::Unsupported),
        };
        match rsa {
            Ok(pair) => Ok(rsa_pair(pair)),
            Err(error) if error.to_string() == TOO_SMALL => Err(PrivateKeyError::Short),
            Err(_) => ed25519(der).or_else(|_| ec(der)),
        }
    }

    /// Its public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Whether it is one of RSA.
    pub fn is_rsa(&self) -> bool {
        matches!(*self.pair, Pair::Rsa(_))
    }

    /// Signs `message`; `None` where this key cannot sign by `scheme`.
    pub fn sign(&self, scheme: Scheme, message: &[u8]) -> Option<Vec<u8>> {
        match &*self.pair {
            Pair::Rsa(pair) => sign_by_rsa(pair, scheme, message),
            Pair::Ec {
                curve,
                fixed,
                sequence,
            } => {
                let pair = match scheme {
                    Scheme::EcdsaFixed(hash) if hash == curve.hash() => fixed,
                    Scheme::Ecdsa(hash) if hash == curve.hash() => sequence,
                    _ => return None,
                };
                let signature = pair.sign(&SystemRandom::new(), message).ok()?;
                Some(signature.as_ref().to_vec())
            }
            Pair::Ed25519(pair) => match scheme {
                Scheme::Ed25519 => Some(pair.sign(message).as_ref().to_vec()),
                _ => None,
            },
        }
    }
}

impl Curve {
    /// The hash of its own strength, which the library signs with (RFC 4754 3).
    pub fn hash(self) -> Hash {
        match self {
            Self::P256 => Hash::Sha256,
            Self::P384 => Hash::Sha384,
            Self::P521 => Hash::Sha512,
        }
    }
}

fn rsa_pair(pair: rsa::KeyPair) -> PrivateKey {
    let public = PublicKey::new(Kind::Rsa, pair.public_key().as_ref());
    PrivateKey {
        pair: Arc::new(Pair::Rsa(pair)),
        public,
    }
}

fn ed25519(der: &[u8]) -> Result<PrivateKey, PrivateKeyError> {
    let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
    let pair = pair.map_err(|_| PrivateKeyError::Unsupported)?;
    let public = PublicKey::new(Kind::Ed25519, pair.public_key().as_ref());
    Ok(PrivateKey {
        pair: Arc::new(Pair::Ed25519(pair)),
        public,
    })
}

/// On whichever curve the key is.
fn ec(der: &[u8]) -> Result<PrivateKey, PrivateKeyError> {
    let curves = [
        (
            Curve::P256,
            &library::ECDSA_P256_SHA256_FIXED_SIGNING,
            &library::ECDSA_P256_SHA256_ASN1_SIGNING,
        ),
        (
            Curve::P384,
            &library::ECDSA_P384_SHA384_FIXED_SIGNING,
            &library::ECDSA_P384_SHA384_ASN1_SIGNING,
        ),
        (
            Curve::P521,
            &library::ECDSA_P521_SHA512_FIXED_SIGNING,
            &library::ECDSA_P521_SHA512_ASN1_SIGNING,
        ),
    ];
    for (curve, fixed, sequence) in curves {
        let pairs = (
            EcdsaKeyPair::from_private_key_der(fixed, der),
            EcdsaKeyPair::from_private_key_der(sequence, der),
        );
        if let (Ok(fixed), Ok(sequence)) = pairs {
            let public = PublicKey::new(Kind::Ec(curve), fixed.public_key().as_ref());
            let pair = Pair::Ec {
                curve,
                fixed,
                sequence,
            };
            return Ok(PrivateKey {
                pair: Arc::new(pair),
                public,
            });
        }
    }
    Err(PrivateKeyError::Unsupported)
}

fn sign_by_rsa(pair: &rsa::KeyPair, scheme: Scheme, message: &[u8]) -> Option<Vec<u8>> {
    let encoding = match scheme {
        Scheme::RsaPkcs1(Hash::Sha256) => &library::RSA_PKCS1_SHA256,
        Scheme::RsaPkcs1(Hash::Sha384) => &library::RSA_PKCS1_SHA384,
        Scheme::RsaPkcs1(Hash::Sha512) => &library::RSA_PKCS1_SHA512,
        Scheme::RsaPss(Hash::Sha256) => &library::RSA_PSS_SHA256,
        Scheme::RsaPss(Hash::Sha384) => &library::RSA_PSS_SHA384,
        Scheme::RsaPss(Hash::Sha512) => &library::RSA_PSS_SHA512,
        _ => return None,
    };
    let mut signature = vec![0; pair.public_modulus_len()];
    let signed = pair.sign(encoding, &SystemRandom::new(), message, &mut signature);
    signed.ok().map(|()| signature)
}
