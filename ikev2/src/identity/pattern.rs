//! The identity that a connection expects of its peer.

use super::{Identity, IdentityError, same_domain};
use std::{fmt, str::FromStr};

/// What the identity of a peer has to be.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Pattern {
    /// Any identity that the rest of the connection admits.
    Any,
    /// This one.
    Exactly(Identity),
    /// `*.example.org`: a domain name with exactly one label more.
    UnderDomain(String),
    /// `*@example.org`: a mail address of this domain.
    AtDomain(String),
}

impl Pattern {
    /// Whether `identity` is expected.
    pub fn matches(&self, identity: &Identity) -> bool {
        match (self, identity) {
            (Self::Any, _) => true,
            (Self::Exactly(expected), identity) => expected == identity,
            (Self::UnderDomain(domain), Identity::Fqdn(name)) => {
                let parts = name.split_once('.');
                parts.is_some_and(|(label, rest)| !label.is_empty() && same_domain(rest, domain))
            }
            (Self::AtDomain(domain), Identity::Email(address)) => {
                let parts = address.rsplit_once('@');
                parts.is_some_and(|(name, rest)| !name.is_empty() && same_domain(rest, domain))
            }
            _ => false,
        }
    }
}

impl FromStr for Pattern {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let text = text.trim();
        if text == "any" {
            return Ok(Self::Any);
        }
        let domain = |rest: &str| match rest.parse()? {
            Identity::Fqdn(name) if !name.contains('*') => Ok(name),
            _ => Err(IdentityError::Text),
        };
        if let Some(rest) = text.strip_prefix("*.") {
            return domain(rest).map(Self::UnderDomain);
        }
        if let Some(rest) = text.strip_prefix("*@") {
            return domain(rest).map(Self::AtDomain);
        }
        match text.parse()? {
            // A wildcard in another place has no meaning here and could be mistaken for one that matches.
            Identity::Fqdn(name) | Identity::Email(name) if name.contains('*') => {
                Err(IdentityError::Text)
            }
            identity => Ok(Self::Exactly(identity)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Exactly(identity) => identity.fmt(f),
            Self::UnderDomain(domain) => write!(f, "*.{domain}"),
            Self::AtDomain(domain) => write!(f, "*@{domain}"),
        }
    }
}
