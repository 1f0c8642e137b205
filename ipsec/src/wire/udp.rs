//! The UDP header (RFC 768), and what may be inside one that encapsulates ESP (RFC 3948 2).

use crate::Dropped;
use crate::wire::be16;

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// A datagram whose length field was found to lie inside the bytes given.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Reads a datagram. The checksum is not looked at: RFC 3948 2.1 forbids depending on it, and the ICV proves more.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Dropped> {
        let fixed = bytes.first_chunk().ok_or(Dropped::Malformed)?;
        let payload = bytes
            .get(..usize::from(be16(fixed[4], fixed[5])))
            .and_then(|datagram| datagram.get(HEADER_LEN..))
            .ok_or(Dropped::Malformed)?;
        Ok(Self { fixed, payload })
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        be16(self.fixed[0], self.fixed[1])
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        be16(self.fixed[2], self.fixed[3])
    }

    /// The checksum, 0 for none.
    pub fn checksum(&self) -> u16 {
        be16(self.fixed[6], self.fixed[7])
    }

    /// What is inside.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The meaning of a header, to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFields {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// The checksum, 0 for none; [`checksum::Sum`](super::checksum::Sum) computes it.
    pub checksum: u16,
}

impl UdpFields {
    /// The header of a datagram with `payload_len` bytes behind it. A payload that no datagram can hold is the
    /// caller's mistake; its length field is 65535.
    #[inline]
    pub fn emit(&self, payload_len: usize) -> [u8; HEADER_LEN] {
        let len = u16::try_from(HEADER_LEN + payload_len).unwrap_or(u16::MAX);
        let mut header = [0; HEADER_LEN];
        header[..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..6].copy_from_slice(&len.to_be_bytes());
        header[6..].copy_from_slice(&self.checksum.to_be_bytes());
        header
    }
}

/// What a datagram on a port that encapsulates ESP carries (RFC 3948 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encapsulated {
    /// An ESP packet, as long as one at all.
    Esp,
    /// An IKE message behind the non-ESP marker, four zero bytes (RFC 3948 2.2).
    Ike,
    /// A NAT keepalive, one byte 0xff (RFC 3948 2.3).
    Keepalive,
    /// Too short to be any of them.
    Short,
}

impl Encapsulated {
    /// Looks at the payload of a datagram.
    #[inline]
    pub fn of(payload: &[u8]) -> Self {
        match payload {
            [0xff] => Self::Keepalive,
            [0, 0, 0, 0, ..] => Self::Ike,
            [_, _, _, _, ..] => Self::Esp,
            _ => Self::Short,
        }
    }
}
