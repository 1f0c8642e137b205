//! The packets of the probe: harmless ones of two segments, from the loopback address to itself.

use crate::train::{ChecksumSpot, Offload, Segmentation};

pub(super) const TCP_TRAIN: Segmentation = Segmentation::Tcp { size: 600 };
pub(super) const UDP_TRAIN: Segmentation = Segmentation::Udp { size: 600 };

pub(super) fn train(segmentation: Segmentation, start: u16, offset: u16) -> Offload {
    Offload {
        segmentation,
        checksum: Some(ChecksumSpot { start, offset }),
    }
}

/// From 127.0.0.1 to itself, its header checksum left at a wrong 0: two segments of 600 bytes.
pub(super) fn over_v4(protocol: u8) -> Vec<u8> {
    let (mut packet, transport) = (vec![0; 20], transport(protocol));
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&((20 + transport.len()) as u16).to_be_bytes());
    (packet[8], packet[9]) = (1, protocol);
    packet[12..20].copy_from_slice(&[127, 0, 0, 1, 127, 0, 0, 1]);
    packet.extend(transport);
    packet
}

/// From ::1 to itself: two segments of 600 bytes.
pub(super) fn over_v6(protocol: u8) -> Vec<u8> {
    let (mut packet, transport) = (vec![0; 40], transport(protocol));
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(transport.len() as u16).to_be_bytes());
    (packet[6], packet[7], packet[23], packet[39]) = (protocol, 1, 1, 1);
    packet.extend(transport);
    packet
}

/// A TCP header of 20 bytes or a UDP header, ports 9 (discard), and 1200 bytes of zeroes.
fn transport(protocol: u8) -> Vec<u8> {
    let header_len = if protocol == 6 { 20 } else { 8 };
    let mut bytes = vec![0; header_len + 1200];
    (bytes[1], bytes[3]) = (9, 9);
    match protocol {
        6 => (bytes[12], bytes[13]) = (5 << 4, 0x10),
        _ => bytes[4..6].copy_from_slice(&(8 + 1200u16).to_be_bytes()),
    }
    bytes
}
