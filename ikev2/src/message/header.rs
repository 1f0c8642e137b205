//! The IKE header (RFC 7296 3.1).

use super::{Location, Malformed, PayloadType, Refusal, number::numbers};

/// Bytes of the header.
pub const HEADER_LEN: usize = 28;

const MAJOR_VERSION: u8 = 2;
const MINOR_VERSION: u8 = 0;

/// The SPI of one end of an IKE SA: never zero, but for the responder's in the first request.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
pub struct IkeSpi(pub [u8; 8]);

impl IkeSpi {
    /// Not chosen yet.
    pub const ZERO: Self = Self([0; 8]);
}

numbers! {
    /// Which exchange a message belongs to.
    ExchangeType(u8) {
        IKE_SA_INIT = 34, "IKE_SA_INIT";
        IKE_AUTH = 35, "IKE_AUTH";
        CREATE_CHILD_SA = 36, "CREATE_CHILD_SA";
        INFORMATIONAL = 37, "INFORMATIONAL";
        IKE_SESSION_RESUME = 38, "IKE_SESSION_RESUME";
        IKE_INTERMEDIATE = 43, "IKE_INTERMEDIATE";
        IKE_FOLLOWUP_KE = 44, "IKE_FOLLOWUP_KE";
    }
}

/// The flags that are defined; the other bits are ignored when read and zero when sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// Sent by the original initiator of the IKE SA.
    pub initiator: bool,
    /// The sender supports a higher major version.
    pub version: bool,
    /// A response, with the message ID of its request.
    pub response: bool,
}

impl Flags {
    const INITIATOR: u8 = 0x08;
    const VERSION: u8 = 0x10;
    const RESPONSE: u8 = 0x20;

    fn parse(bits: u8) -> Self {
        Self {
            initiator: bits & Self::INITIATOR != 0,
            version: bits & Self::VERSION != 0,
            response: bits & Self::RESPONSE != 0,
        }
    }

    fn bits(self) -> u8 {
        let bit = |set, bit| if set { bit } else { 0 };
        bit(self.initiator, Self::INITIATOR)
            | bit(self.version, Self::VERSION)
            | bit(self.response, Self::RESPONSE)
    }
}

/// A header of major version 2, without the type of the first payload and without the length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The original initiator's SPI.
    pub initiator_spi: IkeSpi,
    /// The original responder's SPI.
    pub responder_spi: IkeSpi,
    /// The exchange.
    pub exchange: ExchangeType,
    /// The flags.
    pub flags: Flags,
    /// Matches responses to requests and identifies retransmissions.
    pub message_id: u32,
}

impl Header {
    /// Reads the header in front of `message`, which is one whole datagram without the non-ESP marker, and the type of
    /// the first payload.
    pub fn parse(message: &[u8]) -> Result<(Self, PayloadType), Refusal> {
        let malformed = |offset, expected| {
            Refusal::Malformed(Malformed {
                location: Location::Header,
                offset,
                expected,
            })
        };
        let Some((fixed, _)) = message.split_first_chunk::<HEADER_LEN>() else {
            return Err(malformed(message.len(), "28 bytes of header"));
        };
        let [
            i0,
            i1,
            i2,
            i3,
            i4,
            i5,
            i6,
            i7,
            r0,
            r1,
            r2,
            r3,
            r4,
            r5,
            r6,
            r7,
            next,
            version,
            exchange,
            flags,
            ref rest @ ..,
        ] = *fixed;
        let [m0, m1, m2, m3, l0, l1, l2, l3] = *rest;
        // RFC 7296 3.1: messages of a higher major version are rejected, the minor version is ignored.
        if version >> 4 != MAJOR_VERSION {
            return Err(Refusal::MajorVersion(version >> 4));
        }
        if u32::from_be_bytes([l0, l1, l2, l3]) as usize != message.len() {
            return Err(malformed(24, "the length of the whole message"));
        }
        let header = Self {
            initiator_spi: IkeSpi([i0, i1, i2, i3, i4, i5, i6, i7]),
            responder_spi: IkeSpi([r0, r1, r2, r3, r4, r5, r6, r7]),
            exchange: ExchangeType(exchange),
            flags: Flags::parse(flags),
            message_id: u32::from_be_bytes([m0, m1, m2, m3]),
        };
        Ok((header, PayloadType(next)))
    }

    /// The header of a message that is `message_len` bytes long in all and begins with a payload of type `first`.
    pub fn emit(&self, first: PayloadType, message_len: u32) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&self.initiator_spi.0);
        header[8..16].copy_from_slice(&self.responder_spi.0);
        header[16] = first.0;
        header[17] = MAJOR_VERSION << 4 | MINOR_VERSION;
        header[18] = self.exchange.0;
        header[19] = self.flags.bits();
        header[20..24].copy_from_slice(&self.message_id.to_be_bytes());
        header[24..].copy_from_slice(&message_len.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            initiator_spi: IkeSpi([1, 2, 3, 4, 5, 6, 7, 8]),
            responder_spi: IkeSpi::ZERO,
            exchange: ExchangeType::IKE_SA_INIT,
            flags: Flags {
                initiator: true,
                ..Flags::default()
            },
            message_id: 0,
        }
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let header = header();
        let bytes = header.emit(PayloadType::SECURITY_ASSOCIATION, 28);
        assert_eq!(bytes[16..20], [33, 0x20, 34, 0x08]);
        assert_eq!(
            Header::parse(&bytes),
            Ok((header, PayloadType::SECURITY_ASSOCIATION))
        );
    }

    #[test]
    fn reserved_flags_and_the_minor_version_are_ignored() {
        let mut bytes = header().emit(PayloadType::SECURITY_ASSOCIATION, 28);
        bytes[17] |= 0x0f;
        bytes[19] |= 0xc7;
        assert_eq!(
            Header::parse(&bytes),
            Ok((header(), PayloadType::SECURITY_ASSOCIATION))
        );
    }

    #[test]
    fn another_major_version_is_named() {
        let mut bytes = header().emit(PayloadType::SECURITY_ASSOCIATION, 28);
        for version in [0, 1, 3, 15] {
            bytes[17] = version << 4;
            assert_eq!(Header::parse(&bytes), Err(Refusal::MajorVersion(version)));
        }
    }

    #[test]
    fn every_wrong_length_is_malformed() {
        let bytes = header().emit(PayloadType::SECURITY_ASSOCIATION, 28);
        for len in 0..28 {
            assert!(matches!(
                Header::parse(&bytes[..len]),
                Err(Refusal::Malformed(_))
            ));
        }
        for stated in [0, 27, 29, u32::MAX] {
            assert!(matches!(
                Header::parse(&header().emit(PayloadType::NONE, stated)),
                Err(Refusal::Malformed(_))
            ));
        }
    }
}
