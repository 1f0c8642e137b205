//! The identity that a peer claims: the types of ID payloads (RFC 7296 3.5), as people write them, and which identity
//! is which.

use std::{error::Error, fmt, net::IpAddr, str::FromStr};

mod distinguished_name;
mod pattern;

pub use distinguished_name::DistinguishedName;
pub(crate) use distinguished_name::{ComparablePart, comparable};
pub use pattern::Pattern;

/// The longest identity that is taken, in bytes: names of directories are longer than all others, and none needs more.
pub const MAX_IDENTITY_LEN: usize = 2048;

const ID_IPV4_ADDR: u8 = 1;
const ID_FQDN: u8 = 2;
const ID_RFC822_ADDR: u8 = 3;
const ID_IPV6_ADDR: u8 = 5;
const ID_DER_ASN1_DN: u8 = 9;
const ID_KEY_ID: u8 = 11;

/// The identity that an ID payload names.
///
/// Two are equal where they name the same: letters of domains and of names in a directory are of either case.
#[derive(Clone, Debug)]
pub enum Identity {
    /// An address of IPv4 or IPv6.
    Address(IpAddr),
    /// A fully qualified domain name.
    Fqdn(String),
    /// A mail address.
    Email(String),
    /// A name in a directory, as certificates have.
    DistinguishedName(DistinguishedName),
    /// Bytes that only the two sides understand.
    KeyId(Vec<u8>),
}

/// Why there is no identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityError {
    /// A type that is not known here.
    UnknownType(u8),
    /// The bytes are none of this type.
    Malformed(u8),
    /// More than [`MAX_IDENTITY_LEN`] bytes.
    TooLong(usize),
    /// The text is no identity.
    Text,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(number) => write!(f, "identities of type {number} are not supported"),
            Self::Malformed(number) => write!(f, "the bytes are no identity of type {number}"),
            Self::TooLong(len) => write!(f, "an identity of {len} bytes is longer than {MAX_IDENTITY_LEN}"),
            Self::Text => f.write_str(
                "this is no identity; write an address, a domain name, a mail address, \"CN=name, O=organization\", or keyid:TEXT",
            ),
        }
    }
}

impl Error for IdentityError {}

impl Identity {
    /// From the type and the data of an ID payload.
    pub fn from_payload(number: u8, data: &[u8]) -> Result<Self, IdentityError> {
        if data.len() > MAX_IDENTITY_LEN {
            return Err(IdentityError::TooLong(data.len()));
        }
        let identity = match number {
            ID_IPV4_ADDR => <[u8; 4]>::try_from(data)
                .ok()
                .map(|octets| Self::Address(octets.into())),
            ID_IPV6_ADDR => <[u8; 16]>::try_from(data)
                .ok()
                .map(|octets| Self::Address(octets.into())),
            ID_FQDN => printable(data).map(Self::Fqdn),
            ID_RFC822_ADDR => printable(data)
                .filter(|text| text.contains('@'))
                .map(Self::Email),
            ID_DER_ASN1_DN => DistinguishedName::from_der(data).map(Self::DistinguishedName),
            ID_KEY_ID => (!data.is_empty()).then(|| Self::KeyId(data.to_vec())),
            _ => return Err(IdentityError::UnknownType(number)),
        };
        identity.ok_or(IdentityError::Malformed(number))
    }

    /// The type and the data of an ID payload.
    pub fn to_payload(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Address(IpAddr::V4(address)) => (ID_IPV4_ADDR, address.octets().to_vec()),
            Self::Address(IpAddr::V6(address)) => (ID_IPV6_ADDR, address.octets().to_vec()),
            Self::Fqdn(name) => (ID_FQDN, name.as_bytes().to_vec()),
            Self::Email(address) => (ID_RFC822_ADDR, address.as_bytes().to_vec()),
            Self::DistinguishedName(name) => (ID_DER_ASN1_DN, name.der().to_vec()),
            Self::KeyId(bytes) => (ID_KEY_ID, bytes.clone()),
        }
    }

    /// A text that is the same for any two identities that are equal: where many are looked up.
    pub(crate) fn index_text(&self) -> String {
        match self {
            Self::Fqdn(name) => bare_domain(name),
            Self::Email(address) => match address.rsplit_once('@') {
                Some((name, domain)) => format!("{name}@{}", bare_domain(domain)),
                None => address.clone(),
            },
            Self::DistinguishedName(name) => name.index_text(),
            Self::Address(_) | Self::KeyId(_) => self.to_string(),
        }
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Address(one), Self::Address(other)) => one == other,
            (Self::Fqdn(one), Self::Fqdn(other)) => same_domain(one, other),
            (Self::Email(one), Self::Email(other)) => same_mailbox(one, other),
            (Self::DistinguishedName(one), Self::DistinguishedName(other)) => one == other,
            (Self::KeyId(one), Self::KeyId(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Identity {}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Fqdn(name) => f.write_str(name),
            Self::Email(address) => f.write_str(address),
            Self::DistinguishedName(name) => name.fmt(f),
            Self::KeyId(bytes) => {
                f.write_str("keyid:0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    /// As a configuration has it: `192.0.2.1`, `vpn.example.org` (or `@vpn`, to be sure), `me@example.org`,
    /// `CN=vpn, O=Example`, `keyid:text` or `keyid:0x00ff`.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let text = text.trim();
        if text.len() > MAX_IDENTITY_LEN {
            return Err(IdentityError::TooLong(text.len()));
        }
        if let Some(key) = text.strip_prefix("keyid:") {
            return key_id(key).map(Self::KeyId).ok_or(IdentityError::Text);
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if text.contains('=') {
            let name = DistinguishedName::from_text(text);
            return name.map(Self::DistinguishedName).ok_or(IdentityError::Text);
        }
        let name = text.strip_prefix('@').unwrap_or(text);
        let printable = printable(name.as_bytes()).ok_or(IdentityError::Text)?;
        Ok(if printable.contains('@') {
            Self::Email(printable)
        } else {
            Self::Fqdn(printable)
        })
    }
}

fn key_id(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix("0x") else {
        return (!text.is_empty()).then(|| text.as_bytes().to_vec());
    };
    let pairs = digits.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| match pair {
        [_, _] if pair.iter().all(u8::is_ascii_hexdigit) => {
            u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()
        }
        _ => None,
    });
    bytes
        .collect::<Option<Vec<u8>>>()
        .filter(|bytes| !bytes.is_empty())
}

/// Text without blanks and control characters, which could forge lines of a log.
fn printable(bytes: &[u8]) -> Option<String> {
    let text = str::from_utf8(bytes).ok()?;
    let hidden = |letter: char| letter.is_control() || letter.is_whitespace();
    (!text.is_empty() && !text.contains(hidden)).then(|| text.to_owned())
}

/// RFC 4343: case does not matter; a dot at the end neither.
fn same_domain(one: &str, other: &str) -> bool {
    bare_domain(one) == bare_domain(other)
}

pub(crate) fn bare_domain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// RFC 5280 7.5: the domain is of either case, what stands before it is not.
fn same_mailbox(one: &str, other: &str) -> bool {
    match (one.rsplit_once('@'), other.rsplit_once('@')) {
        (Some((one, domain)), Some((other, other_domain))) => {
            one == other && same_domain(domain, other_domain)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
