//! Any bytes as packets that arrive one after the other: reassembled, and cut into fragments.

use ipsec::fragment::{Cutter, Offered, Reassembler, ReassemblyLimits};
use ipsec::wire::ip::Ip;

/// Reads `data` as packets that arrive one after the other, each behind two bytes of its length, and reassembles them.
///
/// # Panics
///
/// If the reassembler keeps more than it may, or returns bytes that are not a packet.
pub fn check(data: &[u8]) {
    let limits = ReassemblyLimits {
        bytes: 4096,
        pieces: 8,
        seconds: 3,
    };
    let mut reassembler = Reassembler::new(limits);
    let mut rest = data;
    for now in 0.. {
        let Some(([high, low], behind)) = rest.split_first_chunk() else {
            return;
        };
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(behind.len());
        let (packet, behind) = behind.split_at(len);
        if let Ok(Offered::Joined(whole)) = reassembler.offer(packet, now / 4) {
            assert!(is_whole(&whole));
        }
        assert!(reassembler.held_bytes() <= limits.bytes);
        cut(packet, len / 2);
        rest = behind;
    }
}

fn is_whole(packet: &[u8]) -> bool {
    Ip::new_checked(packet).is_ok_and(|ip| ip.total_len() == packet.len())
}

fn cut(packet: &[u8], mtu: usize) {
    let mut out = Vec::new();
    if let Ok(mut cutter) = Cutter::new(packet, mtu, 1) {
        while let Some(len) = cutter.next_into(&mut out) {
            assert!(len <= mtu);
        }
    }
}
