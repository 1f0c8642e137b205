//! What a fuzzer calls: any bytes as a run of authentic payloads, in order or not.

use super::Receiver;
use crate::sa::SequenceNumber;

/// Offers `data` as payloads. Its first byte is the window; each payload has a step of the sequence number and a length
/// in front.
///
/// # Panics
///
/// If a packet is released that is none, or more is held than the window allows.
pub fn payloads(data: &[u8]) {
    let Some((&window, mut rest)) = data.split_first() else {
        return;
    };
    let window = u16::from(window % 16);
    let mut receiver = Receiver::default();
    let mut released = 0;
    let mut check = |packet: super::Released<'_>| {
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
        receiver.offer(SequenceNumber(number), payload, window, now, &mut check);
        assert!(receiver.held() <= usize::from(window));
        now += u64::from(*step & 7);
        receiver.expire(20, now, &mut check);
        rest = later;
    }
    receiver.expire(0, now + 1, &mut check);
    assert!(receiver.held() <= usize::from(window));
    // No packet is shorter than 20 bytes, no drop is named without a payload or a packet begun.
    assert!(released <= data.len());
}
