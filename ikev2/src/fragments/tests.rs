use super::*;
use crate::message::{Body, ExchangeType, Flags, IkeSpi};

const NOW: Duration = Duration::from_secs(100);

fn header(message_id: u32) -> Header {
    Header {
        initiator_spi: IkeSpi([1; 8]),
        responder_spi: IkeSpi([2; 8]),
        exchange: ExchangeType::IKE_AUTH,
        flags: Flags::default(),
        message_id,
    }
}

/// A vendor ID payload of eight bytes, which is cut behind every second byte.
const TEXT: [u8; 8] = [0, 0, 0, 8, 1, 2, 3, 4];

fn fragment(number: u16, total: u16) -> Fragment<'static> {
    let len = TEXT.len() / usize::from(total);
    let start = len * usize::from(number - 1);
    let first = if number == 1 {
        PayloadType::VENDOR_ID
    } else {
        PayloadType::NONE
    };
    Fragment {
        first,
        number,
        total,
        text: &TEXT[start..start + len],
    }
}

fn assert_complete(offered: Offered) {
    let Offered::Complete(joined) = offered else {
        panic!("{offered:?}")
    };
    let payloads = joined.payloads().unwrap();
    assert_eq!(payloads, [Body::VendorId(&[1, 2, 3, 4]).into()]);
}

#[test]
fn fragments_are_joined_in_any_order() {
    for order in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3]] {
        let mut fragments = Fragments::default();
        for number in &order[..3] {
            assert_eq!(
                fragments.offer(&header(1), fragment(*number, 4), NOW),
                Offered::Waiting
            );
        }
        assert_complete(fragments.offer(&header(1), fragment(order[3], 4), NOW));
        assert_eq!(fragments.held_bytes(), 0);
    }
}

#[test]
fn a_duplicate_changes_nothing() {
    let mut fragments = Fragments::default();
    fragments.offer(&header(1), fragment(1, 2), NOW);
    let again = fragments.offer(&header(1), fragment(1, 2), NOW);
    assert_eq!(again, Offered::Discarded(Reason::Duplicate));
    assert_complete(fragments.offer(&header(1), fragment(2, 2), NOW));
}

#[test]
fn a_larger_total_begins_anew_and_a_smaller_one_comes_too_late() {
    let mut fragments = Fragments::default();
    fragments.offer(&header(1), fragment(1, 2), NOW);
    assert_eq!(
        fragments.offer(&header(1), fragment(2, 4), NOW),
        Offered::Waiting
    );
    let late = fragments.offer(&header(1), fragment(2, 2), NOW);
    assert_eq!(late, Offered::Discarded(Reason::Outdated));
    for number in [1, 3] {
        assert_eq!(
            fragments.offer(&header(1), fragment(number, 4), NOW),
            Offered::Waiting
        );
    }
    assert_complete(fragments.offer(&header(1), fragment(4, 4), NOW));
}

#[test]
fn the_next_message_replaces_one_that_was_never_complete() {
    let mut fragments = Fragments::default();
    fragments.offer(&header(1), fragment(1, 2), NOW);
    assert_eq!(
        fragments.offer(&header(2), fragment(2, 2), NOW),
        Offered::Waiting
    );
    assert_complete(fragments.offer(&header(2), fragment(1, 2), NOW));
}

#[test]
fn fragments_of_another_exchange_are_not_mixed_in() {
    let mut fragments = Fragments::default();
    fragments.offer(&header(1), fragment(1, 2), NOW);
    let other = Header {
        exchange: ExchangeType::INFORMATIONAL,
        ..header(1)
    };
    let offered = fragments.offer(&other, fragment(2, 2), NOW);
    assert_eq!(offered, Offered::Discarded(Reason::OtherHeader));
}

#[test]
fn what_is_held_is_bounded_in_number_bytes_and_time() {
    let mut fragments = Fragments::default();
    let many = Fragment {
        total: MAX_FRAGMENTS + 1,
        ..fragment(1, 1)
    };
    assert_eq!(
        fragments.offer(&header(1), many, NOW),
        Offered::Discarded(Reason::TooMany)
    );

    let long = vec![0; 40_000];
    let part = |number| Fragment {
        first: PayloadType::NONE,
        number,
        total: 3,
        text: &long,
    };
    assert_eq!(fragments.offer(&header(1), part(2), NOW), Offered::Waiting);
    assert_eq!(
        fragments.offer(&header(1), part(3), NOW),
        Offered::Discarded(Reason::TooLong)
    );
    assert_eq!(fragments.held_bytes(), 40_000);

    fragments.expire(NOW + FRAGMENT_TIMEOUT - Duration::from_millis(1));
    assert_eq!(fragments.held_bytes(), 40_000);
    fragments.expire(NOW + FRAGMENT_TIMEOUT);
    assert_eq!(fragments.held_bytes(), 0);

    let empty = Fragment {
        text: &[],
        ..fragment(2, 2)
    };
    assert_eq!(
        fragments.offer(&header(1), empty, NOW),
        Offered::Discarded(Reason::Empty)
    );
}
