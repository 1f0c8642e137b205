use super::*;
use crate::Dropped;
use crate::algorithm::{Encryption, Integrity};
use crate::sa::{LifetimeLimits, Lifetimes};
use crate::sa::{Protocol, SaId, SequenceNumber, Spi};
use crate::suite::{Secret, Suite};
use std::net::{IpAddr, Ipv4Addr};

fn config(name: &str, key_len: usize) -> SaConfig {
    let encryption = (
        Encryption::named(name).unwrap(),
        Secret::new(vec![1; key_len]),
    );
    let integrity = (encryption.0.icv_len == 0).then(|| {
        (
            Integrity::named("hmac-sha1").unwrap(),
            Secret::new(vec![2; 20]),
        )
    });
    let id = SaId {
        destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
        protocol: Protocol::Esp,
        spi: Spi::new(256).unwrap(),
    };
    let suite = Suite::new(Some(encryption), integrity, None).unwrap();
    SaConfig {
        replay_window: 64,
        ..SaConfig::new(id, IpAddr::V4(Ipv4Addr::LOCALHOST), suite)
    }
}

/// AH by AES-GMAC: a counter nonce of an integrity algorithm.
fn gmac() -> SaConfig {
    let row = Integrity::named("aes-128-gmac").unwrap();
    let suite = Suite::new(None, Some((row, Secret::new(vec![1; 20]))), None).unwrap();
    let mut config = config("aes-gcm-16", 20);
    config.id.protocol = Protocol::Ah;
    SaConfig { suite, ..config }
}

#[test]
fn a_counter_nonce_waits_for_reserved_numbers_and_reports_it_once() {
    for config in [config("aes-gcm-16", 20), gmac()] {
        waits_for_reserved_numbers(config);
    }
}

fn waits_for_reserved_numbers(config: SaConfig) {
    let state = SaState::new(&config, 0, 0);
    state.allow_up_to(10);
    assert_eq!(
        state.reserve(&config, 44, 1, 1),
        Ok((SequenceNumber(1), 10))
    );
    assert!(!state.saved_and_shortage().1);
    assert_eq!(state.reserve(&config, 1, 1, 1), Err(Dropped::StateNotKept));
    assert!(state.saved_and_shortage().1 && !state.saved_and_shortage().1);
    assert_eq!(state.take_events(&config, 1), []);
    state.allow_up_to(12);
    assert_eq!(
        state.reserve(&config, 44, 1, 1),
        Ok((SequenceNumber(11), 2))
    );
}

#[test]
fn a_random_iv_goes_on_beyond_what_is_reserved() {
    let config = config("aes-cbc", 16);
    let state = SaState::new(&config, 0, 0);
    state.allow_up_to(10);
    assert_eq!(
        state.reserve(&config, 44, 1, 1),
        Ok((SequenceNumber(1), 10))
    );
    assert_eq!(
        state.reserve(&config, 44, 1, 1),
        Ok((SequenceNumber(11), 44))
    );
    assert!(state.saved_and_shortage().1);
}

#[test]
fn the_last_number_of_all_is_the_last_one_however_much_is_allowed() {
    let config = config("aes-gcm-16", 20);
    let state = SaState::new(&config, 0, 0);
    let last = config.last_number();
    state.raise(&config, last, 0);
    state.allow_up_to(last);
    assert_eq!(state.reserve(&config, 1, 1, 1), Err(Dropped::SequenceOver));
    assert!(!state.saved_and_shortage().1);
}

#[test]
fn what_is_resumed_goes_on_behind_the_numbers_and_refuses_all_up_to_the_edge() {
    let config = config("aes-gcm-16", 20);
    let before = SaState::new(&config, 100, 0);
    before.reserve(&config, 5, 10, 200).unwrap();
    for number in [7, 9] {
        let number = SequenceNumber(number);
        before.admit(&config, number, 10, 200).unwrap();
    }
    let kept = before.saved();
    assert_eq!((kept.sent, kept.edge, kept.bytes), (5, 9, 70));
    let after = SaState::new(&config, 1000, 0);
    after.resume(&config, &kept);
    assert_eq!(after.saved(), kept);
    for number in 1..=9 {
        assert!(after.precheck(&config, number).is_err(), "{number}");
    }
    assert!(after.precheck(&config, 10).is_ok());
    after.raise(&config, 3, 8);
    assert_eq!((after.saved().sent, after.saved().edge), (5, 9));
}

#[test]
fn counter_ivs_go_on_where_they_were() {
    let config = config("aes-gcm-16", 20);
    let before = SaState::new(&config, 100, 77);
    before.reserve(&config, 5, 10, 200).unwrap();
    let after = SaState::new(&config, 200, 4711);
    after.resume(&config, &before.saved());
    after.resume_counter(before.counter_start());
    let (next, _) = after.reserve(&config, 1, 10, 201).unwrap();
    assert_eq!((next, after.counter_iv(next)), (SequenceNumber(6), 83));
}

