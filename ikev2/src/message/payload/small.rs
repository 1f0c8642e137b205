//! Payloads of a fixed head and the bytes behind it.

use super::super::{Malformed, PayloadType, number::numbers, reader::Reader};

/// RFC 7296 3.9.
const NONCE_BYTES: std::ops::RangeInclusive<usize> = 16..=256;

/// KE: a public value of one group (RFC 7296 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyExchange<'a> {
    /// The group's transform ID (transform type 4).
    pub group: u16,
    /// The public value, as the group lays it out.
    pub public: &'a [u8],
}

impl<'a> KeyExchange<'a> {
    pub(super) fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let group = reader.u16("the number of a group")?;
        reader.u16("two reserved bytes")?;
        Ok(Self {
            group,
            public: reader.rest(),
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.group.to_be_bytes());
        out.extend([0, 0]);
        out.extend_from_slice(self.public);
    }
}

numbers! {
    /// How a certificate, or a request for one, is encoded (RFC 7296 3.6).
    CertificateEncoding(u8) {
        PKCS_7 = 1, "PKCS #7 wrapped X.509 certificate";
        X509_SIGNATURE = 4, "X.509 certificate - signature";
        CERTIFICATE_REVOCATION_LIST = 7, "certificate revocation list";
        HASH_AND_URL = 12, "hash and URL of X.509 certificate";
        HASH_AND_URL_OF_BUNDLE = 13, "hash and URL of X.509 bundle";
        OCSP_CONTENT = 14, "OCSP content";
        RAW_PUBLIC_KEY = 15, "raw public key";
    }
}

/// CERT, and CERTREQ which looks the same (RFC 7296 3.6 and 3.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificatePayload<'a> {
    /// The encoding.
    pub encoding: CertificateEncoding,
    /// The certificate; in a request, hashes of 20 bytes one behind the other.
    pub data: &'a [u8],
}

impl<'a> CertificatePayload<'a> {
    pub(super) fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let encoding = CertificateEncoding(reader.u8("a certificate encoding")?);
        Ok(Self {
            encoding,
            data: reader.rest(),
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.encoding.0);
        out.extend_from_slice(self.data);
    }
}

numbers! {
    /// How the sender proves its identity (RFC 7296 3.8, RFC 4754, RFC 7427).
    AuthMethod(u8) {
        RSA_SIGNATURE = 1, "RSA digital signature";
        SHARED_KEY = 2, "shared key message integrity code";
        DSS_SIGNATURE = 3, "DSS digital signature";
        ECDSA_P256 = 9, "ECDSA with SHA-256 on P-256";
        ECDSA_P384 = 10, "ECDSA with SHA-384 on P-384";
        ECDSA_P521 = 11, "ECDSA with SHA-512 on P-521";
        GENERIC_SECURE_PASSWORD = 12, "generic secure password";
        NULL = 13, "NULL authentication";
        DIGITAL_SIGNATURE = 14, "digital signature";
    }
}

/// AUTH (RFC 7296 3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authentication<'a> {
    /// The method.
    pub method: AuthMethod,
    /// The signature or code.
    pub data: &'a [u8],
}

impl<'a> Authentication<'a> {
    pub(super) fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let [method, _, _, _] = reader.array("a method and three reserved bytes")?;
        Ok(Self {
            method: AuthMethod(method),
            data: reader.rest(),
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.method.0, 0, 0, 0]);
        out.extend_from_slice(self.data);
    }
}

pub(super) fn nonce(reader: Reader<'_>) -> Result<&[u8], Malformed> {
    match reader.rest() {
        nonce if NONCE_BYTES.contains(&nonce.len()) => Ok(nonce),
        _ => Err(reader.malformed("16 to 256 bytes of nonce")),
    }
}

/// SKF: one encrypted part of what would be inside SK (RFC 7383 2.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncryptedFragment<'a> {
    /// The type of the first payload inside, in the first fragment; else none.
    pub first: PayloadType,
    /// Which fragment this is, counted from 1. INVARIANT: 1 to `total`.
    pub number: u16,
    /// How many there are.
    pub total: u16,
    /// IV, ciphertext and ICV.
    pub sealed: &'a [u8],
}

impl<'a> EncryptedFragment<'a> {
    pub(super) fn parse(first: PayloadType, mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let here = reader;
        let number = reader.u16("the number of a fragment")?;
        let total = reader.u16("the number of fragments in all")?;
        // RFC 7383 2.5: the number begins with 1, and the total is not below it.
        if number == 0 || number > total {
            return Err(here.malformed("a fragment number from 1 to the total"));
        }
        // RFC 7383 2.5: only the first fragment has the type of the first payload inside; in the others it is 0.
        if number != 1 && first != PayloadType::NONE {
            return Err(here.malformed("a type of payload inside in the first fragment alone"));
        }
        Ok(Self {
            first,
            number,
            total,
            sealed: reader.rest(),
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_be_bytes());
        out.extend(self.total.to_be_bytes());
        out.extend_from_slice(self.sealed);
    }
}
