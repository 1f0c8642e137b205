//! Trusted roots and revocation lists, and how they are read from files.

use super::Certificate;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, pem::PemObject};
use serde::{Deserialize, Serialize};
use std::{error::Error, fmt};
use webpki::{CertRevocationList, OwnedCertRevocationList};

mod library;
mod names;
mod path_error;
mod validate;

/// How revocation lists are applied.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Revocation {
    /// A certificate that a list revokes is refused; one that no list covers is accepted, and an expired list still
    /// counts.
    #[default]
    WhereKnown,
    /// A list has to cover every certificate below the root, and it must not have expired.
    Required,
}

/// Roots and revocation lists.
#[derive(Default)]
pub struct Trust {
    roots: Vec<Root>,
    lists: Vec<CertRevocationList<'static>>,
    /// How the lists are applied.
    pub revocation: Revocation,
}

struct Root {
    anchor: TrustAnchor<'static>,
    certificate: Certificate,
}

/// Why a file of roots or revocation lists was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrustError {
    /// It has neither certificates nor lists, in PEM or DER.
    Nothing,
    /// A certificate in it is malformed or not supported: its number, from 1, and the library's message.
    Unusable(usize, String),
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => {
                f.write_str("the file has nothing of this kind, neither in PEM nor in DER")
            }
            Self::Unusable(number, why) => {
                write!(f, "number {number} in the file cannot be used: {why}")
            }
        }
    }
}

impl Error for TrustError {}

impl Trust {
    /// Trusts every certificate of a file, PEM or DER, as a root.
    pub fn add_roots(&mut self, file: &[u8]) -> Result<(), TrustError> {
        let ders = items::<CertificateDer<'static>>(file)?;
        for (index, der) in ders.iter().enumerate() {
            let unusable = |why: String| TrustError::Unusable(index + 1, why);
            let certificate =
                Certificate::from_der(der).map_err(|error| unusable(error.to_string()))?;
            let anchor = webpki::anchor_from_trusted_cert(certificate.der_for_library())
                .map_err(|error| unusable(error.to_string()))?;
            let anchor = anchor.to_owned();
            self.roots.push(Root {
                anchor,
                certificate,
            });
        }
        Ok(())
    }

    /// The SHA-1 hashes of the keys of all roots, as CERTREQ has them (RFC 7296 3.7).
    pub fn key_hashes(&self) -> Vec<[u8; 20]> {
        let hashes = self.roots.iter().map(|root| root.certificate.key_hash());
        hashes.flatten().collect()
    }

    /// Takes every revocation list of a file, PEM or DER.
    pub fn add_revocation_lists(&mut self, file: &[u8]) -> Result<(), TrustError> {
        let ders = items::<CertificateRevocationListDer<'static>>(file)?;
        for (index, der) in ders.iter().enumerate() {
            let list = OwnedCertRevocationList::from_der(der);
            let list = list.map_err(|error| TrustError::Unusable(index + 1, error.to_string()))?;
            self.lists.push(list.into());
        }
        Ok(())
    }
}

/// Every certificate of a file, PEM or DER, in its order: nothing in them is proven.
pub fn certificates(file: &[u8]) -> Result<Vec<Certificate>, TrustError> {
    let ders = items::<CertificateDer<'static>>(file)?;
    let numbered = (1..).zip(&ders);
    let read = numbered.map(|(number, der)| {
        Certificate::from_der(der).map_err(|error| TrustError::Unusable(number, error.to_string()))
    });
    read.collect()
}

/// Everything of one kind in a file: PEM, or one in DER.
fn items<T: PemObject + From<Vec<u8>>>(file: &[u8]) -> Result<Vec<T>, TrustError> {
    if !file.windows(5).any(|window| window == b"-----") {
        return match file.first() {
            Some(0x30) => Ok(vec![T::from(file.to_vec())]),
            _ => Err(TrustError::Nothing),
        };
    }
    let items: Result<Vec<_>, _> = T::pem_slice_iter(file).collect();
    match items {
        Ok(items) if items.is_empty() => Err(TrustError::Nothing),
        Ok(items) => Ok(items),
        Err(error) => Err(TrustError::Unusable(1, error.to_string())),
    }
}
