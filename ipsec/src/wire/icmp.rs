//! The errors of ICMP (RFC 792) and ICMPv6 (RFC 4443) that steer path MTU discovery.

use crate::Dropped;
use crate::wire::be16;

/// Bytes before the quoted packet, in both versions.
pub const HEADER_LEN: usize = 8;

/// ICMP: destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// ICMP, unreachable: fragmentation needed and DF set (RFC 1191).
pub const FRAGMENTATION_NEEDED: u8 = 4;
/// ICMPv6: packet too big.
pub const PACKET_TOO_BIG: u8 = 2;
/// ICMP: time exceeded; code 0 means in transit.
pub const TIME_EXCEEDED: u8 = 11;
/// ICMPv6: the same.
pub const TIME_EXCEEDED_V6: u8 = 3;

/// An error message that quotes the packet it is about.
#[derive(Clone, Copy, Debug)]
pub struct IcmpError<'a> {
    fixed: &'a [u8; HEADER_LEN],
    quoted: &'a [u8],
}

impl<'a> IcmpError<'a> {
    /// Reads a message; `bytes` ends where the IP packet does.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Dropped> {
        let (fixed, quoted) = bytes.split_first_chunk().ok_or(Dropped::Malformed)?;
        Ok(Self { fixed, quoted })
    }

    /// The type.
    pub fn kind(&self) -> u8 {
        self.fixed[0]
    }

    /// The code.
    pub fn code(&self) -> u8 {
        self.fixed[1]
    }

    /// The MTU of ICMP's "fragmentation needed"; 0 from a router older than RFC 1191.
    pub fn mtu_v4(&self) -> usize {
        usize::from(be16(self.fixed[6], self.fixed[7]))
    }

    /// The MTU of ICMPv6's "packet too big".
    pub fn mtu_v6(&self) -> usize {
        let [.., a, b, c, d] = *self.fixed;
        usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX)
    }

    /// As much of the packet as the message quotes.
    pub fn quoted(&self) -> &'a [u8] {
        self.quoted
    }
}

/// The meaning of a "too big" message, to be written: its checksum is 0 until [`checksum`](super::checksum) finishes
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooBigFields {
    /// The largest packet that would fit.
    pub mtu: u32,
}

impl TooBigFields {
    /// ICMP's "fragmentation needed" (RFC 1191 4).
    pub fn emit_v4(&self, checksum: u16) -> [u8; HEADER_LEN] {
        let mtu = u16::try_from(self.mtu).unwrap_or(u16::MAX).to_be_bytes();
        let [sum_high, sum_low] = checksum.to_be_bytes();
        [
            UNREACHABLE,
            FRAGMENTATION_NEEDED,
            sum_high,
            sum_low,
            0,
            0,
            mtu[0],
            mtu[1],
        ]
    }

    /// ICMPv6's "packet too big" (RFC 4443 3.2).
    pub fn emit_v6(&self, checksum: u16) -> [u8; HEADER_LEN] {
        let [a, b, c, d] = self.mtu.to_be_bytes();
        let [sum_high, sum_low] = checksum.to_be_bytes();
        [PACKET_TOO_BIG, 0, sum_high, sum_low, a, b, c, d]
    }
}
