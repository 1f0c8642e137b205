//! The Internet Protocol, both versions: IPv4 (RFC 791) in [`v4`], IPv6 (RFC 8200) in [`v6`], and the numbers of what
//! they carry.

pub mod number;
pub mod v4;
pub mod v6;

pub use v4::{Ipv4, Ipv4Fields};
pub use v6::{Chain, Ipv6, Ipv6Fields};

use super::checksum;
use crate::Dropped;

/// A packet of either version.
#[derive(Clone, Copy, Debug)]
pub enum Ip<'a> {
    /// IPv4.
    V4(Ipv4<'a>),
    /// IPv6.
    V6(Ipv6<'a>),
}

impl<'a> Ip<'a> {
    /// Reads the version and the fixed header of it.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Dropped> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(4) => Ipv4::new_checked(bytes).map(Self::V4),
            Some(6) => Ipv6::new_checked(bytes).map(Self::V6),
            Some(_) => Err(Dropped::Unsupported),
            None => Err(Dropped::Malformed),
        }
    }

    /// Bytes of the packet by its own header.
    pub fn total_len(&self) -> usize {
        match self {
            Self::V4(ipv4) => ipv4.total_len(),
            Self::V6(ipv6) => ipv6.total_len(),
        }
    }
}

/// Takes one off the hop limit of the packet that `header` begins, as every router does (RFC 1812 5.3.1, RFC 8200 3);
/// IPv4's checksum follows. False where it was the last, or where there is no header: then nothing changes.
pub fn decrement_hop_limit(header: &mut [u8]) -> bool {
    match header {
        [first, ..] if *first >> 4 == 4 => decrement_hop_limit_v4(header),
        [first, _, _, _, _, _, _, limit, ..] if *first >> 4 == 6 && *limit > 1 => {
            *limit -= 1;
            true
        }
        _ => false,
    }
}

fn decrement_hop_limit_v4(header: &mut [u8]) -> bool {
    let Some(fixed) = header.first_chunk_mut::<{ v4::MIN_HEADER_LEN }>() else {
        return false;
    };
    let (limit, protocol) = (fixed[8], fixed[9]);
    if limit <= 1 {
        return false;
    }
    let (old, new) = ([limit, protocol], [limit - 1, protocol]);
    let sum = u16::from_be_bytes([fixed[10], fixed[11]]);
    let mended = checksum::mend(sum, u16::from_be_bytes(old), u16::from_be_bytes(new));
    fixed[8] = limit - 1;
    fixed[10..12].copy_from_slice(&mended.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_takes_one_off_the_limit_and_the_checksum_stays_right() {
        for limit in 0..=255u8 {
            let fields = Ipv4Fields {
                traffic_class: 0xb9,
                identification: 0x1234,
                dont_fragment: true,
                hop_limit: limit,
                protocol: number::UDP,
                source: [10, 1, 0, 2].into(),
                destination: [10, 2, 0, limit].into(),
            };
            let before = fields.emit(0);
            let mut packet = before;
            assert_eq!(decrement_hop_limit(&mut packet), limit > 1);
            let after = match limit {
                0 | 1 => before,
                _ => Ipv4Fields {
                    hop_limit: limit - 1,
                    ..fields
                }
                .emit(0),
            };
            assert_eq!(packet, after, "{limit}");
        }
    }

    #[test]
    fn the_last_hop_and_what_is_no_packet_stay_as_they_are() {
        let mut six = [0u8; 40];
        (six[0], six[7]) = (0x60, 2);
        assert!(decrement_hop_limit(&mut six));
        assert_eq!(six[7], 1);
        assert!(!decrement_hop_limit(&mut six));
        assert_eq!(six[7], 1);
        for mut nothing in [vec![], vec![0x45; 19], vec![0x60; 7], vec![0x55; 40]] {
            assert!(!decrement_hop_limit(&mut nothing));
        }
    }
}
