//! Segmentation: one item of the plaintext side becomes the packets that are sent.
//!
//! ```text
//!   super-packet   [ IP TCP ][ payload ........................................ ]
//!   segment 0      [ IP TCP ] (a slice of the payload, where it lies)
//!   segment 1      [ IP TCP ]           (the next slice)
//! ```
//!
//! [`Segments::plan`] is cheap and runs in order; [`Segments::write_head`] reads the payload for its checksum and may
//! run on any thread, just before the cipher reads the same bytes. Payload is never copied.

use super::fields::{
    CWR, FIN, PSH, TCP, TCP_CHECKSUM, TCP_FLAGS, UDP, UDP_CHECKSUM, UDP_HEADER_LEN, get_u16,
    get_u32, put_u16, put_u32,
};
use super::{ChecksumSpot, Offload, Segmentation};
use ipsec::Dropped;
use ipsec::packet::{FragmentKind, Outline};
use ipsec::wire::checksum::Sum;
use std::ops::Range;

/// How one item is segmented: what every segment's head and payload are, before a byte of them is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segments {
    kind: Kind,
    is_v6: bool,
    /// Where the transport header starts.
    transport: u32,
    /// Bytes that each segment has a fresh copy of.
    head_len: u32,
    /// Bytes behind the head, all segments together.
    payload_len: u32,
    /// Payload bytes of each segment but the last.
    size: u32,
    count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A finished packet: no head, all of it is payload.
    Whole,
    /// A packet without its checksum: the head ends behind the checksum.
    Unfinished(ChecksumSpot),
    Tcp,
    Udp,
}

impl Segments {
    /// Plans how `packet`, whose outline was read, is segmented. INVARIANT: all ranges of the plan lie inside
    /// `packet[..outline.total_len]`.
    #[inline]
    pub fn plan(packet: &[u8], outline: &Outline, offload: Offload) -> Result<Self, Dropped> {
        let packet = packet.get(..outline.total_len).ok_or(Dropped::Malformed)?;
        if offload == Offload::default() {
            return Ok(Self::whole(outline));
        }
        Self::offloaded(packet, outline, offload)
    }

    fn offloaded(packet: &[u8], outline: &Outline, offload: Offload) -> Result<Self, Dropped> {
        match (offload.segmentation, offload.checksum) {
            (Segmentation::None, None) => Ok(Self::whole(outline)),
            (Segmentation::None, Some(spot)) => Self::unfinished(packet, outline, spot),
            (Segmentation::Tcp { size }, _) => {
                let len = tcp_header_len(packet, outline).ok_or(Dropped::Malformed)?;
                Self::train(packet, outline, Kind::Tcp, len, size)
            }
            (Segmentation::Udp { size }, _) if outline.protocol == UDP => {
                Self::train(packet, outline, Kind::Udp, UDP_HEADER_LEN, size)
            }
            (Segmentation::Udp { .. }, _) => Err(Dropped::Malformed),
        }
    }

    /// A finished packet, which is sent unchanged.
    #[inline]
    pub fn whole(outline: &Outline) -> Self {
        Self::single(outline, Kind::Whole, 0)
    }

    /// `len` bytes that are not an IP packet, an AGGFRAG payload for example, and are sent unchanged.
    pub fn of_bytes(len: usize) -> Self {
        Self {
            kind: Kind::Whole,
            is_v6: false,
            transport: 0,
            head_len: 0,
            payload_len: len as u32,
            size: len as u32,
            count: 1,
        }
    }

    #[inline]
    fn single(outline: &Outline, kind: Kind, head_len: usize) -> Self {
        Self {
            kind,
            is_v6: outline.source.is_ipv6(),
            transport: outline.header_len as u32,
            head_len: head_len as u32,
            payload_len: (outline.total_len - head_len) as u32,
            size: outline.total_len as u32,
            count: 1,
        }
    }

    fn unfinished(packet: &[u8], outline: &Outline, spot: ChecksumSpot) -> Result<Self, Dropped> {
        let end = usize::from(spot.start) + usize::from(spot.offset) + 2;
        if end > packet.len() {
            return Err(Dropped::Malformed);
        }
        Ok(Self::single(outline, Kind::Unfinished(spot), end))
    }

    fn train(
        packet: &[u8],
        outline: &Outline,
        kind: Kind,
        transport_len: usize,
        size: u16,
    ) -> Result<Self, Dropped> {
        let head_len = outline.header_len + transport_len;
        if size == 0 || head_len > packet.len() || outline.fragment != FragmentKind::Whole {
            return Err(Dropped::Malformed);
        }
        let payload_len = packet.len() - head_len;
        Ok(Self {
            head_len: head_len as u32,
            payload_len: payload_len as u32,
            size: size.into(),
            count: payload_len.div_ceil(size.into()).max(1) as u32,
            ..Self::single(outline, kind, 0)
        })
    }

