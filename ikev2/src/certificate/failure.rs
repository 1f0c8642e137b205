//! Which check of which certificate failed, for the administrator who has to correct it.

use super::Certificate;
use crate::signatures::PublicKeyError;
use std::{error::Error, fmt};

/// A certificate that was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The subject of the certificate.
    pub certificate: String,
    /// What it did not pass.
    pub check: Check,
}

/// A check that a certificate did not pass. Times are in seconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Check {
    /// The peer sent none.
    None,
    /// The peer sent more than are looked at.
    TooMany(usize),
    /// Its key is of a kind that is not used here.
    Key(PublicKeyError),
    /// It does not name the identity that the peer claims.
    Identity {
        /// What the peer claims.
        claimed: String,
        /// What the certificate names.
        named: Vec<String>,
    },
    /// Its key may not sign messages (key usage), or, for a CA, not certificates.
    KeyUsage {
        /// Whether it is above another certificate.
        as_ca: bool,
    },
    /// Its purposes (extended key usage) have none that IKE takes.
    Purpose,
    /// It is not valid yet.
    NotYetValid {
        /// When it will be.
        from: u64,
    },
    /// It is not valid any more.
    Expired {
        /// Until when it was.
        until: u64,
    },
    /// Its CA has revoked it.
    Revoked,
    /// No revocation list covers it, and one is required.
    RevocationUnknown,
    /// The revocation list that covers it is too old, and a current one is required.
    RevocationListExpired,
    /// It signed another certificate without being a CA.
    NotCa,
    /// The peer's own certificate is that of a CA.
    IsCa,
    /// More CAs are below it than it allows.
    PathLength,
    /// The name constraints of a CA above it do not allow a name of it (RFC 5280 4.2.1.10).
    NameConstraint {
        /// The name.
        name: String,
        /// The subject of the CA.
        ca: String,
        /// What the CA demands.
        rule: NameRule,
    },
    /// It has a critical extension that is not known here.
    CriticalExtension,
    /// It is signed by an algorithm that is not taken, such as SHA-1.
    SignatureAlgorithm,
    /// Its signature was not made by its issuer.
    Signature,
    /// Neither the peer nor this side has its issuer's certificate.
    UnknownIssuer {
        /// The issuer.
        issuer: String,
    },
    /// The peer's certificates can be put together in more ways than are tried.
    TooComplex,
    /// Another error: the library's message.
    Other(String),
}

/// How the name constraints of a CA forbid a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameRule {
    /// They permit names of its form in these subtrees alone.
    PermitOnly(String),
    /// They exclude this subtree, in which it lies.
    Exclude(String),
    /// They have this subtree of its form, and whether the name lies in it cannot be told.
    CannotBeCompared(String),
}

impl Failure {
    /// The certificate at `index` did not pass `check`.
    pub(super) fn at(chain: &[Certificate], index: usize, check: Check) -> Self {
        let subject = chain.get(index).map(Certificate::subject);
        Self {
            certificate: subject.unwrap_or_default(),
            check,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Check::None | Check::TooMany(_) | Check::TooComplex = self.check {
            return self.check.fmt(f);
        }
        write!(f, "the certificate of {}: {}", self.certificate, self.check)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::None => "the peer sent no certificate",
            Self::TooMany(number) => {
                return write!(
                    f,
                    "the peer sent {number} certificates, more than are looked at"
                );
            }
            Self::Key(error) => return error.fmt(f),
            Self::Identity { claimed, named } => {
                let named = named.join("; ");
                return write!(
                    f,
                    "it does not name {claimed}, the identity that the peer claims; it names {named}"
                );
            }
            Self::KeyUsage { as_ca: false } => {
                "its key usage allows no signatures (digitalSignature is missing)"
            }
            Self::KeyUsage { as_ca: true } => {
                "its key usage allows no signing of certificates (keyCertSign is missing)"
            }
            Self::Purpose => {
                "its extended key usage has neither ipsecIKE nor serverAuth nor clientAuth"
            }
            Self::NotYetValid { .. } => "it is not valid yet; do the clocks of both sides agree?",
            Self::Expired { .. } => "it has expired",
            Self::Revoked => "it is revoked",
            Self::RevocationUnknown => {
                "no revocation list covers it, and the configuration demands one"
            }
            Self::RevocationListExpired => {
                "the revocation list that covers it has expired; fetch a new one"
            }
            Self::NotCa => "it signed another certificate but is no CA",
            Self::IsCa => "it is a CA's and no peer's",
            Self::PathLength => "it stands above more CAs than a path length constraint allows",
            Self::NameConstraint { name, ca, rule } => {
                return write!(f, "the name constraints of {ca} {rule} its name {name}");
            }
            Self::CriticalExtension => "it has a critical extension that is not supported",
            Self::SignatureAlgorithm => {
                "it is signed by an algorithm that is not supported or too weak"
            }
            Self::Signature => "its signature does not verify",
            Self::UnknownIssuer { issuer } => {
                return write!(
                    f,
                    "its issuer {issuer} is neither trusted here nor among the peer's certificates"
                );
            }
            Self::TooComplex => "the peer's certificates can be put together in too many ways",
            Self::Other(words) => words,
        };
        f.write_str(words)
    }
}

impl fmt::Display for NameRule {
    /// In a sentence, before the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PermitOnly(subtrees) => write!(f, "permit only {subtrees}, not"),
            Self::Exclude(subtree) => write!(f, "exclude {subtree}, and so"),
            Self::CannotBeCompared(subtree) => {
                write!(f, "have {subtree}, which cannot be compared with")
            }
        }
    }
}

impl Error for Failure {}
