//! Chooses the method and algorithm for a signature from the local key and the hashes that the peer supports.

use super::{Hash, PrivateKey, Scheme};
use crate::authentication::Method;
use std::{error::Error, fmt};

/// Hashes for RSA, the preferred one first: SHA-256 is as strong as keys of 3072 bits.
const RSA_HASHES: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

/// How RSA signs where the peer can check both.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub enum RsaPadding {
    /// PSS, which RFC 8247 4.2 demands of all implementations.
    #[default]
    Pss,
    /// PKCS#1 v1.5, for peers that take nothing else.
    Pkcs1,
}

/// There is no signature that this key makes and the peer checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoCommonSignature {
    /// The peer sent SIGNATURE_HASH_ALGORITHMS without the hash that this key needs.
    Hash(Hash),
    /// The peer sent no SIGNATURE_HASH_ALGORITHMS, and no older method knows keys of this kind.
    OldPeer,
}

impl fmt::Display for NoCommonSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash(hash) => write!(
                f,
                "the peer does not check signatures with {hash}, which our key needs; use a key of another kind"
            ),
            Self::OldPeer => f.write_str(
                "the peer does not know digital signatures by RFC 7427, which an Ed25519 key needs; use an ECDSA or RSA key",
            ),
        }
    }
}

impl Error for NoCommonSignature {}

/// RFC 7427 4: method 14 only where the peer sent SIGNATURE_HASH_ALGORITHMS, with a hash that it listed; else the
/// method that is older than that. `announced` are the numbers of that notification, in any order.
pub fn choose(
    key: &PrivateKey,
    announced: Option<&[u16]>,
    padding: RsaPadding,
) -> Result<(Method, Scheme), NoCommonSignature> {
    match announced {
        Some(numbers) => {
            let scheme = for_hashes(key, numbers, padding)?;
            Ok((Method::DigitalSignature, scheme))
        }
        None => classic(key).ok_or(NoCommonSignature::OldPeer),
    }
}

fn for_hashes(
    key: &PrivateKey,
    numbers: &[u16],
    padding: RsaPadding,
) -> Result<Scheme, NoCommonSignature> {
    let listed = |hash: Hash| {
        if numbers.contains(&hash.number()) {
            Ok(hash)
        } else {
            Err(NoCommonSignature::Hash(hash))
        }
    };
    if let Some(curve) = key.public().curve() {
        return listed(curve.hash()).map(Scheme::Ecdsa);
    }
    if key.is_rsa() {
        let mut hashes = RSA_HASHES.into_iter();
        let hash = hashes.find_map(|hash| listed(hash).ok());
        let hash = hash.ok_or(NoCommonSignature::Hash(RSA_HASHES[0]))?;
        return Ok(match padding {
            RsaPadding::Pss => Scheme::RsaPss(hash),
            RsaPadding::Pkcs1 => Scheme::RsaPkcs1(hash),
        });
    }
    // RFC 8420 2: Ed25519 goes with the number of no hash.
    listed(Hash::Identity).map(|_| Scheme::Ed25519)
}

/// RFC 7296 3.8 and RFC 4754 3. The library makes no RSA signatures with SHA-1, so method 1 has SHA-256
/// (`docs/deviations.md`).
fn classic(key: &PrivateKey) -> Option<(Method, Scheme)> {
    if key.is_rsa() {
        return Some((Method::Rsa, Scheme::RsaPkcs1(Hash::Sha256)));
    }
    let curve = key.public().curve()?;
    Some((Method::Ecdsa(curve), Scheme::EcdsaFixed(curve.hash())))
}
