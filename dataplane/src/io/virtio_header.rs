//! The virtio network header in front of every packet of a TUN device or packet socket, and the [`Offload`] that it
//! describes.
//!
//! Ten bytes, the integers in the machine's own order (a TUN device speaks the legacy form unless set otherwise).

use crate::train::{ChecksumSpot, Offload, Segmentation};

/// Bytes of the header.
pub(super) const LEN: usize = 10;

/// The offsets of two fields: the length of all headers, and where the checksum begins.
pub(super) const HEADER_LEN: usize = 2;
pub(super) const CHECKSUM_START: usize = 6;

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;

/// Reads a header that the kernel wrote. None for offloads that were never enabled (UFO) and for invalid values.
pub(super) fn read(header: &[u8; LEN]) -> Option<Offload> {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let size = word(4);
    let segmentation = match header[1] & !ECN {
        0 => Segmentation::None,
        TCP_V4 | TCP_V6 if size > 0 => Segmentation::Tcp { size },
        UDP if size > 0 => Segmentation::Udp { size },
        _ => return None,
    };
    let checksum = (header[0] & NEEDS_CHECKSUM != 0).then(|| ChecksumSpot {
        start: word(6),
        offset: word(8),
    });
    Some(Offload {
        segmentation,
        checksum,
    })
}

/// Writes the header for `packet`, of which the IP and transport headers are enough. None if the packet is too short
/// for `offload`.
pub(super) fn write(offload: &Offload, packet: &[u8]) -> Option<[u8; LEN]> {
    let mut header = [0; LEN];
    let mut put = |at: usize, word: u16| header[at..at + 2].copy_from_slice(&word.to_ne_bytes());
    if let Some(spot) = offload.checksum {
        put(CHECKSUM_START, spot.start);
        put(8, spot.offset);
    }
    if offload.segmentation != Segmentation::None {
        // A train needs an unfinished checksum: every segment gets its own.
        let start = offload.checksum?.start;
        let (kind, header_len, size) = match offload.segmentation {
            Segmentation::Tcp { size } => (
                tcp_kind(packet, start)?,
                tcp_header_len(packet, start)?,
                size,
            ),
            Segmentation::Udp { size } => (UDP, 8, size),
            Segmentation::None => return None,
        };
        put(HEADER_LEN, start.checked_add(header_len)?);
        put(4, size);
        header[1] = kind;
    }
    header[0] = if offload.checksum.is_some() {
        NEEDS_CHECKSUM
    } else {
        0
    };
    Some(header)
}

/// TCP over which IP; with the ECN bit where CWR is set, which only the first segment may keep.
fn tcp_kind(packet: &[u8], start: u16) -> Option<u8> {
    const CWR: u8 = 0x80;
    let flags = *packet.get(usize::from(start) + 13)?;
    let ecn = if flags & CWR != 0 { ECN } else { 0 };
    match packet.first()? >> 4 {
        4 => Some(TCP_V4 | ecn),
        6 => Some(TCP_V6 | ecn),
        _ => None,
    }
}

fn tcp_header_len(packet: &[u8], start: u16) -> Option<u16> {
    Some(u16::from(packet.get(usize::from(start) + 12)? >> 4) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPOT: Option<ChecksumSpot> = Some(ChecksumSpot {
        start: 20,
        offset: 16,
    });

    /// An IPv4 header and a TCP header of 32 bytes.
    fn tcp_packet(flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 52];
        (packet[0], packet[32], packet[33]) = (0x45, 0x80, flags);
        packet
    }

    #[test]
    fn what_is_written_reads_back_as_the_same_offload() {
        for offload in [
            Offload::default(),
            Offload {
                checksum: SPOT,
                ..Offload::default()
            },
            Offload {
                segmentation: Segmentation::Tcp { size: 1448 },
                checksum: SPOT,
            },
            Offload {
                segmentation: Segmentation::Udp { size: 1200 },
                checksum: SPOT,
            },
        ] {
            let header = write(&offload, &tcp_packet(0x10)).unwrap();
            assert_eq!(read(&header), Some(offload));
        }
    }

    #[test]
    fn a_tcp_train_has_its_header_length_and_the_cwr_flag() {
        let offload = Offload {
            segmentation: Segmentation::Tcp { size: 1000 },
            checksum: SPOT,
        };
        let plain = write(&offload, &tcp_packet(0x10)).unwrap();
        assert_eq!(
            (plain[1], u16::from_ne_bytes([plain[2], plain[3]])),
            (TCP_V4, 52)
        );
        assert_eq!(write(&offload, &tcp_packet(0x90)).unwrap()[1], TCP_V4 | ECN);
        let mut six = tcp_packet(0x10);
        six[0] = 0x60;
        assert_eq!(write(&offload, &six).unwrap()[1], TCP_V6);
    }

    #[test]
    fn a_train_without_a_checksum_spot_or_headers_is_refused() {
        let segmentation = Segmentation::Tcp { size: 1000 };
        assert_eq!(
            write(
                &Offload {
                    segmentation,
                    checksum: None
                },
                &tcp_packet(0)
            ),
            None
        );
        assert_eq!(
            write(
                &Offload {
                    segmentation,
                    checksum: SPOT
                },
                &[0x45; 30]
            ),
            None
        );
    }

    #[test]
    fn the_fragmenting_offload_and_unknown_kinds_read_as_nothing() {
        assert_eq!(read(&[0, 3, 0, 0, 1, 1, 0, 0, 0, 0]), None);
        assert_eq!(read(&[0, 9, 0, 0, 1, 1, 0, 0, 0, 0]), None);
        assert_eq!(read(&[0, TCP_V4, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
