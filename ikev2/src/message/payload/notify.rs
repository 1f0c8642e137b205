//! N (RFC 7296 3.10): an error or a status.

use super::super::{
    Malformed,
    reader::Reader,
    writer::{Overflow, count},
};
use super::Protocol;
use std::fmt;

mod names;

pub use names::NotifyType;

/// The least number that is a status and no error.
const FIRST_STATUS: u16 = 16384;

/// One notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notify<'a> {
    /// Whose SPI follows: ESP or AH. Zero without an SPI.
    pub protocol: Protocol,
    /// The child SA that is meant; empty where it is the IKE SA or none.
    pub spi: &'a [u8],
    /// Its type.
    pub kind: NotifyType,
    /// Its data.
    pub data: &'a [u8],
}

impl<'a> Notify<'a> {
    /// A notification that is about no child SA.
    pub fn new(kind: NotifyType, data: &'a [u8]) -> Self {
        Self {
            protocol: Protocol::NONE,
            spi: &[],
            kind,
            data,
        }
    }

    pub(super) fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let [protocol, spi_len] = reader.array("a protocol and the length of an SPI")?;
        let kind = NotifyType::from_number(reader.u16("a notify message type")?);
        let spi = reader.take(
            usize::from(spi_len),
            "as many bytes of SPI as its length says",
        )?;
        let here = reader;
        let notify = Self {
            protocol: Protocol(protocol),
            spi,
            kind,
            data: reader.rest(),
        };
        match kind.data_lens() {
            Some((lens, expected)) if !lens.contains(&notify.data.len()) => {
                Err(here.malformed(expected))
            }
            _ => Ok(notify),
        }
    }

    /// The group in INVALID_KE_PAYLOAD (RFC 7296 1.2).
    pub fn group(&self) -> Option<u16> {
        match (self.kind, self.data) {
            (NotifyType::InvalidKePayload, &[high, low]) => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }

    /// The numbers in SIGNATURE_HASH_ALGORITHMS (RFC 7427 4).
    pub fn hash_algorithms(&self) -> impl Iterator<Item = u16> + 'a {
        let numbers: &[u8] = match self.kind {
            NotifyType::SignatureHashAlgorithms => self.data,
            _ => &[],
        };
        numbers
            .as_chunks::<2>()
            .0
            .iter()
            .map(|number| u16::from_be_bytes(*number))
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<(), Overflow> {
        out.extend([self.protocol.0, count(self.spi.len())?]);
        out.extend(self.kind.number().to_be_bytes());
        out.extend_from_slice(self.spi);
        out.extend_from_slice(self.data);
        Ok(())
    }
}

impl NotifyType {
    /// Whether it reports an error.
    pub fn is_error(self) -> bool {
        self.number() < FIRST_STATUS
    }

    /// How many bytes of data a type that cannot be understood otherwise must have.
    fn data_lens(self) -> Option<(std::ops::RangeInclusive<usize>, &'static str)> {
        match self {
            Self::InvalidKePayload => Some((2..=2, "2 bytes of group number")),
            Self::SetWindowSize => Some((4..=4, "4 bytes of window size")),
            // RFC 7296 2.6.
            Self::Cookie => Some((1..=64, "1 to 64 bytes of cookie")),
            Self::NatDetectionSourceIp | Self::NatDetectionDestinationIp => {
                Some((20..=20, "20 bytes of SHA-1"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for NotifyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "notification {}", self.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_its_own_type_and_names_differ() {
        let mut names: Vec<_> = (0..=u16::MAX)
            .map(NotifyType::from_number)
            .enumerate()
            .inspect(|(number, kind)| assert_eq!(usize::from(kind.number()), *number))
            .filter_map(|(_, kind)| kind.name())
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), count), (87, 87));
    }

    #[test]
    fn errors_are_below_16384() {
        assert!(NotifyType::TsUnacceptable.is_error());
        assert!(!NotifyType::InitialContact.is_error());
    }
}
