//! The TCP header (RFC 9293), as far as a gateway reads it: ports, numbers, flags and options.

use crate::Dropped;
use crate::wire::be16;
use std::ops::Range;

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// Where the checksum stands.
pub const CHECKSUM_AT: usize = 16;

/// No more data from the sender.
pub const FIN: u8 = 0x01;
/// Synchronise sequence numbers.
pub const SYN: u8 = 0x02;
/// Reset.
pub const RST: u8 = 0x04;
/// Push.
pub const PSH: u8 = 0x08;
/// The acknowledgement number counts.
pub const ACK: u8 = 0x10;
/// The urgent pointer counts.
pub const URG: u8 = 0x20;
/// ECN echo (RFC 3168).
pub const ECE: u8 = 0x40;
/// Congestion window reduced (RFC 3168).
pub const CWR: u8 = 0x80;

/// End of the options.
const END: u8 = 0;
/// One byte of padding.
const NOP: u8 = 1;
/// Maximum segment size.
const MSS: u8 = 2;

/// A segment whose data offset was found to lie inside the bytes given.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    fixed: &'a [u8; MIN_HEADER_LEN],
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Reads a segment; `bytes` ends where the IP packet does.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Dropped> {
        let fixed = bytes.first_chunk().ok_or(Dropped::Malformed)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < MIN_HEADER_LEN {
            return Err(Dropped::Malformed);
        }
        let (header, payload) = bytes
            .split_at_checked(header_len)
            .ok_or(Dropped::Malformed)?;
        Ok(Self {
            fixed,
            header,
            payload,
        })
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        be16(self.fixed[0], self.fixed[1])
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        be16(self.fixed[2], self.fixed[3])
    }

    /// The number of the first byte of the payload.
    pub fn sequence(&self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The next byte the sender expects.
    pub fn acknowledgement(&self) -> u32 {
        let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Flags, [`FIN`] to [`CWR`].
    pub fn flags(&self) -> u8 {
        self.fixed[13]
    }

    /// The receive window.
    pub fn window(&self) -> u16 {
        be16(self.fixed[14], self.fixed[15])
    }

    /// The checksum.
    pub fn checksum(&self) -> u16 {
        be16(self.fixed[16], self.fixed[17])
    }

    /// Bytes of the header, 20 to 60.
    pub fn header_len(&self) -> usize {
        self.header.len()
    }

    /// The options, padding included.
    pub fn options(&self) -> &'a [u8] {
        self.header.get(MIN_HEADER_LEN..).unwrap_or_default()
    }

    /// What the segment carries.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The value of the first well-formed maximum-segment-size option and where its two bytes stand in the header.
    /// Options behind a malformed one are ignored.
    pub fn max_segment_size(&self) -> Option<(u16, Range<usize>)> {
        let mut at = MIN_HEADER_LEN;
        loop {
            match *self.header.get(at..)? {
                [END, ..] | [] => return None,
                [NOP, ..] => at += 1,
                [MSS, 4, high, low, ..] => return Some((be16(high, low), at + 2..at + 4)),
                [_, len, ..] if len >= 2 => at += usize::from(len),
                _ => return None,
            }
        }
    }
}