    fn transport(&self) -> usize {
        self.transport as usize
    }

    /// How many packets it becomes, at least 1.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the head that is written for each packet; 0 if the item is sent unchanged.
    pub fn head_len(&self) -> usize {
        self.head_len as usize
    }

    /// Where in the item the bytes behind packet `number`'s head lie.
    pub fn payload(&self, number: u32) -> Range<usize> {
        let start = number as usize * self.size as usize;
        let end = (start + self.size as usize).min(self.payload_len as usize);
        self.head_len() + start..self.head_len() + end
    }

    /// Bytes of packet `number`, head and payload.
    pub fn packet_len(&self, number: u32) -> usize {
        self.head_len() + self.payload(number).len()
    }

    /// Writes the head of packet `number`, checksums over head and payload included, to `head`, which is
    /// [`Segments::head_len`] bytes. `item` is what was planned for.
    pub fn write_head(&self, item: &[u8], number: u32, head: &mut [u8]) {
        head.copy_from_slice(&item[..self.head_len()]);
        let payload = &item[self.payload(number)];
        match self.kind {
            Kind::Whole => {}
            Kind::Unfinished(spot) => finish_checksum(head, payload, spot),
            Kind::Tcp => {
                self.renumber_ip(head, number, payload.len());
                self.renumber_tcp(head, number);
                let checksum = self.transport_checksum(head, payload, TCP, TCP_CHECKSUM);
                put_u16(head, self.transport() + TCP_CHECKSUM, checksum);
            }
            Kind::Udp => {
                self.renumber_ip(head, number, payload.len());
                let len = UDP_HEADER_LEN + payload.len();
                put_u16(head, self.transport() + 4, len as u16);
                let checksum = self.transport_checksum(head, payload, UDP, UDP_CHECKSUM);
                put_u16(head, self.transport() + UDP_CHECKSUM, not_zero(checksum));
            }
        }
    }

    /// RFC 791: each segment is a separate datagram, with its own identification.
    fn renumber_ip(&self, head: &mut [u8], number: u32, payload_len: usize) {
        let len = self.head_len() + payload_len;
        if self.is_v6 {
            return put_u16(head, 4, (len - 40) as u16);
        }
        let identification = get_u16(head, 4).wrapping_add(number as u16);
        put_u16(head, 2, len as u16);
        put_u16(head, 4, identification);
        put_u16(head, 10, 0);
        let checksum = Sum::new().bytes(&head[..self.transport()]).finish();
        put_u16(head, 10, checksum);
    }

    /// RFC 9293, RFC 3168 6.1.2: FIN and PSH are set in the last segment only, CWR in the first only.
    fn renumber_tcp(&self, head: &mut [u8], number: u32) {
        let at = self.transport();
        let offset = number.wrapping_mul(self.size);
        let sequence = get_u32(head, at + 4).wrapping_add(offset);
        put_u32(head, at + 4, sequence);
        if number + 1 < self.count {
            head[at + TCP_FLAGS] &= !(FIN | PSH);
        }
        if number > 0 {
            head[at + TCP_FLAGS] &= !CWR;
        }
    }

    /// Clears the checksum at `field` of the transport header and computes it.
    fn transport_checksum(
        &self,
        head: &mut [u8],
        payload: &[u8],
        protocol: u8,
        field: usize,
    ) -> u16 {
        let (ip, transport) = head.split_at_mut(self.transport());
        put_u16(transport, field, 0);
        let addresses = if self.is_v6 { 8..40 } else { 12..20 };
        // RFC 9293 3.1, RFC 8200 8.1: the pseudo-header; a train's length fits 16 bits.
        Sum::new()
            .bytes(&ip[addresses])
            .word((transport.len() + payload.len()) as u16)
            .word(protocol.into())
            .bytes(transport)
            .bytes(payload)
            .finish()
    }
}

fn tcp_header_len(packet: &[u8], outline: &Outline) -> Option<usize> {
    let words = packet.get(outline.header_len + 12)? >> 4;
    let len = usize::from(words) * 4;
    (outline.protocol == TCP && len >= 20).then_some(len)
}

/// The field holds the pseudo-header's sum already, so that it is summed like any other word.
fn finish_checksum(head: &mut [u8], payload: &[u8], spot: ChecksumSpot) {
    let start = usize::from(spot.start);
    let sum = Sum::new().bytes(&head[start..]).bytes(payload);
    put_u16(
        head,
        start + usize::from(spot.offset),
        not_zero(sum.finish()),
    );
}

/// RFC 768: a checksum that computes to zero is sent in its other form, as zero means "none" to UDP.
fn not_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}
