//! Fragments that arrive, and packets that must be fragmented. Both are rare, so all of this may allocate.

use crate::train::segments::Segments;
use ipsec::Dropped;
use ipsec::fragment::{Offered, Reassembler};
use ipsec::packet::Outline;
use ipsec::wire::ip::v4::allow_fragments;

/// Offers a fragment; returns the whole packet with its outline once the last fragment is there.
///
/// RFC 4303 3.1.1, 3.3.4: transport mode is for whole packets. What the kernel fragmented for the device is reassembled
/// first; the protected packet is fragmented again on its way out.
pub(super) fn reassemble(
    reassembler: &mut Reassembler,
    fragment: &[u8],
    now: u64,
) -> Result<Option<(Vec<u8>, Outline)>, Dropped> {
    let mut whole = match reassembler.offer(fragment, now)? {
        Offered::NotFragment => return Err(Dropped::Malformed),
        Offered::Held => return Ok(None),
        Offered::Joined(whole) => whole,
    };
    // A packet that came in fragments may leave in fragments.
    allow_fragments(&mut whole);
    let outline = Outline::read(&whole)?;
    Ok(Some((whole, outline)))
}

/// Packet `number` of an item, head and payload.
pub(super) fn copy_packet(segments: &Segments, item: &[u8], number: u32, packet: &mut Vec<u8>) {
    packet.clear();
    packet.resize(segments.head_len(), 0);
    segments.write_head(item, number, packet);
    packet.extend_from_slice(&item[segments.payload(number)]);
}
