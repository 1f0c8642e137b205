use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

/// The window as RFC 4303 describes it, by remembering everything.
struct Naive {
    size: u64,
    top: u64,
    seen: HashSet<u64>,
}

impl Naive {
    fn admit(&mut self, number: u64) -> Result<(), Dropped> {
        if self.size > 0 && number <= self.top {
            if self.top - number >= self.size {
                return Err(Dropped::TooOld);
            }
            if self.seen.contains(&number) {
                return Err(Dropped::Replayed);
            }
        }
        self.seen.insert(number);
        self.top = self.top.max(number);
        Ok(())
    }
}

fn admit(window: &mut ReplayWindow, number: u64) -> Result<(), Dropped> {
    window.admit(SequenceNumber(number))
}

/// Numbered steps around zero, the edges and a jump of several windows, after the kernel's WireGuard self-test (the
/// cases; its limit of messages has no counterpart here).
#[test]
fn the_window_takes_and_refuses_around_every_edge() {
    const SIZE: u64 = 1024;
    let steps: &[(u64, Result<(), Dropped>)] = &[
        (1, Ok(())),
        (1, Err(Dropped::Replayed)),
        (9, Ok(())),
        (8, Ok(())),
        (7, Ok(())),
        (7, Err(Dropped::Replayed)),
        (SIZE, Ok(())),
        (SIZE - 1, Ok(())),
        (SIZE - 1, Err(Dropped::Replayed)),
        (SIZE - 2, Ok(())),
        (2, Ok(())),
        (2, Err(Dropped::Replayed)),
        (SIZE + 16, Ok(())),
        (3, Err(Dropped::TooOld)),
        (16, Err(Dropped::TooOld)),
        (17, Ok(())),
        (SIZE + 16, Err(Dropped::Replayed)),
        (SIZE * 4, Ok(())),
        (SIZE * 4 - (SIZE - 1), Ok(())),
        (10, Err(Dropped::TooOld)),
        (SIZE * 4 - SIZE, Err(Dropped::TooOld)),
        (SIZE * 4 - (SIZE + 1), Err(Dropped::TooOld)),
        (SIZE * 4 - (SIZE - 2), Ok(())),
        (SIZE * 4 + 1 - SIZE, Err(Dropped::Replayed)),
        (0, Err(Dropped::TooOld)),
        (u64::MAX, Ok(())),
        (u64::MAX - (SIZE - 1), Ok(())),
        (u64::MAX - SIZE, Err(Dropped::TooOld)),
        (u64::MAX, Err(Dropped::Replayed)),
    ];
    let mut window = ReplayWindow::new(SIZE as u32);
    for (step, (number, expected)) in steps.iter().enumerate() {
        assert_eq!(
            admit(&mut window, *number),
            *expected,
            "step {step}: {number}"
        );
    }
}

#[test]
fn full_windows_sweep_up_and_down_once_and_not_twice() {
    for size in [1, 2, 32, 63, 64, 65, 1024, 8191, 8192] {
        let mut window = ReplayWindow::new(size);
        let size = u64::from(size);
        for number in 1..=size {
            assert_eq!(admit(&mut window, number), Ok(()));
        }
        for number in 1..=size {
            assert_eq!(admit(&mut window, number), Err(Dropped::Replayed));
        }
        let mut window = ReplayWindow::new(size as u32);
        for number in (1..=size).rev() {
            assert_eq!(
                admit(&mut window, number),
                Ok(()),
                "size {size} number {number}"
            );
        }
        assert_eq!(admit(&mut window, size + 1), Ok(()));
        assert_eq!(admit(&mut window, 1), Err(Dropped::TooOld));
    }
}

#[test]
fn without_a_window_everything_passes_but_the_top_is_known() {
    let mut window = ReplayWindow::new(0);
    for number in [5, 5, 1, 0] {
        assert_eq!(admit(&mut window, number), Ok(()));
    }
    assert_eq!(window.top(), 5);
}

