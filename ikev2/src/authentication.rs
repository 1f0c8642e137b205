//! AUTH: proof that the sender of the first message of an IKE SA holds the key of the identity that it claims (RFC 7296
//! 2.15).
//!
//! ```text
//!   what is signed   own first message | the peer's nonce | prf(SK_p, own ID payload's body)
//!   by a secret      prf(prf(secret, "Key Pad for IKEv2"), what is signed)
//!   by a key         a signature over what is signed; methods 1, 9 to 11 and 14
//! ```

use std::{error::Error, fmt};

use ipsec::suite::Secret;
use multibuffer::{Prf, PrfKey};
use zeroize::Zeroizing;

use crate::signatures::{
    Curve, Hash, PrivateKey, PublicKey, Scheme, SignatureError, algorithm_identifier,
};

/// What a shared secret is stretched by (RFC 7296 2.15), without a zero at its end.
const KEY_PAD: &[u8] = b"Key Pad for IKEv2";

/// Authentication method of an AUTH payload (RFC 7296 3.8, RFC 4754, RFC 7427).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Method {
    /// 1: RSA, PKCS#1 v1.5.
    Rsa,
    /// 2: a shared secret.
    SharedSecret,
    /// 9, 10, 11: ECDSA with the hash of its curve.
    Ecdsa(Curve),
    /// 14: the AlgorithmIdentifier inside names the algorithm.
    DigitalSignature,
}

impl Method {
    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            Self::Rsa => 1,
            Self::SharedSecret => 2,
            Self::Ecdsa(Curve::P256) => 9,
            Self::Ecdsa(Curve::P384) => 10,
            Self::Ecdsa(Curve::P521) => 11,
            Self::DigitalSignature => 14,
        }
    }

    /// The method of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Rsa,
            2 => Self::SharedSecret,
            9 => Self::Ecdsa(Curve::P256),
            10 => Self::Ecdsa(Curve::P384),
            11 => Self::Ecdsa(Curve::P521),
            14 => Self::DigitalSignature,
            _ => return None,
        })
    }
}

/// Why an AUTH payload proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthenticationError {
    /// A method that is not known here.
    UnknownMethod(u8),
    /// A shared secret where a signature was expected, or the reverse.
    OtherMethod(Method),
    /// The secrets differ, or the message was changed.
    SecretMismatch,
    /// Method 14 without an AlgorithmIdentifier, or with one that is not taken here.
    Algorithm,
    /// The signature is not good.
    Signature(SignatureError),
}

impl fmt::Display for AuthenticationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMethod(number) => {
                write!(f, "the peer authenticates by method {number}, which is not supported")
            }
            Self::OtherMethod(Method::SharedSecret) => {
                f.write_str("the peer authenticates by a shared secret where a certificate was expected")
            }
            Self::OtherMethod(_) => {
                f.write_str("the peer authenticates by a signature where a shared secret was expected")
            }
            Self::SecretMismatch => f.write_str("the shared secrets of both sides differ"),
            Self::Algorithm => f.write_str(
                "the peer signed by an algorithm that is not supported, or with parameters that are not",
            ),
            Self::Signature(error) => error.fmt(f),
        }
    }
}

impl Error for AuthenticationError {}

/// What one side signs.
#[derive(Clone, Copy)]
pub struct Signed<'a> {
    /// The whole first message that the signing side sent, from its header on, as it was on the wire.
    pub message: &'a [u8],
    /// The nonce that the other side sent.
    pub nonce: &'a [u8],
    /// The body of the signing side's ID payload: type, reserved bytes and data.
    pub identity: &'a [u8],
}

impl Signed<'_> {
    /// The octets: `sk_p` is SK_pi where the initiator signs, SK_pr where the responder does.
    pub fn octets(self, prf: Prf, sk_p: &Secret) -> Vec<u8> {
        let identity = PrfKey::new(prf, sk_p.expose()).compute(&[self.identity]);
        [self.message, self.nonce, &identity].concat()
    }
}

/// A shared secret, ready to prove and to check: zeroed when dropped, never printed.
pub struct SharedSecret(PrfKey);

