//! The extension name constraints of a CA (RFC 5280 4.2.1.10): which names certificates below it may have.
//!
//! ```text
//!   NameConstraints ─► permitted and excluded subtrees ─► general_name   a name, and whether it lies in a subtree
//! ```
//!
//! rustls-webpki checks those of domain names and addresses and refuses all others that apply. So
//! [`NameConstraints::hide`] turns the subtrees of the forms that are checked here into ones that it lets pass. Each
//! subtree is known here with its place in the certificate: what is hidden is exactly what was read and is checked.

use general_name::tag;
use std::ops::Range;
use x509_cert::der::{Decode, Header, Reader, SliceReader};

mod general_name;

pub(super) use general_name::GeneralName;

/// id-ce-nameConstraints, 2.5.29.30, as an object identifier is encoded.
const OID: [u8; 3] = [0x55, 0x1d, 0x1e];

const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
/// The field `extensions` of a certificate.
const EXTENSIONS: u8 = 0xa3;
const PERMITTED: u8 = 0xa0;
const EXCLUDED: u8 = 0xa1;

/// What a CA permits and excludes.
#[derive(Clone, Default, Debug)]
pub(super) struct NameConstraints {
    subtrees: Vec<Subtree>,
}

/// One subtree of names.
#[derive(Clone, Debug)]
pub(super) struct Subtree {
    /// Whether it is excluded; else it is permitted.
    pub(super) excluded: bool,
    /// The names in it are those that lie in this one.
    pub(super) base: GeneralName,
    /// Where the tag of the base stands in the certificate.
    at: usize,
}

impl NameConstraints {
    /// Those of an encoded certificate, none where it has no such extension; `None` where the extension is malformed,
    /// or a subtree has a minimum or maximum. RFC 5280 4.2.1.10: there MUST be none; where there is one, the
    /// application MUST process it or reject the certificate.
    pub(super) fn of_certificate(der: &[u8]) -> Option<Self> {
        let certificate = only(der, 0..der.len(), SEQUENCE)?;
        let signed = elements(der, certificate)?.into_iter().next()?;
        let mut found = Self::default();
        for field in elements(der, signed.content)? {
            if field.tag != EXTENSIONS {
                continue;
            }
            for extension in elements(der, only(der, field.content, SEQUENCE)?)? {
                let parts = elements(der, extension.content)?;
                if parts.first().map(|id| der.get(id.content.clone())) == Some(Some(&OID[..])) {
                    let value = parts.last().filter(|value| value.tag == OCTET_STRING)?;
                    found.add(der, only(der, value.content.clone(), SEQUENCE)?)?;
                }
            }
        }
        Some(found)
    }

    fn add(&mut self, der: &[u8], extension: Range<usize>) -> Option<()> {
        for list in elements(der, extension)? {
            let excluded = match list.tag {
                PERMITTED => false,
                EXCLUDED => true,
                _ => return None,
            };
            for subtree in elements(der, list.content)? {
                let parts = elements(der, subtree.content)?;
                let ([base], SEQUENCE) = (parts.as_slice(), subtree.tag) else {
                    return None;
                };
                self.subtrees.push(Subtree {
                    excluded,
                    base: GeneralName::from_der(base.tag, der.get(base.content.clone())?)?,
                    at: base.at,
                });
            }
        }
        Some(())
    }

    /// All subtrees.
    pub(super) fn subtrees(&self) -> &[Subtree] {
        &self.subtrees
    }

    /// The certificate that they were read from, such that rustls-webpki takes the subtrees that are checked here for
    /// ones of X.400 addresses, with which no certificate conflicts: names of that form are in none that is read here.
    /// `None` where there are no such subtrees. The length is the same; the signature is over the bytes as they were.
    pub(super) fn hide(&self, der: &[u8]) -> Option<Vec<u8>> {
        let mut hidden = None;
        for subtree in &self.subtrees {
            if subtree.base.is_checked_here() {
                let bytes = hidden.get_or_insert_with(|| der.to_vec());
                *bytes.get_mut(subtree.at)? = tag::X400_ADDRESS;
            }
        }
        hidden
    }
}

/// The content of the only element within, which has to have this tag.
fn only(der: &[u8], within: Range<usize>, tag: u8) -> Option<Range<usize>> {
    match elements(der, within)?.as_slice() {
        [one] if one.tag == tag => Some(one.content.clone()),
        _ => None,
    }
}

/// The elements that stand one behind another within, each of which is complete.
fn elements(der: &[u8], within: Range<usize>) -> Option<Vec<Element>> {
    let begin = within.start;
    let mut reader = SliceReader::new(der.get(within)?).ok()?;
    let mut elements = Vec::new();
    while !reader.is_finished() {
        let at = begin + usize::try_from(reader.position()).ok()?;
        let header = Header::decode(&mut reader).ok()?;
        let content = begin + usize::try_from(reader.position()).ok()?;
        reader.read_slice(header.length()).ok()?;
        elements.push(Element {
            tag: *der.get(at)?,
            at,
            content: content..begin + usize::try_from(reader.position()).ok()?,
        });
    }
    Some(elements)
}

/// An element of DER: the first byte of its tag, where it begins, and its content.
struct Element {
    tag: u8,
    at: usize,
    content: Range<usize>,
}