#[test]
fn an_extended_number_gets_the_high_half_that_appendix_a2_gives() {
    let mut window = ReplayWindow::new(64);
    assert_eq!(window.extend(1), Some(SequenceNumber(1)));
    assert_eq!(window.extend(u32::MAX), None, "before the first packet");
    admit(&mut window, 0xffff_fff0).unwrap();
    assert_eq!(
        window.extend(0xffff_fff5),
        Some(SequenceNumber(0xffff_fff5))
    );
    assert_eq!(window.extend(3), Some(SequenceNumber(0x1_0000_0003)));
    assert_eq!(
        window.extend(0xffff_ffb1),
        Some(SequenceNumber(0xffff_ffb1)),
        "the oldest inside"
    );
    assert_eq!(
        window.extend(0xffff_ffb0),
        Some(SequenceNumber(0x1_ffff_ffb0)),
        "one older must be of the next round"
    );
    admit(&mut window, 0x1_0000_0003).unwrap();
    assert_eq!(
        window.extend(0xffff_fff5),
        Some(SequenceNumber(0xffff_fff5)),
        "the window spans two rounds"
    );
    assert_eq!(window.extend(0), Some(SequenceNumber(0x1_0000_0000)));
}

/// RFC 4303 A2.1, case B: what the window of a young association reaches below zero was never sent.
#[test]
fn nothing_lies_before_the_first_packet_and_a_full_window_reaches_down_to_it() {
    let mut window = ReplayWindow::new(64);
    for back in 1..64_u32 {
        assert_eq!(window.extend(back.wrapping_neg()), None, "{back} before");
    }
    assert_eq!(
        window.extend(64_u32.wrapping_neg()),
        Some(SequenceNumber((1 << 32) - 64))
    );
    admit(&mut window, 63).unwrap();
    for number in [0, 1, 63, 64, 70] {
        assert_eq!(window.extend(number), Some(SequenceNumber(number.into())));
    }
}

#[test]
fn extended_numbers_follow_without_a_window_too() {
    let mut window = ReplayWindow::new(0);
    admit(&mut window, 0xffff_ffff).unwrap();
    assert_eq!(window.extend(0), Some(SequenceNumber(0x1_0000_0000)));
    assert_eq!(
        window.extend(0xffff_0000),
        Some(SequenceNumber(0xffff_0000))
    );
}

#[test]
fn resizing_keeps_what_was_received_and_refuses_what_is_unknown() {
    let mut window = ReplayWindow::new(64);
    for number in [100, 90, 80] {
        admit(&mut window, number).unwrap();
    }
    window.resize(1024);
    assert_eq!(admit(&mut window, 90), Err(Dropped::Replayed));
    assert_eq!(admit(&mut window, 91), Ok(()));
    assert_eq!(
        admit(&mut window, 20),
        Err(Dropped::Replayed),
        "older than the small window knew"
    );
    window.resize(8);
    assert_eq!(admit(&mut window, 91), Err(Dropped::TooOld));
    assert_eq!(admit(&mut window, 99), Ok(()));
}

proptest! {
    #[test]
    fn the_ring_agrees_with_a_naive_set(
        size in prop_oneof![Just(1u32), Just(32), Just(64), Just(100), Just(1024), Just(8192)],
        steps in prop::collection::vec((0u64..3, 0u64..20_000), 1..400),
    ) {
        let mut window = ReplayWindow::new(size);
        let mut naive = Naive { size: size.into(), top: 0, seen: HashSet::new() };
        for (kind, amount) in steps {
            let number = match kind {
                0 => naive.top + amount % 4 + 1,
                1 => naive.top.saturating_sub(amount % (2 * u64::from(size))),
                _ => naive.top + amount,
            };
            prop_assert_eq!(admit(&mut window, number), naive.admit(number), "{}", number);
        }
    }

    #[test]
    fn extension_finds_every_number_near_the_top(top in 100_000u64..1 << 40, distance in -8191i64..100_000) {
        let mut window = ReplayWindow::new(8192);
        admit(&mut window, top).unwrap();
        let number = top.wrapping_add_signed(distance);
        prop_assert_eq!(window.extend(number as u32), Some(SequenceNumber(number)));
    }
}