impl SharedSecret {
    /// prf(secret, "Key Pad for IKEv2"): the secret itself is not needed afterwards.
    pub fn new(prf: Prf, secret: &[u8]) -> Self {
        let padded = PrfKey::new(prf, secret).compute(&[KEY_PAD]);
        Self(PrfKey::new(prf, &padded))
    }

    /// The data of the own AUTH payload.
    pub fn prove(&self, octets: &[u8]) -> Zeroizing<Vec<u8>> {
        self.0.compute(&[octets])
    }

    /// Whether the peer's AUTH payload was made with the same secret. The time it takes does not depend on where they
    /// differ.
    pub fn check(&self, method: u8, data: &[u8], octets: &[u8]) -> Result<(), AuthenticationError> {
        match Method::from_number(method) {
            Some(Method::SharedSecret) => {}
            Some(other) => return Err(AuthenticationError::OtherMethod(other)),
            None => return Err(AuthenticationError::UnknownMethod(method)),
        }
        if multibuffer::constant_time_eq(&self.0.compute(&[octets]), data) {
            Ok(())
        } else {
            Err(AuthenticationError::SecretMismatch)
        }
    }
}

/// The data of the own AUTH payload by a private key; `None` where the key cannot sign so, which
/// [`choose`](crate::signatures::choice::choose) rules out.
pub fn sign(key: &PrivateKey, method: Method, scheme: Scheme, octets: &[u8]) -> Option<Vec<u8>> {
    let signature = key.sign(scheme, octets)?;
    if method != Method::DigitalSignature {
        return Some(signature);
    }
    // RFC 7427 3: the length of the AlgorithmIdentifier in one byte, the identifier, the signature.
    let identifier = algorithm_identifier::encode(scheme)?;
    let len = u8::try_from(identifier.len()).ok()?;
    Some([&[len], identifier.as_slice(), &signature].concat())
}

/// Whether the peer's AUTH payload is a signature by the owner of `key` over `octets`, and by which algorithm.
pub fn check_signature(
    key: &PublicKey,
    method: u8,
    data: &[u8],
    octets: &[u8],
) -> Result<Scheme, AuthenticationError> {
    let verify = |scheme, signature| {
        let verified = key.verify(scheme, octets, signature);
        verified
            .map(|()| scheme)
            .map_err(AuthenticationError::Signature)
    };
    match Method::from_number(method) {
        None => Err(AuthenticationError::UnknownMethod(method)),
        Some(Method::SharedSecret) => Err(AuthenticationError::OtherMethod(Method::SharedSecret)),
        Some(Method::Rsa) => check_rsa(key, data, octets),
        Some(Method::Ecdsa(curve)) => {
            let scheme = Scheme::EcdsaFixed(curve.hash());
            // The library would use the key's curve instead of the method's.
            if key.curve() != Some(curve) {
                return Err(AuthenticationError::Signature(SignatureError::WrongKey(
                    scheme,
                )));
            }
            verify(scheme, data)
        }
        Some(Method::DigitalSignature) => {
            let (scheme, signature) = split(data).ok_or(AuthenticationError::Algorithm)?;
            verify(scheme, signature)
        }
    }
}

/// RFC 7296 3.8: the hash of method 1 is inside of the signature; SHA-1 is what older peers know.
fn check_rsa(
    key: &PublicKey,
    signature: &[u8],
    octets: &[u8],
) -> Result<Scheme, AuthenticationError> {
    let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512, Hash::Sha1];
    let good = hashes.into_iter().map(Scheme::RsaPkcs1).find(|scheme| {
        let verified = key.verify(*scheme, octets, signature);
        verified.is_ok()
    });
    // Which hash the peer used is unknown: the error names the most usual one.
    let unknown = SignatureError::Mismatch(Scheme::RsaPkcs1(Hash::Sha256));
    good.ok_or(AuthenticationError::Signature(unknown))
}

/// The parts of the data of method 14.
fn split(data: &[u8]) -> Option<(Scheme, &[u8])> {
    let (len, rest) = data.split_first()?;
    let (identifier, signature) = rest.split_at_checked(usize::from(*len))?;
    Some((algorithm_identifier::decode(identifier)?, signature))
}

#[cfg(test)]
mod tests;
