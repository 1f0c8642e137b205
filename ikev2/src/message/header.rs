//! The IKE header (RFC 7296 3.1).

use super::{Malformed, PayloadType, Place};

/// Bytes of the header.
pub const HEADER_LEN: usize = 28;

const MAJOR_VERSION: u8 = 2;
const MINOR_VERSION: u8 = 0;

/// The SPI of one end of an IKE SA: never zero, but for the responder's in the first request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct IkeSpi(pub [u8; 8]);

impl IkeSpi {
    /// Not chosen yet.
    pub const ZERO: Self = Self([0; 8]);
}

/// Which exchange a message belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExchangeType(pub u8);

impl ExchangeType {
    /// IKE_SA_INIT: algorithms, nonces, key exchange.
    pub const IKE_SA_INIT: Self = Self(34);
    /// IKE_AUTH: identities and the first child SA.
    pub const IKE_AUTH: Self = Self(35);
    /// CREATE_CHILD_SA: another child SA, or a rekey.
    pub const CREATE_CHILD_SA: Self = Self(36);
    /// INFORMATIONAL: deletes, notifications, liveness.
    pub const INFORMATIONAL: Self = Self(37);
    /// IKE_SESSION_RESUME (RFC 5723).
    pub const IKE_SESSION_RESUME: Self = Self(38);
    /// IKE_INTERMEDIATE (RFC 9242).
    pub const IKE_INTERMEDIATE: Self = Self(43);
    /// IKE_FOLLOWUP_KE (RFC 9370).
    pub const IKE_FOLLOWUP_KE: Self = Self(44);
}

/// The flags that are defined; the other bits are ignored when read and zero when sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// Sent by the original initiator of the IKE SA.
    pub initiator: bool,
    /// The sender could speak a higher major version.
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

/// A header of major version 2. The length is that of the message, and is computed when it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The original initiator's SPI.
    pub initiator_spi: IkeSpi,
    /// The original responder's SPI.
    pub responder_spi: IkeSpi,
    /// The type of the first payload.
    pub next_payload: PayloadType,
    /// The exchange.
    pub exchange: ExchangeType,
    /// The flags.
    pub flags: Flags,
    /// Matches responses to requests and tells retransmissions.
    pub message_id: u32,
}

/// Why bytes have no header that is understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Another major version: a request is answered by INVALID_MAJOR_VERSION (RFC 7296 2.5).
    MajorVersion(u8),
    /// Too short, or the length in it is not that of the message.
    Malformed(Malformed),
}

impl Header {
    /// Reads the header in front of `message`, which is one whole datagram, without the non-ESP marker.
    pub fn parse(message: &[u8]) -> Result<Self, HeaderError> {
        let malformed = |offset, expected| {
            HeaderError::Malformed(Malformed {
                place: Place::Header,
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
            return Err(HeaderError::MajorVersion(version >> 4));
        }
        if u32::from_be_bytes([l0, l1, l2, l3]) as usize != message.len() {
            return Err(malformed(24, "the length of the whole message"));
        }
        Ok(Self {
            initiator_spi: IkeSpi([i0, i1, i2, i3, i4, i5, i6, i7]),
            responder_spi: IkeSpi([r0, r1, r2, r3, r4, r5, r6, r7]),
            next_payload: PayloadType(next),
            exchange: ExchangeType(exchange),
            flags: Flags::parse(flags),
            message_id: u32::from_be_bytes([m0, m1, m2, m3]),
        })
    }

    /// The header of a message that is `message_len` bytes long in all.
    pub fn emit(&self, message_len: u32) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&self.initiator_spi.0);
        header[8..16].copy_from_slice(&self.responder_spi.0);
        header[16] = self.next_payload.0;
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
            next_payload: PayloadType::SECURITY_ASSOCIATION,
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
        let bytes = header.emit(28);
        assert_eq!(bytes[16..20], [33, 0x20, 34, 0x08]);
        assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn reserved_flags_and_the_minor_version_are_ignored() {
        let mut bytes = header().emit(28);
        bytes[17] |= 0x0f;
        bytes[19] |= 0xc7;
        assert_eq!(Header::parse(&bytes), Ok(header()));
    }

    #[test]
    fn another_major_version_is_named() {
        let mut bytes = header().emit(28);
        for version in [0, 1, 3, 15] {
            bytes[17] = version << 4;
            assert_eq!(
                Header::parse(&bytes),
                Err(HeaderError::MajorVersion(version))
            );
        }
    }

    #[test]
    fn every_wrong_length_is_malformed() {
        let bytes = header().emit(28);
        for len in 0..28 {
            assert!(matches!(
                Header::parse(&bytes[..len]),
                Err(HeaderError::Malformed(_))
            ));
        }
        for stated in [0, 27, 29, u32::MAX] {
            assert!(matches!(
                Header::parse(&header().emit(stated)),
                Err(HeaderError::Malformed(_))
            ));
        }
    }
}
