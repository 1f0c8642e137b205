//! Whether a chain of certificates leads to a trusted root, and whether it names the peer.

use super::library::ForLibrary;
use super::names::{Forms, NameCheck};
use super::{Revocation, Trust, path_error};
use crate::certificate::{Certificate, Check, Failure, parsed};
use crate::{identity::Identity, signatures::PublicKey};
use rustls_pki_types::{SignatureVerificationAlgorithm, UnixTime};
use std::cell::RefCell;
use webpki::{
    EndEntityCert, Error as PathError, ExpirationPolicy, ExtendedKeyUsageValidator,
    KeyPurposeIdIter, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
    VerifiedPath,
};

/// The most certificates of a peer that are looked at.
const MAX_CERTIFICATES_OF_A_PEER: usize = 16;

impl Trust {
    /// The key that signs for `claimed`, if `chain` proves it at `now`: the peer's own certificate first, then others
    /// in any order. All checks but that of the identity alone are [`Trust::validate`].
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
        Err(Failure::at(
            chain,
            0,
            Check::Identity {
                claimed: claimed.to_string(),
                named: named.map(Identity::to_string).collect(),
            },
        ))
    }

    /// The key of the first certificate, if the chain leads to a root at `now` (RFC 5280 6.1) and the certificate is
    /// one for IKE (RFC 4945 5.1.3).
    pub fn validate<'a>(
        &self,
        chain: &'a [Certificate],
        now: UnixTime,
    ) -> Result<&'a PublicKey, Failure> {
        let Some((peer, others)) = chain.split_first() else {
            return Err(Failure::at(chain, 0, Check::None));
        };
        if chain.len() > MAX_CERTIFICATES_OF_A_PEER {
            return Err(Failure::at(chain, 0, Check::TooMany(chain.len())));
        }
        let key = peer
            .key()
            .map_err(|error| Failure::at(chain, 0, Check::Key(error.clone())))?;
        if !peer.may_sign_messages() {
            return Err(Failure::at(chain, 0, Check::KeyUsage { as_ca: false }));
        }
        let names = RefCell::new(None);
        self.build_path(peer, others, now, &names)
            .map_err(|error| {
                // A path that failed by its names alone is reported first: the library's error describes just the path
                // that it tried last or verified furthest.
                let explain = || path_error::explain(self, chain, now, &error);
                names.take().unwrap_or_else(explain)
            })?;
        Ok(key)
    }

    /// What name constraints do not allow goes to `names`.
    fn build_path(
        &self,
        peer: &Certificate,
        others: &[Certificate],
        now: UnixTime,
        names: &RefCell<Option<Failure>>,
    ) -> Result<(), PathError> {
        let end = EndEntityCert::try_from(peer.der_for_library())?;
        let library = ForLibrary::new(peer, others, &self.roots);
        let algorithms: Vec<&dyn SignatureVerificationAlgorithm> = library.algorithms();
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
        let name_check = NameCheck::new();
        // RFC 5280 6.1: what the library does not look at. If this path is refused, one over other CAs is still tried.
        let rest = |path: &VerifiedPath<'_>| {
            let path = library.path(path).ok_or(PathError::UnknownIssuer)?;
            cas_may_sign_certificates(&path)?;
            let checked = name_check.check(&path, Forms::CheckedHere);
            checked.map_err(|failure| {
                names.replace(Some(failure));
                PathError::NameConstraintViolation
            })
        };
        let path = end.verify_for_usage(
            &algorithms,
            &library.anchors,
            &library.intermediates,
            now,
            Purposes,
            options,
            Some(&rest),
        );
        path.map(|_| ())
    }
}

/// RFC 5280 6.1.4 (n): MUST verify that keyCertSign is set, where there is a key usage. The root is no certificate of
/// the path (RFC 5280 6.1).
fn cas_may_sign_certificates(path: &[&Certificate]) -> Result<(), PathError> {
    let above = path.len().saturating_sub(1);
    let mut cas = path.iter().take(above).skip(1);
    if cas.all(|ca| ca.may_sign_certificates()) {
        Ok(())
    } else {
        Err(PathError::EndEntityUsedAsCa)
    }
}

/// The library's check of extended key usages, with the same rule as [`Certificate::is_for_ike`].
struct Purposes;

impl ExtendedKeyUsageValidator for Purposes {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), PathError> {
        let mut some = false;
        for purpose in purposes {
            some = true;
            if parsed::is_purpose_of_ike(&purpose?.to_decoded_oid()) {
                return Ok(());
            }
        }
        if some {
            Err(PathError::CertDistrusted)
        } else {
            Ok(())
        }
    }
}
