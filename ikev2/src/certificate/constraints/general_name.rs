//! A name of a certificate, or of a subtree that its CA constrains names to, and whether the one lies in the other.

use crate::identity::{ComparablePart, DistinguishedName, bare_domain, comparable};
use std::{fmt, net::IpAddr};
use x509_cert::{
    der::{Decode, Encode},
    ext::pkix::name::GeneralName as Encoded,
    name::Name,
};

/// The tags of the forms of names in DER.
pub(super) mod tag {
    pub(super) const OTHER_NAME: u8 = 0xa0;
    pub(super) const MAIL: u8 = 0x81;
    pub(super) const DNS: u8 = 0x82;
    pub(in super::super) const X400_ADDRESS: u8 = 0xa3;
    pub(super) const DIRECTORY: u8 = 0xa4;
    pub(super) const EDI_PARTY: u8 = 0xa5;
    pub(super) const URI: u8 = 0x86;
    pub(super) const ADDRESS: u8 = 0x87;
    pub(super) const REGISTERED_ID: u8 = 0x88;
}

/// A name, or the base of a subtree of names, by its form.
#[derive(Clone, Debug)]
pub(in crate::certificate) enum GeneralName {
    /// A name in a directory: its parts as they are compared, and for people.
    Directory(Vec<ComparablePart>, String),
    /// A mail address; as a base also a host or, behind a dot, a domain. `None`: not readable.
    Mail(Option<String>),
    /// A URI; as a base a host or, behind a dot, a domain.
    Uri(String),
    /// A domain name.
    Dns(String),
    /// The octets of an address; as a base with those of a mask behind them.
    Address(Vec<u8>),
    /// Another form, by its tag: not compared.
    Other(u8),
}

impl GeneralName {
    /// The base of a subtree, from its tag and content; `None` where the content does not fit the tag.
    pub(super) fn from_der(tag: u8, content: &[u8]) -> Option<Self> {
        let text = || {
            let text = str::from_utf8(content).ok()?;
            text.is_ascii().then(|| text.to_owned())
        };
        Some(match tag {
            tag::DIRECTORY => Self::directory(&Name::from_der(content).ok()?),
            tag::MAIL => Self::Mail(Some(text()?)),
            tag::URI => Self::Uri(text()?),
            tag::DNS => Self::Dns(text()?),
            tag::ADDRESS => Self::Address(content.to_vec()),
            other => Self::Other(other),
        })
    }

    /// A name in a directory.
    pub(in crate::certificate) fn directory(name: &Name) -> Self {
        let readable = name.to_der().ok();
        let readable = readable.and_then(|der| DistinguishedName::from_der(&der));
        let readable = readable.map_or_else(|| "(empty)".to_owned(), |name| name.to_string());
        Self::Directory(comparable(name), readable)
    }

    /// Whether subtrees of its form are checked here, and not by rustls-webpki.
    pub(in crate::certificate) fn is_checked_here(&self) -> bool {
        matches!(self, Self::Directory(..) | Self::Mail(_) | Self::Uri(_))
    }

    /// Whether it is of the form of the other.
    pub(in crate::certificate) fn has_form_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Other(one), Self::Other(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Whether it lies in the subtree of this base; `None` where they cannot be compared.
    pub(in crate::certificate) fn lies_in(&self, base: &Self) -> Option<bool> {
        match (self, base) {
            // RFC 5280 4.2.1.10 and 7.1: the base is the beginning of the name.
            (Self::Directory(name, _), Self::Directory(base, _)) => Some(name.starts_with(base)),
            (Self::Mail(name), Self::Mail(base)) => mail_lies_in(name.as_ref()?, base.as_ref()?),
            // RFC 5280 4.2.1.10: a URI without a fully qualified domain name MUST be rejected.
            (Self::Uri(name), Self::Uri(base)) => host_lies_in(host_of_uri(name)?, base),
            (Self::Dns(name), Self::Dns(base)) => Some(domain_lies_in(name, base)),
            (Self::Address(octets), Self::Address(base)) => address_lies_in(octets, base),
            _ => None,
        }
    }
}

impl From<&Encoded> for GeneralName {
    fn from(name: &Encoded) -> Self {
        match name {
            Encoded::DirectoryName(name) => Self::directory(name),
            Encoded::Rfc822Name(address) => Self::Mail(Some(address.as_str().to_owned())),
            Encoded::UniformResourceIdentifier(uri) => Self::Uri(uri.as_str().to_owned()),
            Encoded::DnsName(name) => Self::Dns(name.as_str().to_owned()),
            Encoded::IpAddress(octets) => Self::Address(octets.as_bytes().to_vec()),
            Encoded::OtherName(_) => Self::Other(tag::OTHER_NAME),
            Encoded::EdiPartyName(_) => Self::Other(tag::EDI_PARTY),
            Encoded::RegisteredId(_) => Self::Other(tag::REGISTERED_ID),
        }
    }
}

impl fmt::Display for GeneralName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters could forge lines of a log.
        let readable = |text: &str| text.replace(|letter: char| letter.is_control(), "?");
        match self {
            Self::Directory(_, name) => f.write_str(name),
            Self::Mail(Some(address)) => write!(f, "mail address {}", readable(address)),
            Self::Mail(None) => f.write_str("a mail address that is no text"),
            Self::Uri(uri) => write!(f, "URI {}", readable(uri)),
            Self::Dns(name) => write!(f, "domain name {}", readable(name)),
            Self::Address(octets) => {
                f.write_str("address ")?;
                address(f, octets)
            }
            Self::Other(tag::OTHER_NAME) => f.write_str("otherName"),
            Self::Other(tag::X400_ADDRESS) => f.write_str("x400Address"),
            Self::Other(tag::EDI_PARTY) => f.write_str("ediPartyName"),
            Self::Other(tag::REGISTERED_ID) => f.write_str("registeredID"),
            Self::Other(tag) => write!(f, "a name of tag {tag:#04x}"),
        }
    }
}

