//! Any bytes as AGGFRAG payloads whose ICVs were right, in order or not.

use ipsec::aggfrag::{Unpacked, Unpacker};
use ipsec::sa::SequenceNumber;

/// Offers `data` as payloads. Its first byte is the window; each payload has a step of the sequence number and a length
/// in front.
///
/// # Panics
///
/// If bytes are returned that are not a packet, or more is held than the window allows.
pub fn check(data: &[u8]) {
    let Some((&window, mut rest)) = data.split_first() else {
        return;
    };
    let window = u16::from(window % 16);
    let mut unpacker = Unpacker::default();
    let mut released = 0;
    let mut inspect = |packet: Unpacked<'_>| {
        released += 1;
        if let Ok(packet) = packet {
            assert!(matches!(packet.first().map(|byte| byte >> 4), Some(4 | 6)));
            assert!(packet.len() >= 20);
        }
    };
    let (mut number, mut now) = (0u64, 0);
    while let [step, high, low, tail @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (payload, later) = tail.split_at(len);
        number = number.wrapping_add_signed(i64::from(*step as i8)).max(1);
        unpacker.offer(SequenceNumber(number), payload, window, now, &mut inspect);
        assert!(unpacker.held() <= usize::from(window));
        now += u64::from(*step & 7);
        unpacker.expire(20, now, &mut inspect);
        rest = later;
    }
    unpacker.expire(0, now + 1, &mut inspect);
    assert!(unpacker.held() <= usize::from(window));
    // No packet is shorter than 20 bytes, no drop is named without a payload or a packet begun.
    assert!(released <= data.len());
}
