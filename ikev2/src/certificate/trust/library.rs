//! A peer's certificates as rustls-webpki is given them: without the name constraints that are checked here.
//!
//! ```text
//!   certificate ─► constraints hidden ─► rustls-webpki ─► each signature: over the bytes as they were
//!                                              │
//!                                              └────────► each path: its certificates as they were
//! ```
//!
//! INVARIANT: a certificate of a path that rustls-webpki takes differs from one that the issuer signed in hidden
//! constraints alone, and [`ForLibrary::path`] gives back the signed one, with its constraints. A peer that sends
//! certificates in which it has hidden constraints itself gains nothing: all that look alike when their constraints are
//! hidden must be signed.

use crate::certificate::{Certificate, trust::Root};
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
    TrustAnchor,
};
use std::sync::Arc;
use webpki::{ALL_VERIFICATION_ALGS, VerifiedPath};

/// The certificates, in the forms that rustls-webpki takes.
pub(super) struct ForLibrary<'a> {
    peer: &'a Certificate,
    others: &'a [Certificate],
    roots: &'a [Root],
    /// The roots.
    pub(super) anchors: Vec<TrustAnchor<'static>>,
    /// The certificates that may be between the peer's and a root.
    pub(super) intermediates: Vec<CertificateDer<'a>>,
    algorithms: Vec<OverOriginals<'a>>,
}

impl<'a> ForLibrary<'a> {
    pub(super) fn new(peer: &'a Certificate, others: &'a [Certificate], roots: &'a [Root]) -> Self {
        let mut originals: Vec<_> = others
            .iter()
            .chain([peer])
            .filter_map(Original::of)
            .collect();
        // Sent twice, a certificate is still verified once.
        originals.sort();
        originals.dedup();
        let originals: Arc<[_]> = originals.into();
        let algorithm = |algorithm: &&'static dyn SignatureVerificationAlgorithm| OverOriginals {
            algorithm: *algorithm,
            originals: Arc::clone(&originals),
        };
        Self {
            peer,
            others,
            roots,
            anchors: roots.iter().map(|root| root.anchor.clone()).collect(),
            intermediates: others
                .iter()
                .map(|other| other.der_for_library().as_ref().into())
                .collect(),
            algorithms: ALL_VERIFICATION_ALGS.iter().map(algorithm).collect(),
        }
    }

    /// All algorithms of signatures.
    pub(super) fn algorithms(&self) -> Vec<&dyn SignatureVerificationAlgorithm> {
        let algorithms = self.algorithms.iter();
        algorithms
            .map(|one| one as &dyn SignatureVerificationAlgorithm)
            .collect()
    }

    /// The certificates of a path, the peer's first and the root last; `None` if one of them is not known here, which
    /// does not happen.
    pub(super) fn path(&self, path: &VerifiedPath<'_>) -> Option<Vec<&'a Certificate>> {
        let mut certificates = vec![self.peer];
        for ca in path.intermediate_certificates() {
            let mut others = self.others.iter();
            certificates.push(others.find(|other| *other.der_for_library() == ca.der())?);
        }
        let root = self
            .anchors
            .iter()
            .position(|anchor| std::ptr::eq(anchor, path.anchor()))?;
        certificates.push(&self.roots.get(root)?.certificate);
        Some(certificates)
    }
}

/// What is signed of a certificate.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Original<'a> {
    for_library: &'a [u8],
    signed: &'a [u8],
}

impl<'a> Original<'a> {
    fn of(certificate: &'a Certificate) -> Option<Self> {
        let (for_library, signed) = certificate.signed_parts()?;
        Some(Self {
            for_library,
            signed,
        })
    }
}

/// An algorithm of rustls-webpki that verifies over the bytes as they were signed.
#[derive(Debug)]
pub(super) struct OverOriginals<'a> {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    originals: Arc<[Original<'a>]>,
}

impl SignatureVerificationAlgorithm for OverOriginals<'_> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let mut is_original = true;
        for original in self
            .originals
            .iter()
            .filter(|one| one.for_library == message)
        {
            self.algorithm
                .verify_signature(public_key, original.signed, signature)?;
            is_original = false;
        }
        // What is no certificate of the peer is a revocation list.
        if is_original {
            self.algorithm
                .verify_signature(public_key, message, signature)?;
        }
        Ok(())
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}
