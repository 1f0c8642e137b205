//! Names in a directory (X.501), as subjects of certificates and as ID payloads.

use std::{fmt, str::FromStr};
use x509_cert::{
    attr::AttributeTypeAndValue,
    der::{Decode, Encode, Tag, Tagged, asn1::ObjectIdentifier},
    name::{Name, RelativeDistinguishedName},
};

/// A name with its encoding.
#[derive(Clone, Debug)]
pub struct DistinguishedName {
    der: Vec<u8>,
    name: Name,
}

impl DistinguishedName {
    /// From its encoding; `None` where that is no name, or an empty name.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let name = Name::from_der(der).ok()?;
        (!name.is_empty()).then(|| Self {
            der: der.to_vec(),
            name,
        })
    }

    /// From text by RFC 4514 (`CN=vpn,O=Example,C=CH`, the most special part first), or in the order of certificates,
    /// which begins with the country (`C=CH, O=Example, CN=vpn`).
    pub fn from_text(text: &str) -> Option<Self> {
        let parts: Vec<&str> = split(text);
        let country_first = parts.len() > 1 && parts[0].to_ascii_uppercase().starts_with("C=");
        let ordered: Vec<&str> = if country_first {
            parts.into_iter().rev().collect()
        } else {
            parts
        };
        let name = Name::from_str(&ordered.join(",")).ok()?;
        Self::from_der(&name.to_der().ok()?)
    }

    /// Its encoding.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The same for names that are equal: the values as they are compared.
    pub(super) fn index_text(&self) -> String {
        let part = |rdn: &RelativeDistinguishedName| {
            let value = |attribute: &AttributeTypeAndValue| {
                text(attribute).unwrap_or_else(|| format!("{:02x?}", attribute.value.value()))
            };
            let mut values: Vec<_> = rdn.iter().map(value).collect();
            values.sort();
            values.join("+")
        };
        let parts: Vec<_> = self.name.iter_rdn().map(part).collect();
        parts.join(",")
    }
}

/// RFC 5280 7.1: the same parts in the same order; text is compared without regard to case, to blanks at its ends, to
/// how many there are inside, and to which type of string it is.
impl PartialEq for DistinguishedName {
    fn eq(&self, other: &Self) -> bool {
        if self.der == other.der {
            return true;
        }
        comparable(&self.name) == comparable(&other.name)
    }
}

impl Eq for DistinguishedName {}

impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters could forge lines of a log.
        let text = self.name.to_string();
        let shown = text
            .chars()
            .map(|letter| if letter.is_control() { '?' } else { letter });
        f.write_str(&shown.collect::<String>())
    }
}

/// The parts of a name, the country first, such that two that RFC 5280 7.1 calls the same are equal.
pub(crate) fn comparable(name: &Name) -> Vec<ComparablePart> {
    let part = |rdn: &RelativeDistinguishedName| {
        let mut attributes: Vec<_> = rdn.iter().map(comparable_attribute).collect();
        attributes.sort();
        ComparablePart(attributes)
    };
    name.iter_rdn().map(part).collect()
}

/// One part of a name (RelativeDistinguishedName): a set of attributes, in a fixed order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ComparablePart(Vec<(ObjectIdentifier, ComparableValue)>);

fn comparable_attribute(attribute: &AttributeTypeAndValue) -> (ObjectIdentifier, ComparableValue) {
    let value = match text(attribute) {
        Some(text) => ComparableValue::Text(text),
        None => ComparableValue::Other(attribute.value.tag(), attribute.value.value().to_vec()),
    };
    (attribute.oid, value)
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ComparableValue {
    Text(String),
    Other(Tag, Vec<u8>),
}

/// At commas that are not escaped, with blanks around them taken away.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut escaped) = (0, false);
    for (at, letter) in text.char_indices() {
        if letter == ',' && !escaped {
            parts.push(text[begin..at].trim());
            begin = at + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    parts.push(text[begin..].trim());
    parts
}

/// The value as it is compared; `None` for one that is no text.
fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let bytes = attribute.value.value();
    let text = match attribute.value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            str::from_utf8(bytes).ok()?.to_owned()
        }
        Tag::TeletexString => bytes.iter().map(|byte| char::from(*byte)).collect(),
        Tag::BmpString => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            rest.is_empty().then(|| String::from_utf16(&units).ok())??
        }
        _ => return None,
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    Some(words.join(" ").to_lowercase())
}
