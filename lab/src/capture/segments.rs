//! With UDP segmentation offload one captured frame holds dozens of packets, and its checksum is missing. This
//! module segments and checksums it as the hardware would.

use super::frame::Frame;

const ETHERNET_HEADER_BYTES: usize = 14;
const UDP_HEADER_BYTES: usize = 8;

/// The frames on the wire: one or more, with final lengths and checksums. A frame that cannot be parsed is returned
/// unchanged.
pub fn to_wire_frames(frame: &Frame) -> Vec<Frame> {
    let sent = match (frame.udp_segment, frame.checksum) {
        (Some(segment), Some((udp, _))) if segment > 0 => {
            split(frame, usize::from(udp), usize::from(segment))
        }
        (None, Some((start, offset))) => {
            finish(frame, usize::from(start), usize::from(offset)).map(|one| vec![one])
        }
        _ => None,
    };
    sent.unwrap_or_else(|| vec![frame.clone()])
}

fn plain(frame: &Frame, bytes: Vec<u8>) -> Frame {
    Frame {
        at: frame.at,
        bytes,
        udp_segment: None,
        checksum: None,
    }
}

/// Finishes a checksum whose field holds the sum over the pseudo header.
fn finish(frame: &Frame, start: usize, offset: usize) -> Option<Frame> {
    let mut bytes = frame.bytes.clone();
    let sum = !fold(sum(0, bytes.get(start..)?));
    put(
        &mut bytes,
        start + offset,
        if sum == 0 { 0xffff } else { sum },
    )?;
    Some(plain(frame, bytes))
}

fn split(frame: &Frame, udp: usize, segment: usize) -> Option<Vec<Frame>> {
    let headers = frame.bytes.get(..udp + UDP_HEADER_BYTES)?;
    let payload = frame.bytes.get(udp + UDP_HEADER_BYTES..)?;
    let pieces = payload.chunks(segment).enumerate();
    pieces
        .map(|(index, piece)| {
            let mut bytes = headers.to_vec();
            bytes.extend_from_slice(piece);
            set_ip(&mut bytes, udp, index as u16)?;
            set_udp(&mut bytes, udp)?;
            Some(plain(frame, bytes))
        })
        .collect()
}

/// Sets the lengths, and for IPv4 the identification and the header's checksum, of the piece with this index.
fn set_ip(bytes: &mut [u8], udp: usize, index: u16) -> Option<()> {
    let ip = bytes.len() - ETHERNET_HEADER_BYTES;
    if version(bytes)? == 6 {
        return put(bytes, ETHERNET_HEADER_BYTES + 4, (ip - 40) as u16);
    }
    let identification = word(bytes, ETHERNET_HEADER_BYTES + 4)?.wrapping_add(index);
    put(bytes, ETHERNET_HEADER_BYTES + 2, ip as u16)?;
    put(bytes, ETHERNET_HEADER_BYTES + 4, identification)?;
    put(bytes, ETHERNET_HEADER_BYTES + 10, 0)?;
    let sum = !fold(sum(0, bytes.get(ETHERNET_HEADER_BYTES..udp)?));
    put(bytes, ETHERNET_HEADER_BYTES + 10, sum)
}

fn set_udp(bytes: &mut [u8], udp: usize) -> Option<()> {
    let length = (bytes.len() - udp) as u16;
    put(bytes, udp + 4, length)?;
    put(bytes, udp + 6, 0)?;
    let addresses = match version(bytes)? {
        6 => bytes.get(ETHERNET_HEADER_BYTES + 8..ETHERNET_HEADER_BYTES + 40)?,
        _ => bytes.get(ETHERNET_HEADER_BYTES + 12..ETHERNET_HEADER_BYTES + 20)?,
    };
    let pseudo = sum(u32::from(length) + 17, addresses);
    let sum = !fold(sum(pseudo, bytes.get(udp..)?));
    put(bytes, udp + 6, if sum == 0 { 0xffff } else { sum })
}

fn version(bytes: &[u8]) -> Option<u8> {
    bytes.get(ETHERNET_HEADER_BYTES).map(|first| first >> 4)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    bytes
        .get_mut(at..at + 2)?
        .copy_from_slice(&value.to_be_bytes());
    Some(())
}

fn sum(begin: u32, bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    words.fold(begin, |sum, word| sum + word)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Ethernet, IPv4 192.0.2.1 to 192.0.2.2, UDP 4500 to 4500.
    fn super_frame(payload: &[u8], segment: Option<u16>) -> Frame {
        let mut bytes = vec![0; 12];
        bytes.extend([8, 0, 0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, 17, 0, 0]);
        bytes.extend([192, 0, 2, 1, 192, 0, 2, 2, 0x11, 0x94, 0x11, 0x94]);
        bytes.extend(((payload.len() + 8) as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        Frame {
            at: Duration::ZERO,
            bytes,
            udp_segment: segment,
            checksum: Some((34, 6)),
        }
    }

    fn verified(bytes: &[u8]) -> bool {
        let header = fold(sum(0, &bytes[14..34])) == 0xffff;
        let length = (bytes.len() - 34) as u32;
        let pseudo = sum(length + 17, &bytes[26..34]);
        header && fold(sum(pseudo, &bytes[34..])) == 0xffff
    }

    #[test]
    fn a_super_frame_becomes_the_packets_it_stands_for() {
        let payload: Vec<u8> = (0..=250).collect();
        let sent = to_wire_frames(&super_frame(&payload, Some(100)));
        let lengths: Vec<usize> = sent.iter().map(|frame| frame.bytes.len()).collect();
        assert_eq!(lengths, [142, 142, 93]);
        let joined: Vec<u8> = sent
            .iter()
            .flat_map(|frame| frame.bytes[42..].to_vec())
            .collect();
        assert_eq!(joined, payload);
        assert!(sent.iter().all(|frame| verified(&frame.bytes)));
        let identifications: Vec<u16> = sent
            .iter()
            .map(|frame| word(&frame.bytes, 18).unwrap())
            .collect();
        assert_eq!(identifications, [0xfffe, 0xffff, 0]);
    }

    #[test]
    fn a_checksum_left_to_the_hardware_is_finished() {
        let mut frame = super_frame(b"hello", None);
        set_ip(&mut frame.bytes, 34, 0).unwrap();
        // What the kernel leaves in the field: the folded sum over the pseudo header.
        let pseudo = fold(sum(13 + 17, &frame.bytes[26..34]));
        put(&mut frame.bytes, 40, pseudo).unwrap();
        let sent = to_wire_frames(&frame);
        assert_eq!(sent.len(), 1);
        assert!(verified(&sent[0].bytes));
    }

    #[test]
    fn what_is_not_understood_stays_as_it_is() {
        for length in 0..60 {
            let mut frame = super_frame(&[1; 40], Some(7));
            frame.bytes.truncate(length);
            let sent = to_wire_frames(&frame);
            assert!(!sent.is_empty() || length == 42, "{length}");
        }
    }
}
