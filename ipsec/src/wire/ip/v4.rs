//! The IPv4 header (RFC 791), with options.

use crate::Dropped;
use crate::wire::{be16, checksum};
use std::net::Ipv4Addr;

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// Bytes of the largest header.
pub const MAX_HEADER_LEN: usize = 60;

/// The flag that forbids fragmenting, in the word of flags and offset.
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
/// The flag MF: more fragments follow.
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;
/// The bits of the fragment offset.
const OFFSET: u16 = 0x1fff;

/// A packet whose header length and total length were found to lie inside the bytes given.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    fixed: &'a [u8; MIN_HEADER_LEN],
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Reads a packet. The header checksum is not looked at: [`Ipv4::checksum_is_right`] does.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Dropped> {
        let (packet, total_len) = Self::new_quoted(bytes)?;
        (packet.total_len() == total_len)
            .then_some(packet)
            .ok_or(Dropped::Malformed)
    }

    /// Reads as much of a packet as an ICMP message quotes: its payload may be cut short. Also returns the length of
    /// the whole packet.
    #[inline]
    pub fn new_quoted(bytes: &'a [u8]) -> Result<(Self, usize), Dropped> {
        let fixed = bytes.first_chunk().ok_or(Dropped::Malformed)?;
        if fixed[0] >> 4 != 4 {
            return Err(Dropped::Unsupported);
        }
        let total_len = usize::from(be16(fixed[2], fixed[3]));
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        if header_len < MIN_HEADER_LEN {
            return Err(Dropped::Malformed);
        }
        let (header, payload) = bytes
            .get(..total_len)
            .unwrap_or(bytes)
            .split_at_checked(header_len)
            .ok_or(Dropped::Malformed)?;
        let packet = Self {
            fixed,
            header,
            payload,
        };
        Ok((packet, total_len))
    }

    /// Bytes of the header, 20 to 60.
    pub fn header_len(&self) -> usize {
        self.header.len()
    }

    /// Bytes of the packet.
    pub fn total_len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        self.fixed[1]
    }

    /// The number that fragments of one packet share.
    pub fn identification(&self) -> u16 {
        be16(self.fixed[4], self.fixed[5])
    }

    fn flags_and_offset(&self) -> u16 {
        be16(self.fixed[6], self.fixed[7])
    }

    /// Whether routers must not fragment it.
    pub fn dont_fragment(&self) -> bool {
        self.flags_and_offset() & DONT_FRAGMENT != 0
    }

    /// Whether later fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.flags_and_offset() & MORE_FRAGMENTS != 0
    }

    /// Where its payload belongs in the whole packet's, in bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.flags_and_offset() & OFFSET) * 8
    }

    /// Whether it is a part of a packet.
    pub fn is_fragment(&self) -> bool {
        self.flags_and_offset() & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Time to live.
    pub fn hop_limit(&self) -> u8 {
        self.fixed[8]
    }

    /// What the payload is.
    pub fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// Whether the header checksum verifies.
    pub fn checksum_is_right(&self) -> bool {
        checksum::over(&[self.header]) == 0
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// The whole header, options included.
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// The header without its options; its length field still counts them.
    pub fn fixed_header(&self) -> &'a [u8] {
        self.fixed
    }

    /// The options, padding included.
    pub fn options(&self) -> &'a [u8] {
        self.header.get(MIN_HEADER_LEN..).unwrap_or_default()
    }

    /// What the header is about.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The options of a header, each with its type and length bytes; END and what follows it are left out. An item is
/// `None`, and the last, where an option overruns.
#[derive(Clone, Debug)]
pub struct Ipv4Options<'a> {
    rest: &'a [u8],
}

impl<'a> Ipv4Options<'a> {
    /// The options in [`Ipv4::options`].
    pub fn of(options: &'a [u8]) -> Self {
        Self { rest: options }
    }
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let len = match *self.rest {
            [] | [0, ..] => return None,
            [1, ..] => 1,
            [_, len, ..] if len >= 2 => usize::from(len),
            _ => usize::MAX,
        };
        let option = self.rest.split_at_checked(len);
        self.rest = option.map_or(&[], |(_, rest)| rest);
        Some(option.map(|(option, _)| option))
    }
}

/// The meaning of a header without options, to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Fields {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The number that fragments of one packet share.
    pub identification: u16,
    /// Whether routers must not fragment it.
    pub dont_fragment: bool,
    /// Time to live.
    pub hop_limit: u8,
    /// What the payload is.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Ipv4Fields {
    /// The header of a packet with `payload_len` bytes behind it, checksum in place. A payload that no IPv4 packet
    /// can hold is the caller's mistake; its length field is 65535.
    #[inline]
    pub fn emit(&self, payload_len: usize) -> [u8; MIN_HEADER_LEN] {
        let total_len = u16::try_from(MIN_HEADER_LEN + payload_len).unwrap_or(u16::MAX);
        debug_assert_eq!(usize::from(total_len), MIN_HEADER_LEN + payload_len);
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        let mut header = [0; MIN_HEADER_LEN];
        header[0] = 0x45;
        header[1] = self.traffic_class;
        header[2..4].copy_from_slice(&total_len.to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        header[8] = self.hop_limit;
        header[9] = self.protocol;
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&self.destination.octets());
        let sum = checksum::over(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }
}

/// Turns the copied header of `header_len` bytes at the start of `packet` into a fragment's: lengths, offset in bytes,
/// "more follow", DF cleared, checksum anew. Anything shorter than a header stays as it is.
pub(crate) fn set_fragment(
    packet: &mut [u8],
    header_len: usize,
    total_len: usize,
    offset: usize,
    more: bool,
) {
    let flags = if more { MORE_FRAGMENTS } else { 0 };
    let place = flags | (offset / 8) as u16 & OFFSET;
    if let Some(fixed) = packet.first_chunk_mut::<MIN_HEADER_LEN>() {
        fixed[0] = 0x40 | (header_len / 4) as u8 & 0x0f;
        fixed[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
        fixed[6..8].copy_from_slice(&place.to_be_bytes());
    }
    finish_checksum(packet);
}

/// Sets the total length of the packet whose header begins `packet`, and its identification if that is 0; checksum
/// anew. Anything shorter than a header stays as it is.
pub(crate) fn set_total_len(packet: &mut [u8], total_len: usize, identification: u16) {
    if let Some(fixed) = packet.first_chunk_mut::<MIN_HEADER_LEN>() {
        fixed[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
        if fixed[4..6] == [0, 0] {
            fixed[4..6].copy_from_slice(&identification.to_be_bytes());
        }
    }
    finish_checksum(packet);
}

/// Lets routers fragment the packet whose IPv4 header begins `packet`. Anything else stays as it is.
pub fn allow_fragments(packet: &mut [u8]) {
    if let [first, _, _, _, _, _, flags, ..] = packet
        && *first >> 4 == 4
    {
        *flags &= !((DONT_FRAGMENT >> 8) as u8);
        finish_checksum(packet);
    }
}

/// Computes the header checksum anew, in place. Bytes that are no IPv4 header stay as they are.
pub fn finish_checksum(packet: &mut [u8]) {
    let header_len = packet
        .first()
        .map_or(0, |byte| usize::from(byte & 0x0f) * 4);
    if header_len < MIN_HEADER_LEN {
        return;
    }
    if let Some(header) = packet.get_mut(..header_len) {
        header[10..12].fill(0);
        let sum = checksum::over(&[header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}
