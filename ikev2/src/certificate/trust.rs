//! Whom we trust, and whether a chain of certificates leads there.

use super::{Certificate, Check, Failure};
use crate::{identity::Identity, signatures::PublicKey};
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime, pem::PemObject,
};
use std::{error::Error, fmt};
use webpki::{
    ALL_VERIFICATION_ALGS, CertRevocationList, EndEntityCert, Error as PathError, ExpirationPolicy,
    ExtendedKeyUsageValidator, KeyPurposeIdIter, OwnedCertRevocationList, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};

mod path_error;

/// The most certificates of a peer that are looked at.
pub const MAX_CERTIFICATES_OF_A_PEER: usize = 16;

/// What is asked of revocation lists.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Revocation {
    /// A certificate that a list revokes is refused; one that no list speaks of is taken, and an old list is better than none.
    #[default]
    WhereKnown,
    /// A list has to speak of every certificate below the root, and it must not have expired.
    Required,
}

/// Roots and revocation lists.
#[derive(Default)]
pub struct Trust {
    roots: Vec<Root>,
    lists: Vec<CertRevocationList<'static>>,
    /// What is asked of the lists.
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
    /// One in it is malformed or not supported: which, from 1, and what the library says.
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
            let anchor = webpki::anchor_from_trusted_cert(der)
                .map_err(|error| unusable(error.to_string()))?;
            let anchor = anchor.to_owned();
            self.roots.push(Root {
                anchor,
                certificate,
            });
        }
        Ok(())
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

    /// The key that signs for `claimed`, if `chain` proves it at `now`: the peer's own certificate first, then others in any
    /// order. All checks but that of the identity alone are [`Trust::validate`].
    pub fn authenticate<'a>(
        &self,
        chain: &'a [Certificate],
        claimed: &Identity,
        now: UnixTime,
    ) -> Result<&'a PublicKey, Failure> {
        let key = self.validate(chain, now)?;
        // RFC 7296 3.5 and RFC 4945 3.1: the identity must be in the certificate.
        if chain
            .iter()
            .take(1)
            .any(|peer| peer.identities().contains(claimed))
        {
            return Ok(key);
        }
        let named = chain.iter().take(1).flat_map(Certificate::identities);
        Err(failure(
            chain,
            0,
            Check::Identity {
                claimed: claimed.to_string(),
                named: named.map(Identity::to_string).collect(),
            },
        ))
    }

    /// The key of the first certificate, if the chain leads to a root at `now` (RFC 5280 6.1) and the certificate is one for IKE
    /// (RFC 4945 5.1.3).
    pub fn validate<'a>(
        &self,
        chain: &'a [Certificate],
        now: UnixTime,
    ) -> Result<&'a PublicKey, Failure> {
        let Some((peer, others)) = chain.split_first() else {
            return Err(failure(chain, 0, Check::None));
        };
        if chain.len() > MAX_CERTIFICATES_OF_A_PEER {
            return Err(failure(chain, 0, Check::TooMany(chain.len())));
        }
        let key = peer
            .key()
            .map_err(|error| failure(chain, 0, Check::Key(error.clone())))?;
        if !peer.may_sign_messages() {
            return Err(failure(chain, 0, Check::KeyUsage { as_ca: false }));
        }
        self.build_path(peer, others, now)
            .map_err(|error| path_error::explain(self, chain, now, &error))?;
        Ok(key)
    }

    fn build_path(
        &self,
        peer: &Certificate,
        others: &[Certificate],
        now: UnixTime,
    ) -> Result<(), PathError> {
        let end = EndEntityCert::try_from(peer.der())?;
        let anchors: Vec<_> = self.roots.iter().map(|root| root.anchor.clone()).collect();
        let others: Vec<_> = others.iter().map(|other| other.der().clone()).collect();
        let lists: Vec<_> = self.lists.iter().collect();
        let (status, expiry) = match self.revocation {
            Revocation::WhereKnown => (UnknownStatusPolicy::Allow, ExpirationPolicy::Ignore),
            Revocation::Required => (UnknownStatusPolicy::Deny, ExpirationPolicy::Enforce),
        };
        let options = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
            let builder = builder.with_depth(RevocationCheckDepth::Chain);
            builder
                .with_status_policy(status)
                .with_expiration_policy(expiry)
                .build()
        });
        if options.is_none() && self.revocation == Revocation::Required {
            return Err(PathError::UnknownRevocationStatus);
        }
        let path = end.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &anchors,
            &others,
            now,
            Purposes,
            options,
            Some(&cas_may_sign_certificates),
        );
        path.map(|_| ())
    }
}

/// RFC 5280 6.1.4 (n): MUST verify that keyCertSign is set, where there is a key usage. The library does not look. A path over
/// another CA is still tried.
fn cas_may_sign_certificates(path: &VerifiedPath<'_>) -> Result<(), PathError> {
    let mut cas = path.intermediate_certificates();
    let may = cas.all(|ca| {
        let ca = Certificate::from_der(&ca.der());
        ca.is_ok_and(|ca| ca.may_sign_certificates())
    });
    match may {
        true => Ok(()),
        false => Err(PathError::EndEntityUsedAsCa),
    }
}

/// What the library asks about purposes; [`Certificate::is_for_ike`] says which.
struct Purposes;

impl ExtendedKeyUsageValidator for Purposes {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), PathError> {
        let mut some = false;
        for purpose in purposes {
            some = true;
            if super::parsed::is_purpose_of_ike(&purpose?.to_decoded_oid()) {
                return Ok(());
            }
        }
        match some {
            true => Err(PathError::CertDistrusted),
            false => Ok(()),
        }
    }
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

/// A check that the certificate at `index` did not pass.
fn failure(chain: &[Certificate], index: usize, check: Check) -> Failure {
    let subject = chain.get(index).map(Certificate::subject);
    Failure {
        certificate: subject.unwrap_or_default(),
        check,
    }
}
