//! Finds the IP packet in a captured frame: Ethernet with VLAN tags, raw IP, Linux cooked v1 and v2, loopback.

/// Where the IP packet begins in a frame, or why there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameContent {
    /// An IP packet begins at this offset.
    Ip(usize),
    /// The frame is whole, but carries something else (ARP, LLDP …).
    Other,
    /// The frame is shorter than its own headers.
    Short,
    /// The link type is not supported.
    Unknown,
}

/// BSD loopback: a family word in the byte order of the machine that captured.
const NULL: u32 = 0;
const ETHERNET: u32 = 1;
/// Raw IP: the numbers of two systems, and the registered one.
const RAW: [u32; 3] = [12, 14, 101];
const LINUX_SLL: u32 = 113;
const RAW_IPV4: u32 = 228;
const RAW_IPV6: u32 = 229;
const LINUX_SLL2: u32 = 276;

/// Looks past the link header of a frame.
pub(crate) fn content(link: u32, frame: &[u8]) -> FrameContent {
    match link {
        NULL => by_version(frame, 4),
        ETHERNET => by_ether_type(frame, 12, 14),
        LINUX_SLL => by_ether_type(frame, 14, 16),
        LINUX_SLL2 => by_ether_type(frame, 0, 20),
        RAW_IPV4 | RAW_IPV6 => by_version(frame, 0),
        raw if RAW.contains(&raw) => by_version(frame, 0),
        _ => FrameContent::Unknown,
    }
}

/// `at` is the offset of the type and `next` that of the payload; each VLAN tag moves both by four bytes.
fn by_ether_type(frame: &[u8], at: usize, next: usize) -> FrameContent {
    let (mut at, mut next) = (at, next);
    // At most two tags are usual (802.1ad); a frame with more than eight is malformed.
    for _ in 0..8 {
        let Some(&[high, low]) = frame.get(at..at + 2) else {
            return FrameContent::Short;
        };
        match u16::from_be_bytes([high, low]) {
            0x0800 | 0x86dd => return by_version(frame, next),
            0x8100 | 0x88a8 | 0x9100 => {
                at = next + 2;
                next += 4;
            }
            _ => return FrameContent::Other,
        }
    }
    FrameContent::Other
}

fn by_version(frame: &[u8], offset: usize) -> FrameContent {
    match frame.get(offset).map(|first| first >> 4) {
        Some(4 | 6) => FrameContent::Ip(offset),
        Some(_) => FrameContent::Other,
        None => FrameContent::Short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(middle: &[u8], payload: &[u8]) -> Vec<u8> {
        [&[0x02; 12], middle, payload].concat()
    }

    #[test]
    fn vlan_tags_are_stepped_over_whatever_their_number() {
        let plain = ethernet(&[0x08, 0x00], &[0x45]);
        let tagged = ethernet(&[0x81, 0x00, 0, 7, 0x86, 0xdd], &[0x60]);
        let stacked = ethernet(&[0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 8, 0x08, 0x00], &[0x45]);
        assert_eq!(content(ETHERNET, &plain), FrameContent::Ip(14));
        assert_eq!(content(ETHERNET, &tagged), FrameContent::Ip(18));
        assert_eq!(content(ETHERNET, &stacked), FrameContent::Ip(22));
    }

    #[test]
    fn cooked_captures_of_both_versions_are_read() {
        let mut cooked = vec![0; 16];
        cooked[14..].copy_from_slice(&[0x08, 0x00]);
        cooked.push(0x45);
        assert_eq!(content(LINUX_SLL, &cooked), FrameContent::Ip(16));
        let mut cooked = vec![0; 20];
        cooked[..2].copy_from_slice(&[0x86, 0xdd]);
        cooked.push(0x60);
        assert_eq!(content(LINUX_SLL2, &cooked), FrameContent::Ip(20));
    }

    #[test]
    fn other_protocols_short_frames_and_unknown_links_are_distinguished() {
        assert_eq!(
            content(ETHERNET, &ethernet(&[0x08, 0x06], &[0; 28])),
            FrameContent::Other
        );
        assert_eq!(content(ETHERNET, &[0; 13]), FrameContent::Short);
        assert_eq!(content(101, &[]), FrameContent::Short);
        assert_eq!(content(101, &[0x45]), FrameContent::Ip(0));
        assert_eq!(content(101, &[0x15]), FrameContent::Other);
        assert_eq!(content(105, &[0x45]), FrameContent::Unknown);
        let endless = ethernet(&[0x81, 0x00].repeat(40), &[]);
        assert_eq!(content(ETHERNET, &endless), FrameContent::Other);
    }
}