#[test]
fn a_lifetime_goes_on_where_it_was() {
    let hard = LifetimeLimits {
        age: 60,
        ..LifetimeLimits::default()
    };
    let config = SaConfig {
        lifetimes: Lifetimes {
            hard,
            ..Lifetimes::default()
        },
        ..config("aes-gcm-16", 20)
    };
    let state = SaState::new(&config, 1000, 0);
    let kept = SavedCounters {
        created: 950,
        ..SavedCounters::default()
    };
    state.resume(&config, &kept);
    assert!(state.reserve(&config, 1, 1, 1009).is_ok());
    assert_eq!(
        state.reserve(&config, 1, 1, 1010),
        Err(Dropped::LifetimeOver)
    );
}

#[test]
fn where_no_more_is_reserved_numbers_end_with_the_last_one_used() {
    let config = config("aes-gcm-16", 20);
    let state = SaState::new(&config, 0, 0);
    state.allow_up_to(100);
    state.reserve(&config, 7, 1, 1).unwrap();
    assert_eq!(state.freeze_numbers(), 7);
    assert_eq!(state.reserve(&config, 1, 1, 1), Err(Dropped::StateNotKept));
    state.allow_up_to(5);
    assert_eq!(state.freeze_numbers(), 5, "never more than was allowed");
}

#[test]
fn an_edge_that_is_no_higher_takes_nothing_from_the_window() {
    let config = config("aes-gcm-16", 20);
    let state = SaState::new(&config, 0, 0);
    for number in [7, 9].map(SequenceNumber) {
        state.admit(&config, number, 10, 1).unwrap();
    }
    state.raise(&config, 0, 9);
    assert!(state.precheck(&config, 8).is_ok(), "late, and never seen");
    state.raise(&config, 0, 10);
    assert!(state.precheck(&config, 8).is_err());
}

#[test]
fn a_window_goes_on_with_what_was_missing_and_refuses_what_it_had() {
    for received in [vec![1], (1..=200).collect(), vec![3, 64, 65, 130, 131, 190]] {
        let config = config("aes-gcm-16", 20);
        let before = SaState::new(&config, 0, 0);
        for number in &received {
            let number = SequenceNumber(*number);
            before.admit(&config, number, 10, 1).unwrap();
        }
        let after = SaState::new(&config, 0, 0);
        after.resume_window(&config, before.saved().edge, &before.seen());
        for number in 1..=300 {
            let (was, is) = (
                before.precheck(&config, number),
                after.precheck(&config, number),
            );
            assert_eq!(was, is, "{number} after {received:?}");
        }
    }
}

#[test]
fn a_window_of_which_too_little_was_told_refuses_the_rest() {
    let config = config("aes-gcm-16", 20);
    let state = SaState::new(&config, 0, 0);
    state.resume_window(&config, 1000, &[]);
    for number in 1..=1000 {
        assert!(state.precheck(&config, number).is_err(), "{number}");
    }
    assert!(state.precheck(&config, 1001).is_ok());
}

#[test]
fn keys_are_over_at_the_first_of_their_limits_and_not_before() {
    let hard = LifetimeLimits {
        bytes: 1000,
        packets: 10,
        age: 60,
        first_use: 30,
    };
    let endless = config("aes-gcm-16", 20);
    let limited = SaConfig {
        lifetimes: Lifetimes {
            hard,
            ..Lifetimes::default()
        },
        ..endless.clone()
    };
    let extended = SaConfig {
        esn: true,
        ..endless.clone()
    };
    let kept = SavedCounters {
        created: 1000,
        first_used: 1010,
        ..SavedCounters::default()
    };
    let unused = SavedCounters {
        first_used: 0,
        ..kept
    };
    let bytes = |bytes| SavedCounters { bytes, ..kept };
    let packets = |packets| SavedCounters { packets, ..kept };
    let sent = |sent| SavedCounters { sent, ..kept };
    let last = u64::from(u32::MAX);
    for (config, kept, now, expected) in [
        (&limited, kept, 1039, false),
        (&limited, kept, 1040, true),
        (&limited, unused, 1059, false),
        (&limited, unused, 1060, true),
        (&limited, bytes(999), 1020, false),
        (&limited, bytes(1000), 1020, true),
        (&limited, packets(9), 1020, false),
        (&limited, packets(10), 1020, true),
        (&endless, bytes(u64::MAX), 1 << 40, false),
        (&endless, sent(last - 1), 1020, false),
        (&endless, sent(last), 1020, true),
        (&extended, sent(last), 1020, false),
    ] {
        assert_eq!(
            config.is_exhausted(&kept, now),
            expected,
            "{kept:?} at {now}"
        );
    }
}
