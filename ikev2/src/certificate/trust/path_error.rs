//! Finds the certificate that made the library refuse a path: the library does not name it, so each is checked again.

use super::Trust;
use super::names::{Forms, NameCheck};
use crate::certificate::{Certificate, Check, Failure};
use rustls_pki_types::UnixTime;
use webpki::Error;

/// Which certificate of `chain` failed, and at which check. No verdict changes here: the path was refused already.
pub(super) fn explain(
    trust: &Trust,
    chain: &[Certificate],
    now: UnixTime,
    error: &Error,
) -> Failure {
    if *error == Error::NameConstraintViolation
        && let Err(failure) = NameCheck::new().check(&above(trust, chain), Forms::CheckedByLibrary)
    {
        return failure;
    }
    let (index, check) = find(trust, chain, now.as_secs(), error);
    Failure::at(chain, index, check)
}

fn find(trust: &Trust, chain: &[Certificate], now: u64, error: &Error) -> (usize, Check) {
    let first = |wrong: &dyn Fn(&Certificate) -> bool| chain.iter().position(wrong).unwrap_or(0);
    match error {
        Error::CertExpired { not_after, .. } => {
            let until = not_after.as_secs();
            (
                first(&|one| one.validity().1 < now),
                Check::Expired { until },
            )
        }
        Error::CertNotValidYet { not_before, .. } => {
            let from = not_before.as_secs();
            (
                first(&|one| one.validity().0 > now),
                Check::NotYetValid { from },
            )
        }
        Error::CertRevoked => (first(&|one| is_revoked(trust, one)), Check::Revoked),
        Error::EndEntityUsedAsCa => not_allowed_to_sign(chain),
        Error::CertDistrusted => (first(&|one| !one.is_for_ike()), Check::Purpose),
        Error::UnknownIssuer => last_link(trust, chain),
        Error::InvalidSignatureForPublicKey => (
            first(&|one| !is_signed(trust, chain, one)),
            Check::Signature,
        ),
        Error::CaUsedAsEndEntity => (0, Check::IsCa),
        other => (0, plain(other)),
    }
}

fn plain(error: &Error) -> Check {
    match error {
        Error::UnknownRevocationStatus => Check::RevocationUnknown,
        Error::CrlExpired { .. } => Check::RevocationListExpired,
        Error::PathLenConstraintViolated => Check::PathLength,
        Error::NameConstraintViolation => Check::Other(
            "it, or a certificate above it, has a name that name constraints do not allow"
                .to_owned(),
        ),
        Error::UnsupportedCriticalExtension => Check::CriticalExtension,
        Error::UnsupportedSignatureAlgorithmContext(_)
        | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => Check::SignatureAlgorithm,
        Error::MaximumSignatureChecksExceeded
        | Error::MaximumPathBuildCallsExceeded
        | Error::MaximumPathDepthExceeded
        | Error::MaximumNameConstraintComparisonsExceeded => Check::TooComplex,
        other => Check::Other(other.to_string()),
    }
}

/// Of the certificates above the peer's: one that is no CA, or one whose key usage forbids it.
fn not_allowed_to_sign(chain: &[Certificate]) -> (usize, Check) {
    let above = || chain.iter().enumerate().skip(1);
    if let Some((index, _)) = above().find(|(_, one)| !one.is_ca()) {
        return (index, Check::NotCa);
    }
    let forbidden = above().find(|(_, one)| !one.may_sign_certificates());
    let index = forbidden.map_or(0, |(index, _)| index);
    (index, Check::KeyUsage { as_ca: true })
}

/// The certificate at which the path from the peer's upwards ends.
fn last_link(trust: &Trust, chain: &[Certificate]) -> (usize, Check) {
    let at = by_issuers(trust, chain).pop().unwrap_or(0);
    let unknown = |one: &Certificate| Check::UnknownIssuer {
        issuer: one.issuer(),
    };
    (at, chain.get(at).map_or(Check::None, unknown))
}

/// The path from the peer's certificate upwards, with its root.
fn above<'a>(trust: &'a Trust, chain: &'a [Certificate]) -> Vec<&'a Certificate> {
    let indices = by_issuers(trust, chain);
    let mut path: Vec<_> = indices.iter().filter_map(|at| chain.get(*at)).collect();
    let mut roots = trust.roots.iter().map(|root| &root.certificate);
    let root = roots.find(|root| path.last().is_some_and(|last| last.names_issuer(root)));
    path.extend(root);
    path
}

/// The indices of the path from the peer's certificate upwards, as the names of issuers lead, below the root.
fn by_issuers(trust: &Trust, chain: &[Certificate]) -> Vec<usize> {
    let mut path = vec![0];
    // As many steps as there are certificates: the path may lead in a circle.
    for _ in chain {
        let at = path.last().copied().unwrap_or(0);
        let (Some(current), false) = (chain.get(at), is_root_above(trust, &chain[at])) else {
            break;
        };
        let above = chain.iter().position(|other| current.names_issuer(other));
        match above {
            Some(above) if above != at => path.push(above),
            _ => break,
        }
    }
    path
}

fn is_root_above(trust: &Trust, one: &Certificate) -> bool {
    trust
        .roots
        .iter()
        .any(|root| one.names_issuer(&root.certificate))
}

fn is_signed(trust: &Trust, chain: &[Certificate], one: &Certificate) -> bool {
    let roots = trust.roots.iter().map(|root| &root.certificate);
    let mut issuers = roots.chain(chain).filter(|issuer| one.names_issuer(issuer));
    issuers.any(|issuer| issuer.key().is_ok_and(|key| one.is_signed_by(key)))
}

fn is_revoked(trust: &Trust, one: &Certificate) -> bool {
    let mut lists = trust.lists.iter();
    lists.any(|list| {
        list.find_serial(one.serial())
            .is_ok_and(|found| found.is_some())
    })
}
