//! Attributes of a transform (RFC 7296 3.3.5): so far only the length of a key.

use super::super::super::{Malformed, reader::Reader};

/// How many attributes one transform may have.
const MAX_ATTRIBUTES: usize = 16;
/// The bit that is set before a value of two bytes, and clear before a length that a value follows.
const SHORT_FORMAT: u16 = 0x8000;
const KEY_LENGTH: u16 = 14;

/// All attributes of one transform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attributes<'a> {
    /// None.
    None,
    /// The length of the key in bits, and nothing else.
    KeyLength(u16),
    /// Others: the transform cannot be chosen (RFC 7296 3.3.6).
    Other(OtherAttributes<'a>),
}

/// Attributes as they travel. INVARIANT: whole ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherAttributes<'a>(&'a [u8]);

/// One attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// What it is about. 15 bits.
    pub kind: u16,
    /// Its value.
    pub value: AttributeValue<'a>,
}

/// The value of an attribute, in one of two formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttributeValue<'a> {
    /// Type and value (TV): two bytes.
    Short(u16),
    /// Type, length and value (TLV).
    Long(&'a [u8]),
}

impl<'a> Attributes<'a> {
    pub(super) fn parse(reader: Reader<'a>) -> Result<Self, Malformed> {
        let (mut rest, mut count, mut first) = (reader, 0, None);
        while !rest.is_empty() {
            if count == MAX_ATTRIBUTES {
                return Err(rest.malformed("at most 16 attributes"));
            }
            let attribute = Attribute::parse(&mut rest)?;
            first.get_or_insert(attribute);
            count += 1;
        }
        Ok(match (first, count) {
            (None, _) => Self::None,
            (
                Some(Attribute {
                    kind: KEY_LENGTH,
                    value: AttributeValue::Short(bits),
                }),
                1,
            ) => Self::KeyLength(bits),
            _ => Self::Other(OtherAttributes(reader.rest())),
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::KeyLength(bits) => {
                out.extend((SHORT_FORMAT | KEY_LENGTH).to_be_bytes());
                out.extend(bits.to_be_bytes());
            }
            Self::Other(OtherAttributes(bytes)) => out.extend_from_slice(bytes),
        }
    }
}

impl<'a> OtherAttributes<'a> {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Attribute<'a>> {
        let location = super::super::super::Location::Header;
        let mut rest = Reader::new(self.0, 0, location);
        std::iter::from_fn(move || Attribute::parse(&mut rest).ok())
    }
}

impl<'a> Attribute<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let kind = reader.u16("an attribute")?;
        let second = reader.u16("the value or length of an attribute")?;
        let value = if kind & SHORT_FORMAT != 0 {
            AttributeValue::Short(second)
        } else {
            let value = reader.take(
                usize::from(second),
                "as many bytes as the attribute's length says",
            )?;
            AttributeValue::Long(value)
        };
        Ok(Self {
            kind: kind & !SHORT_FORMAT,
            value,
        })
    }
}
