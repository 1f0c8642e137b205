//! The AlgorithmIdentifier in front of a signature of method 14: it names the algorithm (RFC 7427 3 and appendix A).

use super::{Hash, Scheme};
use x509_cert::der::{
    Decode, Error, SliceReader, TagNumber,
    asn1::{AnyRef, ContextSpecific, ObjectIdentifier},
};
use x509_cert::spki::AlgorithmIdentifierRef;

const SHA: [(ObjectIdentifier, Hash, u8); 3] = [
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1"),
        Hash::Sha256,
        32,
    ),
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2"),
        Hash::Sha384,
        48,
    ),
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3"),
        Hash::Sha512,
        64,
    ),
];
const SCHEMES: [(ObjectIdentifier, Scheme); 7] = [
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"),
        Scheme::RsaPkcs1(Hash::Sha256),
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12"),
        Scheme::RsaPkcs1(Hash::Sha384),
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13"),
        Scheme::RsaPkcs1(Hash::Sha512),
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"),
        Scheme::Ecdsa(Hash::Sha256),
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"),
        Scheme::Ecdsa(Hash::Sha384),
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"),
        Scheme::Ecdsa(Hash::Sha512),
    ),
    (ObjectIdentifier::new_unwrap("1.3.101.112"), Scheme::Ed25519),
];
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const MGF1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.8");

/// The encoding of `scheme`; `None` for those that have no identifier in method 14.
pub fn encode(scheme: Scheme) -> Option<Vec<u8>> {
    let bytes: &[u8] = match scheme {
        Scheme::RsaPkcs1(Hash::Sha256) => PKCS1_SHA256,
        Scheme::RsaPkcs1(Hash::Sha384) => PKCS1_SHA384,
        Scheme::RsaPkcs1(Hash::Sha512) => PKCS1_SHA512,
        Scheme::Ecdsa(Hash::Sha256) => ECDSA_SHA256,
        Scheme::Ecdsa(Hash::Sha384) => ECDSA_SHA384,
        Scheme::Ecdsa(Hash::Sha512) => ECDSA_SHA512,
        Scheme::Ed25519 => ED25519,
        Scheme::RsaPss(Hash::Sha256) => return Some(pss(1, 32)),
        Scheme::RsaPss(Hash::Sha384) => return Some(pss(2, 48)),
        Scheme::RsaPss(Hash::Sha512) => return Some(pss(3, 64)),
        _ => return None,
    };
    Some(bytes.to_vec())
}

/// The algorithm of an AlgorithmIdentifier; `None` for one that is malformed or not taken here.
pub fn decode(der: &[u8]) -> Option<Scheme> {
    let identifier = AlgorithmIdentifierRef::from_der(der).ok()?;
    if identifier.oid == RSA_PSS {
        return decode_pss(identifier.parameters?);
    }
    let row = SCHEMES.iter().find(|row| row.0 == identifier.oid)?;
    let parameters_fit = match row.1 {
        // RFC 4055 5: NULL; a reader accepts their absence too.
        Scheme::RsaPkcs1(_) => is_null_or_absent(identifier.parameters),
        // RFC 5758 3.2, RFC 8410 3: none.
        _ => identifier.parameters.is_none(),
    };
    parameters_fit.then_some(row.1)
}

/// RFC 4055 3.1. The fields' defaults are all of SHA-1, so none of them may be left to its default but the trailer.
fn decode_pss(parameters: AnyRef<'_>) -> Option<Scheme> {
    let read = parameters.sequence(|reader| {
        let hash = explicit::<AlgorithmIdentifierRef<'_>>(reader, 0)?;
        let mask = explicit::<AlgorithmIdentifierRef<'_>>(reader, 1)?;
        let salt = explicit::<u8>(reader, 2)?;
        let trailer = explicit::<u8>(reader, 3)?;
        Ok::<_, Error>((hash, mask, salt, trailer))
    });
    let (hash, mask, salt, trailer) = read.ok()?;
    let (hash, mask) = (hash?, mask?);
    let (hash, len) = sha(hash)?;
    let mask_hash = mask
        .parameters?
        .decode_as::<AlgorithmIdentifierRef<'_>>()
        .ok()?;
    // RFC 8017 8.1: one hash for all of it is what is recommended, made and checked here; a salt of its length as well.
    let fits = mask.oid == MGF1 && sha(mask_hash)?.0 == hash && salt? == len;
    (fits && matches!(trailer, None | Some(1))).then_some(Scheme::RsaPss(hash))
}

fn sha(identifier: AlgorithmIdentifierRef<'_>) -> Option<(Hash, u8)> {
    let row = SHA.iter().find(|row| row.0 == identifier.oid)?;
    is_null_or_absent(identifier.parameters).then_some((row.1, row.2))
}

fn explicit<'a, T>(reader: &mut SliceReader<'a>, number: u32) -> Result<Option<T>, Error>
where
    T: Decode<'a, Error = Error>,
{
    let field = ContextSpecific::<T>::decode_explicit(reader, TagNumber(number))?;
    Ok(field.map(|field| field.value))
}

fn is_null_or_absent(parameters: Option<AnyRef<'_>>) -> bool {
    parameters.is_none_or(|parameters| parameters == AnyRef::NULL)
}

/// RFC 7427 A.4.3 for SHA-256, with the other hashes in its place: identifier, parameters NULL, salt in bytes.
#[rustfmt::skip]
fn pss(hash: u8, salt: u8) -> Vec<u8> {
    vec![
        0x30, 0x41, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, 0x30, 0x34,
        0xa0, 0x0f, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, hash, 0x05, 0x00,
        0xa1, 0x1c, 0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08,
        0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, hash, 0x05, 0x00,
        0xa2, 0x03, 0x02, 0x01, salt,
    ]
}

// RFC 7427 A.1, A.3, and RFC 8420 appendix A.
#[rustfmt::skip]
const PKCS1_SHA256: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00];
#[rustfmt::skip]
const PKCS1_SHA384: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c, 0x05, 0x00];
#[rustfmt::skip]
const PKCS1_SHA512: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d, 0x05, 0x00];
const ECDSA_SHA256: &[u8] = &[
    0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02,
];
const ECDSA_SHA384: &[u8] = &[
    0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03,
];
const ECDSA_SHA512: &[u8] = &[
    0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04,
];
const ED25519: &[u8] = &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];
