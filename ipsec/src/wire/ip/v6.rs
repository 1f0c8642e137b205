//! The IPv6 header and its extension headers (RFC 8200).

use super::number;
use crate::Dropped;
use crate::wire::be16;
use std::net::Ipv6Addr;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Bytes of the fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;
/// Extension headers that are followed. RFC 8200 4.1 knows six, of which one may come twice.
pub const MAX_EXTENSIONS: usize = 8;

/// Where the fixed header names what follows it.
const NEXT_HEADER_AT: usize = 6;
/// The hop-by-hop option of jumbograms (RFC 2675).
const JUMBO: u8 = 0xc2;

/// A packet whose payload length was found to lie inside the bytes given.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Ipv6<'a> {
    /// Reads a packet, without its extension headers: [`Chain::read`] follows them.
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
        let (fixed, rest) = bytes.split_first_chunk().ok_or(Dropped::Malformed)?;
        if fixed[0] >> 4 != 6 {
            return Err(Dropped::Unsupported);
        }
        let payload_len = usize::from(be16(fixed[4], fixed[5]));
        if payload_len == 0 && fixed[NEXT_HEADER_AT] == number::HOP_BY_HOP {
            // RFC 2675 3: a jumbogram. None fits into a device, socket or ESP packet here.
            return Err(Dropped::Unsupported);
        }
        let payload = rest.get(..payload_len).unwrap_or(rest);
        Ok((Self { fixed, payload }, HEADER_LEN + payload_len))
    }

    /// Bytes of the packet.
    pub fn total_len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }

    /// DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        self.fixed[0] << 4 | self.fixed[1] >> 4
    }

    /// The flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.fixed[1] & 0x0f, self.fixed[2], self.fixed[3]])
    }

    /// What follows the fixed header.
    pub fn next_header(&self) -> u8 {
        self.fixed[NEXT_HEADER_AT]
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// Source address.
    pub fn source(&self) -> Ipv6Addr {
        let (_, rest) = self.fixed.split_at(8);
        Ipv6Addr::from(rest.first_chunk().copied().unwrap_or([0; 16]))
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.fixed.last_chunk().copied().unwrap_or([0; 16]))
    }

    /// Everything behind the fixed header, extension headers included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A fragment header (RFC 8200 4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentHeader {
    /// Where it stands in the packet.
    pub at: usize,
    /// Where the byte stands that names it.
    pub named_at: usize,
    /// Where its payload belongs in the whole packet's fragmentable part, in bytes.
    pub offset: usize,
    /// Whether later fragments follow.
    pub more: bool,
    /// The number that fragments of one packet share.
    pub identification: u32,
}

impl FragmentHeader {
    /// Whether it is a whole packet in spite of its fragment header (RFC 6946).
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// Appends the headers of one fragment to `out`: those that every fragment repeats, then the fragment header, which
/// takes over what the last of those named.
pub(crate) fn append_fragment_headers(
    before: &[u8],
    fragment: &FragmentHeader,
    payload_len: usize,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.extend_from_slice(before);
    let next = match out.get_mut(start + fragment.named_at) {
        Some(named) => std::mem::replace(named, number::FRAGMENT),
        None => number::NO_NEXT,
    };
    let word = fragment.offset as u16 & 0xfff8 | u16::from(fragment.more);
    out.extend_from_slice(&[next, 0]);
    out.extend_from_slice(&word.to_be_bytes());
    out.extend_from_slice(&fragment.identification.to_be_bytes());
    if let Some(packet) = out.get_mut(start..) {
        set_total_len(packet, packet.len() + payload_len);
    }
}

/// The headers up to `fragment`'s, with it taken out: the byte that named it names what it named.
pub(crate) fn without_fragment_header(packet: &[u8], fragment: &FragmentHeader) -> Vec<u8> {
    let mut headers = packet.get(..fragment.at).unwrap_or_default().to_vec();
    let next = packet.get(fragment.at).copied();
    let named = headers.get_mut(fragment.named_at);
    if let (Some(named), Some(next)) = (named, next) {
        *named = next;
    }
    headers
}

/// Sets the payload length of a packet of `total_len` bytes. Anything shorter than a header stays as it is.
pub(crate) fn set_total_len(packet: &mut [u8], total_len: usize) {
    if let Some(fixed) = packet.first_chunk_mut::<HEADER_LEN>() {
        let payload_len = total_len.saturating_sub(HEADER_LEN) as u16;
        fixed[4..6].copy_from_slice(&payload_len.to_be_bytes());
    }
}

/// Where the chain of extension headers leads.
///
/// AH, ESP, "no next header" and what cannot be skipped by its own length end it: they count as upper layers, as they
/// do for a selector (RFC 4301 4.4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The upper-layer protocol; in a later fragment what the fragment header names.
    pub protocol: u8,
    /// Where the upper layer begins in the packet.
    pub upper_at: usize,
    /// Where the IPsec headers of transport mode belong (RFC 4303 3.1.1, RFC 4302 3.1.1): behind hop-by-hop, routing
    /// and fragment headers, before destination options for the final destination.
    pub transport_at: usize,
    /// Where the next-header byte stands that names what is at `transport_at`.
    pub transport_named_at: usize,
    /// The fragment header, if there is one.
    pub fragment: Option<FragmentHeader>,
    /// Where the byte stands that names the protocol.
    pub named_at: usize,
}

