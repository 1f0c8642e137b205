//! Entry points for the fuzzer: any bytes as metadata of the kernel. Nothing may panic, and nothing outside a frame or
//! a packet may be read.

use super::ancillary::{ControlBuffer, SocketAddress};
use super::mapping::Mapping;
use super::messages::Received;
use super::packet::ring::RingFrame;
use super::raw::{self, HEADROOM_BYTES, NativeProtocol};
use super::virtio_header;
use super::{Arrival, Family, MAX_ITEM_BYTES, ReceiveBuffer, ethernet, packet};
use crate::train::segments::Segments;
use crate::train::{Offload, Segmentation};
use ipsec::packet::Outline;

/// Bytes of a frame of the ring.
const FRAME_LEN: usize = 2048;

/// `data` as a virtio header and the packet behind it, as a TUN device and a router's ring hand them over.
///
/// # Panics
///
/// If a header that was read does not read back once it is written, or a segment lies outside its packet.
pub fn tun_headers(data: &[u8]) {
    let Some((head, packet)) = data.split_first_chunk::<{ virtio_header::LEN }>() else {
        return;
    };
    if let Some(offload) = virtio_header::read(head) {
        if let Some(written) = virtio_header::write(&offload, packet) {
            assert_eq!(virtio_header::read(&written), Some(offload));
        }
        cut(packet, offload);
    }
    if let Some(offload) = ethernet::source::offload(head) {
        cut(packet, offload);
    }
}

fn cut(packet: &[u8], offload: Offload) {
    let Ok(outline) = Outline::read(packet) else {
        return;
    };
    let Ok(plan) = Segments::plan(packet, &outline, offload) else {
        return;
    };
    for number in 0..plan.count() {
        let mut segment = vec![0; plan.head_len()];
        plan.write_head(packet, number, &mut segment);
        segment.extend_from_slice(&packet[plan.payload(number)]);
        assert_eq!(segment.len(), plan.packet_len(number));
        if offload.segmentation != Segmentation::None {
            let found = Outline::read(&segment).map(|outline| outline.total_len);
            assert_eq!(found, Ok(segment.len()));
        }
    }
}

/// `data` as a status word and a frame of the ring, the last one: behind it ends the memory.
///
/// # Panics
///
/// If a frame leads outside itself.
pub fn ring_frames(data: &[u8]) {
    let Some((status, content)) = data.split_first_chunk() else {
        return;
    };
    let Ok(mut frames) = Mapping::anonymous(2 * FRAME_LEN) else {
        return;
    };
    let len = content.len().min(FRAME_LEN);
    frames
        .bytes_mut(FRAME_LEN, len)
        .copy_from_slice(&content[..len]);
    let frame = RingFrame::read(&frames, FRAME_LEN, FRAME_LEN, u32::from_ne_bytes(*status));
    let _ = (frame.link(), frame.offload().and_then(virtio_header::read));
    assert!(frame.packet.len() <= FRAME_LEN);
    let mut reader = packet::source::Reader::default();
    let mut buffer = ReceiveBuffer::with_capacity(MAX_ITEM_BYTES, 4);
    // A second time behind the first one: equal packets become one item.
    for _ in 0..2 {
        reader.enter(&mut buffer, 0, frame.packet);
    }
    look_at(&buffer);
}

/// `data` as a raw socket's address and control messages, of which the end is the packet too.
///
/// # Panics
///
/// If an arrival lies outside the room that it was received into.
pub fn control_messages(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let Some((address, messages)) = rest.split_first_chunk() else {
        return;
    };
    let (peer, control) = (
        SocketAddress::holding(*address),
        ControlBuffer::holding(messages),
    );
    let family = match choice & 1 {
        0 => Family::V4,
        _ => Family::V6,
    };
    let protocol = match choice & 2 {
        0 => NativeProtocol::Esp,
        _ => NativeProtocol::Ah,
    };
    let _ = (control.parsed().count(), control.extensions().count());
    let packet = &messages[messages.len().saturating_sub(128)..];
    let mut buffer = ReceiveBuffer::with_capacity(HEADROOM_BYTES + packet.len(), 1);
    buffer.bytes[HEADROOM_BYTES..].copy_from_slice(packet);
    let reader = raw::Reader {
        family,
        protocol,
        malformed: Default::default(),
    };
    let range = HEADROOM_BYTES..buffer.bytes.len();
    let received = Received {
        peer: &peer,
        control: &control,
    };
    reader.enter(&mut buffer, range, &received);
    look_at(&buffer);
}

fn look_at(buffer: &ReceiveBuffer<Arrival>) {
    for (range, arrival) in &buffer.items {
        assert!(range.end <= buffer.bytes.len());
        assert!(arrival.stride > 0 && usize::from(arrival.outer.emitted_len) < range.len());
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use replay::replay;

    #[test]
    fn headers_of_a_tun_device_are_read_without_a_panic() {
        replay("tun_headers", tun_headers);
    }

    #[test]
    fn frames_of_a_packet_ring_are_read_without_a_panic() {
        replay("ring_frames", ring_frames);
    }

    #[test]
    fn control_messages_of_a_socket_are_read_without_a_panic() {
        replay("control_messages", control_messages);
    }
}
