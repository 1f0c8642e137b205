//! SA (RFC 7296 3.3): proposals, each a set of transforms.
//!
//! ```text
//!   SA ── proposal 1 ── transform   ENCR, AES-GCM-16 ── attribute   Key Length = 256
//!      │             ├─ transform   PRF, HMAC-SHA2-384
//!      │             └─ transform   KE, Curve25519
//!      └─ proposal 2 ── …
//! ```

use super::super::{
    Malformed,
    number::numbers,
    reader::Reader,
    writer::{Overflow, count, with_length},
};

mod attribute;

pub use attribute::{Attribute, AttributeValue, Attributes};

/// How many transforms all proposals of a payload may have together.
pub const MAX_TRANSFORMS: usize = 1024;

const LAST: u8 = 0;
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;
const PROPOSAL_HEAD_LEN: usize = 8;
const TRANSFORM_HEAD_LEN: usize = 8;

numbers! {
    /// Which protocol an association is for.
    Protocol(u8) {
        NONE = 0, "none";
        IKE = 1, "IKE";
        AH = 2, "AH";
        ESP = 3, "ESP";
        FC_ESP_HEADER = 4, "FC_ESP_HEADER";
        FC_CT_AUTHENTICATION = 5, "FC_CT_AUTHENTICATION";
    }
}

numbers! {
    /// What a transform is for (RFC 7296 3.3.2, RFC 9370).
    TransformType(u8) {
        ENCRYPTION = 1, "encryption";
        PRF = 2, "PRF";
        INTEGRITY = 3, "integrity";
        KEY_EXCHANGE = 4, "key exchange";
        SEQUENCE_NUMBERS = 5, "sequence numbers";
        ADDITIONAL_KEY_EXCHANGE_1 = 6, "additional key exchange 1";
        ADDITIONAL_KEY_EXCHANGE_2 = 7, "additional key exchange 2";
        ADDITIONAL_KEY_EXCHANGE_3 = 8, "additional key exchange 3";
        ADDITIONAL_KEY_EXCHANGE_4 = 9, "additional key exchange 4";
        ADDITIONAL_KEY_EXCHANGE_5 = 10, "additional key exchange 5";
        ADDITIONAL_KEY_EXCHANGE_6 = 11, "additional key exchange 6";
        ADDITIONAL_KEY_EXCHANGE_7 = 12, "additional key exchange 7";
    }
}

/// What is proposed, the preferred first; in an answer the one that was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecurityAssociation<'a> {
    /// INVARIANT of what was read: at least one, and numbers that grow by one.
    pub proposals: Vec<Proposal<'a>>,
}

/// One proposal: of each type of transform exactly one is to be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal<'a> {
    /// Its number: 1 for the first that is offered, that of the chosen one in an answer.
    pub number: u8,
    /// The protocol.
    pub protocol: Protocol,
    /// The sender's SPI: 4 bytes for ESP and AH; 8 for IKE in a rekey, else none.
    pub spi: &'a [u8],
    /// The transforms, the preferred one of each type first.
    pub transforms: Vec<Transform<'a>>,
}

/// One algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transform<'a> {
    /// What it is for.
    pub kind: TransformType,
    /// Its number among those of its type.
    pub id: u16,
    /// Mostly the length of its key, where that is not fixed.
    pub attributes: Attributes<'a>,
}

impl<'a> SecurityAssociation<'a> {
    pub(super) fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let mut proposals: Vec<Proposal<'a>> = Vec::new();
        let mut transforms_left = MAX_TRANSFORMS;
        loop {
            let here = reader;
            let last = reader.u8("a proposal")?;
            reader.u8("a reserved byte")?;
            let len = usize::from(reader.u16("the proposal's length")?);
            let body = reader.part(
                len.saturating_sub(4),
                "as many bytes as the proposal's length says",
            )?;
            let proposal = Proposal::parse(body, transforms_left)?;
            // RFC 7296 3.3.1: the first is number 1, each one more than the one before. An answer keeps the chosen
            // number.
            let before = proposals.last().map(|before| before.number);
            if before.is_some_and(|before| before.checked_add(1) != Some(proposal.number)) {
                return Err(here.malformed("a proposal number one above the last"));
            }
            transforms_left -= proposal.transforms.len();
            proposals.push(proposal);
            match (last, reader.is_empty()) {
                (LAST, true) => return Ok(Self { proposals }),
                (MORE_PROPOSALS, false) => {}
                _ => {
                    return Err(
                        here.malformed("2 in front of all proposals but the last, and 0 there")
                    );
                }
            }
        }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<(), Overflow> {
        let mut left = self.proposals.len();
        for proposal in &self.proposals {
            left -= 1;
            let last = if left == 0 { LAST } else { MORE_PROPOSALS };
            with_length(out, |out| proposal.emit(last, out))?;
        }
        Ok(())
    }
}