/// RFC 5280 4.2.1.10: the base is a mailbox, a host, or a domain behind a dot, in whose hosts the mailbox is. RFC 5280
/// 7.5: the case of the domain does not matter, that of what stands before it does.
fn mail_lies_in(address: &str, base: &str) -> Option<bool> {
    let (user, host) = address.rsplit_once('@')?;
    if user.is_empty() || user.contains('@') || !is_domain(host) {
        return None;
    }
    match base.rsplit_once('@') {
        Some((base_user, base_host)) if !base_user.is_empty() && !base_host.starts_with('.') => {
            Some(host_lies_in(host, base_host)? && user == base_user)
        }
        Some(_) => None,
        None => host_lies_in(host, base),
    }
}

/// Whether a host is this one, or one in the domain that stands behind a dot (one label longer or more).
fn host_lies_in(host: &str, base: &str) -> Option<bool> {
    let (host, base) = (bare_domain(host), bare_domain(base));
    let domain = base.strip_prefix('.');
    is_domain(domain.unwrap_or(&base)).then(|| match domain {
        Some(_) => host.ends_with(&base),
        None => host == base,
    })
}

/// Labels of letters, digits and hyphens, and of underscores, which occur too; a dot may be at the end.
fn is_domain(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let mut labels = name.strip_suffix('.').unwrap_or(name).split('.');
    labels.all(|label| !label.is_empty() && label.bytes().all(letter))
}

/// The host of a URI (RFC 3986 3.2.2), if that is a fully qualified domain name: of more labels than one, the last of
/// which does not begin with a digit, as that of an address does.
fn host_of_uri(uri: &str) -> Option<&str> {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    if !uri.bytes().all(allowed) {
        return None;
    }
    let (scheme, rest) = uri.split_once(':')?;
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if scheme.is_empty() || !scheme.bytes().all(of_scheme) {
        return None;
    }
    let authority = rest.strip_prefix("//")?.split(['/', '?', '#']).next()?;
    let host = match authority.split_once('@') {
        Some((_, host)) => host,
        None => authority,
    };
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let (_, last) = bare(host).rsplit_once('.')?;
    let is_name = is_domain(host) && !last.starts_with(|letter: char| letter.is_ascii_digit());
    (is_name && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(host)
}

fn bare(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// As rustls-webpki judges, which has refused already: a domain and all below it.
fn domain_lies_in(name: &str, base: &str) -> bool {
    let (name, base) = (bare_domain(name), bare_domain(base));
    match name.strip_suffix(&base) {
        Some(before) => {
            base.is_empty() || base.starts_with('.') || before.is_empty() || before.ends_with('.')
        }
        None => false,
    }
}

/// As rustls-webpki judges, which has refused already.
fn address_lies_in(octets: &[u8], base: &[u8]) -> Option<bool> {
    let (network, mask) = base.split_at_checked(octets.len())?;
    let bits = octets.iter().zip(network).zip(mask);
    let same = |((one, other), mask): ((&u8, &u8), &u8)| (one ^ other) & mask == 0;
    (mask.len() == octets.len()).then(|| bits.into_iter().all(same))
}

/// An address, or a network with its mask.
fn address(f: &mut fmt::Formatter<'_>, octets: &[u8]) -> fmt::Result {
    let one = |octets: &[u8]| match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
    };
    let (network, mask) = octets.split_at(octets.len() / 2);
    match (one(octets), one(network), one(mask)) {
        // 16 octets are both an address of IPv6 and a network of 8 octets, which there is not.
        (Some(address), ..) => write!(f, "{address}"),
        (None, Some(network), Some(mask)) => write!(f, "{network}/{mask}"),
        _ => write!(f, "of {} octets", octets.len()),
    }
}