impl Chain {
    /// Follows the extension headers of a packet.
    #[inline]
    pub fn read(packet: &Ipv6<'_>) -> Result<Self, Dropped> {
        let mut chain = Self {
            protocol: packet.next_header(),
            upper_at: HEADER_LEN,
            transport_at: HEADER_LEN,
            transport_named_at: NEXT_HEADER_AT,
            fragment: None,
            named_at: NEXT_HEADER_AT,
        };
        let mut rest = packet.payload;
        for place in 0..=MAX_EXTENSIONS {
            if !is_extension(chain.protocol) || chain.is_later() {
                return Ok(chain);
            }
            rest = chain
                .step(rest, place)
                .ok_or(Dropped::BadExtensionChain)??;
        }
        Err(Dropped::BadExtensionChain)
    }

    /// The upper layer's bytes of the packet that was read.
    pub fn upper<'a>(&self, packet: &Ipv6<'a>) -> &'a [u8] {
        let at = self.upper_at - HEADER_LEN;
        packet.payload.get(at..).unwrap_or_default()
    }

    fn is_later(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset > 0)
    }

    /// Goes over one extension header at the start of `bytes`; `None` where it cannot be one.
    fn step<'a>(&mut self, bytes: &'a [u8], place: usize) -> Option<Result<&'a [u8], Dropped>> {
        let (&[next, units, ..], header_len) = (bytes.first_chunk::<8>()?, self.len(bytes)?);
        let (header, rest) = bytes.split_at_checked(header_len)?;
        match self.protocol {
            // RFC 8200 4.1: hop-by-hop options are only allowed right behind the fixed header.
            number::HOP_BY_HOP if place > 0 => return None,
            number::HOP_BY_HOP if has_jumbo(header)? => return Some(Err(Dropped::Unsupported)),
            number::FRAGMENT => self.fragment = Some(self.read_fragment(bytes)?),
            _ => debug_assert_eq!(header_len, usize::from(units) * 8 + 8),
        }
        if self.protocol != number::DESTINATION_OPTIONS {
            self.transport_at = self.upper_at + header_len;
            self.transport_named_at = self.upper_at;
        }
        self.protocol = next;
        self.named_at = self.upper_at;
        self.upper_at += header_len;
        Some(Ok(rest))
    }

    fn len(&self, bytes: &[u8]) -> Option<usize> {
        match self.protocol {
            number::FRAGMENT => Some(FRAGMENT_HEADER_LEN),
            _ => bytes.get(1).map(|units| usize::from(*units) * 8 + 8),
        }
    }

    /// A second fragment header is never right: a fragment is made once, by the source (RFC 8200 4.5).
    fn read_fragment(&self, bytes: &[u8]) -> Option<FragmentHeader> {
        let &[_, _, high, low, a, b, c, d] = bytes.first_chunk()?;
        let word = be16(high, low);
        self.fragment.is_none().then_some(FragmentHeader {
            at: self.upper_at,
            named_at: self.named_at,
            offset: usize::from(word & 0xfff8),
            more: word & 1 != 0,
            identification: u32::from_be_bytes([a, b, c, d]),
        })
    }
}

/// Whether a header of this number names another behind it, by the common format or the fragment header's.
fn is_extension(number: u8) -> bool {
    matches!(
        number,
        number::HOP_BY_HOP | number::ROUTING | number::FRAGMENT | number::DESTINATION_OPTIONS
    )
}

/// Whether the options of a hop-by-hop header include a jumbo payload; `None` where they overrun the header.
fn has_jumbo(header: &[u8]) -> Option<bool> {
    for option in Options::of(header) {
        if option?.kind == JUMBO {
            return Some(true);
        }
    }
    Some(false)
}

/// One option of a hop-by-hop or destination options header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Option {
    /// Its type; bit 0x20 means that its data may change en route (RFC 8200 4.2).
    pub kind: u8,
    /// Where its data lies in the extension header.
    pub data_at: usize,
    /// Bytes of its data.
    pub data_len: usize,
}

/// The options of one hop-by-hop or destination options header; an item is `None`, and the last, where one overruns.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    /// The options of a whole extension header.
    pub fn of(header: &'a [u8]) -> Self {
        Self { header, at: 2 }
    }

    fn read(&self) -> Option<Ipv6Option> {
        let kind = *self.header.get(self.at)?;
        if kind == 0 {
            // Pad1 has neither length nor data.
            return Some(Ipv6Option {
                kind,
                data_at: self.at + 1,
                data_len: 0,
            });
        }
        let data_len = usize::from(*self.header.get(self.at + 1)?);
        let data_at = self.at + 2;
        (data_at + data_len <= self.header.len()).then_some(Ipv6Option {
            kind,
            data_at,
            data_len,
        })
    }
}

impl Iterator for Options<'_> {
    type Item = Option<Ipv6Option>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.header.len() {
            return None;
        }
        let option = self.read();
        self.at = option.map_or(self.header.len(), |option| option.data_at + option.data_len);
        Some(option)
    }
}

/// The meaning of a header without extensions, to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Fields {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// What follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Ipv6Fields {
    /// The header of a packet with `payload_len` bytes behind it. A payload that no IPv6 packet can hold is the
    /// caller's mistake; its length field is 65535.
    #[inline]
    pub fn emit(&self, payload_len: usize) -> [u8; HEADER_LEN] {
        let len = u16::try_from(payload_len).unwrap_or(u16::MAX);
        debug_assert_eq!(usize::from(len), payload_len);
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&len.to_be_bytes());
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
        header
    }
}