impl<'a> Proposal<'a> {
    /// Reads what is behind the length.
    fn parse(mut reader: Reader<'a>, at_most: usize) -> Result<Self, Malformed> {
        let here = reader;
        let head = reader.array("number, protocol, SPI length and number of transforms")?;
        let [number, protocol, spi_len, transform_count] = head;
        let protocol = Protocol(protocol);
        if !spi_fits(protocol, spi_len) {
            return Err(here.malformed("an SPI of 4 bytes for ESP and AH, of 0 or 8 for IKE"));
        }
        if usize::from(transform_count) > at_most {
            return Err(here.malformed("at most 1024 transforms in all proposals"));
        }
        let spi = reader.take(usize::from(spi_len), "an SPI")?;
        let mut transforms = Vec::with_capacity(usize::from(transform_count));
        for left in (0..transform_count).rev() {
            transforms.push(Transform::parse(&mut reader, left)?);
        }
        if transforms.is_empty() || !reader.is_empty() {
            return Err(reader.malformed("as many transforms as were counted, at least one"));
        }
        Ok(Self {
            number,
            protocol,
            spi,
            transforms,
        })
    }

    fn emit(&self, last: u8, out: &mut Vec<u8>) -> Result<(), Overflow> {
        let (spi_len, transforms) = (count(self.spi.len())?, count(self.transforms.len())?);
        let head: [u8; PROPOSAL_HEAD_LEN] = [
            last,
            0,
            0,
            0,
            self.number,
            self.protocol.0,
            spi_len,
            transforms,
        ];
        out.extend(head);
        out.extend_from_slice(self.spi);
        for (transform, left) in self.transforms.iter().zip((0..transforms).rev()) {
            with_length(out, |out| {
                transform.emit(if left == 0 { LAST } else { MORE_TRANSFORMS }, out);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The transforms of one type, the preferred first.
    pub fn of_type(&self, kind: TransformType) -> impl Iterator<Item = &Transform<'a>> {
        self.transforms
            .iter()
            .filter(move |transform| transform.kind == kind)
    }
}

/// RFC 7296 3.3.1.
fn spi_fits(protocol: Protocol, len: u8) -> bool {
    match protocol {
        Protocol::IKE => matches!(len, 0 | 8),
        Protocol::AH | Protocol::ESP => len == 4,
        _ => true,
    }
}

impl<'a> Transform<'a> {
    /// Reads one of which `left` more follow.
    fn parse(reader: &mut Reader<'a>, left: u8) -> Result<Self, Malformed> {
        let here = *reader;
        let [last, _] = reader.array("a transform")?;
        if last != if left == 0 { LAST } else { MORE_TRANSFORMS } {
            return Err(here.malformed("3 in front of all transforms but the last, and 0 there"));
        }
        let len = usize::from(reader.u16("the transform's length")?);
        let mut body = reader.part(
            len.saturating_sub(4),
            "as many bytes as the transform's length says",
        )?;
        let [kind, _] = body.array("a type of transform")?;
        let id = body.u16("a transform ID")?;
        Ok(Self {
            kind: TransformType(kind),
            id,
            attributes: Attributes::parse(body)?,
        })
    }

    fn emit(&self, last: u8, out: &mut Vec<u8>) {
        let [high, low] = self.id.to_be_bytes();
        let head: [u8; TRANSFORM_HEAD_LEN] = [last, 0, 0, 0, self.kind.0, 0, high, low];
        out.extend(head);
        self.attributes.emit(out);
    }
}
