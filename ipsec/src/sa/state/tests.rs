use super::*;
use crate::algorithm::Encryption;
use crate::sa::{LifetimeLimits, Lifetimes};
use crate::sa::{Protocol, SaId, Spi, UdpEncapsulation};
use crate::suite::{Secret, Suite};
use std::net::{IpAddr, Ipv4Addr};

fn config(soft: LifetimeLimits, hard: LifetimeLimits) -> SaConfig {
    let encryption = (
        Encryption::named("aes-gcm-16").unwrap(),
        Secret::new(vec![1; 20]),
    );
    let id = SaId {
        destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
        protocol: Protocol::Esp,
        spi: Spi::new(256).unwrap(),
    };
    let suite = Suite::new(Some(encryption), None, None).unwrap();
    SaConfig {
        lifetimes: Lifetimes { soft, hard },
        replay_window: 64,
        ..SaConfig::new(id, IpAddr::V4(Ipv4Addr::LOCALHOST), suite)
    }
}

#[test]
fn a_train_takes_consecutive_numbers() {
    let config = config(LifetimeLimits::default(), LifetimeLimits::default());
    let state = SaState::new(&config, 100, 0);
    assert_eq!(
        state.reserve(&config, 44, 1400, 101),
        Ok((SequenceNumber(1), 44))
    );
    assert_eq!(
        state.reserve(&config, 1, 60, 102),
        Ok((SequenceNumber(45), 1))
    );
    let tally = state.usage();
    assert_eq!(
        (tally.sequence, tally.packets, tally.bytes),
        (45, 45, 44 * 1400 + 60)
    );
    assert_eq!(
        (tally.created, tally.first_used, tally.last_used),
        (100, 101, 102)
    );
    assert_eq!(tally.phase, Phase::Mature);
}

#[test]
fn a_hard_limit_of_packets_is_reached_exactly_and_reported_once() {
    let limits = LifetimeLimits {
        packets: 10,
        ..LifetimeLimits::default()
    };
    let config = config(
        LifetimeLimits {
            packets: 6,
            ..LifetimeLimits::default()
        },
        limits,
    );
    let state = SaState::new(&config, 0, 0);
    assert_eq!(
        state.reserve(&config, 5, 100, 1),
        Ok((SequenceNumber(1), 5))
    );
    assert_eq!(state.take_events(&config, 1), []);
    assert_eq!(
        state.reserve(&config, 8, 100, 1),
        Ok((SequenceNumber(6), 5)),
        "no more than are left"
    );
    assert_eq!(state.take_events(&config, 1), [LifetimeEvent::Soft]);
    assert_eq!(
        state.reserve(&config, 1, 100, 1),
        Err(Dropped::LifetimeOver)
    );
    assert_eq!(state.take_events(&config, 1), [LifetimeEvent::Hard]);
    assert_eq!(state.take_events(&config, 1), []);
    assert!(state.is_dead());
}

#[test]
fn a_hard_limit_of_bytes_is_never_overshot_in_either_direction() {
    let config = config(
        LifetimeLimits::default(),
        LifetimeLimits {
            bytes: 1000,
            ..LifetimeLimits::default()
        },
    );
    let out = SaState::new(&config, 0, 0);
    assert_eq!(out.reserve(&config, 10, 300, 1), Ok((SequenceNumber(1), 3)));
    assert_eq!(out.reserve(&config, 1, 300, 1), Err(Dropped::LifetimeOver));
    let inbound = SaState::new(&config, 0, 0);
    for number in 1..=3 {
        assert_eq!(
            inbound.admit(&config, SequenceNumber(number), 300, 1),
            Ok(())
        );
    }
    assert_eq!(
        inbound.admit(&config, SequenceNumber(4), 300, 1),
        Err(Dropped::LifetimeOver)
    );
    assert_eq!(inbound.usage().bytes, 900);
}

#[test]
fn age_and_first_use_end_an_association_even_if_nothing_moves() {
    let soft = LifetimeLimits {
        age: 50,
        ..LifetimeLimits::default()
    };
    let aged = config(
        soft,
        LifetimeLimits {
            age: 60,
            ..LifetimeLimits::default()
        },
    );
    let state = SaState::new(&aged, 1000, 0);
    assert_eq!(state.take_events(&aged, 1049), []);
    assert_eq!(state.take_events(&aged, 1050), [LifetimeEvent::Soft]);
    assert_eq!(state.take_events(&aged, 1060), [LifetimeEvent::Hard]);
    let used = config(
        LifetimeLimits::default(),
        LifetimeLimits {
            first_use: 10,
            ..LifetimeLimits::default()
        },
    );
    let state = SaState::new(&used, 0, 0);
    assert_eq!(state.reserve(&used, 1, 1, 5000), Ok((SequenceNumber(1), 1)));
    assert_eq!(state.reserve(&used, 1, 1, 5009), Ok((SequenceNumber(2), 1)));
    assert_eq!(state.reserve(&used, 1, 1, 5010), Err(Dropped::LifetimeOver));
}

#[test]
fn sequence_numbers_end_before_they_repeat() {
    let short = config(LifetimeLimits::default(), LifetimeLimits::default());
    let state = SaState::new(&short, 0, 0);
    state.counters().sent = u64::from(u32::MAX) - 2;
    assert_eq!(
        state.reserve(&short, 44, 1, 1),
        Ok((SequenceNumber(0xffff_fffe), 2))
    );
    assert_eq!(state.reserve(&short, 1, 1, 1), Err(Dropped::SequenceOver));
    assert_eq!(state.take_events(&short, 1), [LifetimeEvent::SequenceOver]);
    let extended = SaConfig { esn: true, ..short };
    let state = SaState::new(&extended, 0, 0);
    state.counters().sent = u64::from(u32::MAX) - 2;
    assert_eq!(
        state.reserve(&extended, 44, 1, 1),
        Ok((SequenceNumber(0xffff_fffe), 44))
    );
    state.counters().sent = u64::MAX - 1;
    assert_eq!(
        state.reserve(&extended, 2, 1, 1),
        Ok((SequenceNumber(u64::MAX), 1))
    );
    assert_eq!(
        state.reserve(&extended, 1, 1, 1),
        Err(Dropped::SequenceOver)
    );
}

/// Where an update may meet an association, and what it sends next: with extended numbers and without, before and
/// after.
#[test]
fn numbers_never_repeat_whatever_an_update_makes_of_them() {
    let limit = u64::from(u32::MAX);
    let table = [
        (0, [Some(1), Some(1)]),
        (limit - 1, [Some(limit), Some(limit)]),
        (limit, [None, Some(limit + 1)]),
        (limit + 1, [None, Some(limit + 2)]),
        (u64::MAX - 1, [None, Some(u64::MAX)]),
        (u64::MAX, [None, None]),
    ];
    for (sent, [short, extended]) in table {
        for (before, after) in [(false, false), (false, true), (true, false), (true, true)] {
            if !before && sent > limit {
                continue;
            }
            let old = config(LifetimeLimits::default(), LifetimeLimits::default());
            let new = SaConfig {
                esn: after,
                ..old.clone()
            };
            let state = SaState::new(&SaConfig { esn: before, ..old }, 0, 0);
            state.counters().sent = sent;
            state.reconfigure(&new);
            let next = state.reserve(&new, 1, 1, 1).map(|(first, _)| first.0);
            let wanted = if after { extended } else { short };
            let case = format!("{sent}, esn {before} before and {after} after");
            assert_eq!(next, wanted.ok_or(Dropped::SequenceOver), "{case}");
            let refused = state.check_update(&new).is_err();
            assert_eq!(refused, !after && sent > limit, "{case}");
        }
    }
}

#[test]
fn a_window_beyond_32_bits_cannot_do_without_extended_numbers() {
    let short = config(LifetimeLimits::default(), LifetimeLimits::default());
    let extended = SaConfig {
        esn: true,
        ..short.clone()
    };
    let state = SaState::new(&extended, 0, 0);
    let far = SequenceNumber(u64::from(u32::MAX) + 9);
    state.admit(&extended, far, 1, 1).unwrap();
    assert!(state.check_update(&extended).is_ok());
    assert!(state.check_update(&short).is_err());
    // Were it updated all the same, nothing seen before would pass.
    state.reconfigure(&short);
    assert_eq!(state.precheck(&short, 8), Err(Dropped::TooOld));
}

#[test]
fn an_association_continues_behind_the_configured_number() {
    let used = SaConfig {
        sequence: 1000,
        ..config(LifetimeLimits::default(), LifetimeLimits::default())
    };
    let state = SaState::new(&used, 0, 0);
    assert_eq!(state.usage().sequence, 1000);
    assert_eq!(state.reserve(&used, 1, 1, 1), Ok((SequenceNumber(1001), 1)));
    assert_eq!(state.precheck(&used, 1000), Err(Dropped::Replayed));
    assert_eq!(state.precheck(&used, 937), Err(Dropped::Replayed));
    assert_eq!(state.precheck(&used, 936), Err(Dropped::TooOld));
    assert_eq!(state.precheck(&used, 1001), Ok(SequenceNumber(1001)));
}

#[test]
fn a_precheck_moves_nothing_and_zero_is_no_number() {
    let config = config(LifetimeLimits::default(), LifetimeLimits::default());
    let state = SaState::new(&config, 0, 0);
    assert_eq!(state.precheck(&config, 0), Err(Dropped::ZeroSequence));
    assert_eq!(state.precheck(&config, 500), Ok(SequenceNumber(500)));
    assert_eq!(
        state.precheck(&config, 1),
        Ok(SequenceNumber(1)),
        "the pre-check of 500 moved nothing"
    );
    state.admit(&config, SequenceNumber(500), 1, 1).unwrap();
    assert_eq!(state.precheck(&config, 500), Err(Dropped::Replayed));
    assert_eq!(state.precheck(&config, 436), Err(Dropped::TooOld));
    assert_eq!(
        state.admit(&config, SequenceNumber(500), 1, 1),
        Err(Dropped::Replayed),
        "checked again"
    );
    assert_eq!(state.usage().packets, 1);
}

#[test]
fn drops_are_kept_by_reason() {
    let config = config(LifetimeLimits::default(), LifetimeLimits::default());
    let state = SaState::new(&config, 0, 0);
    state.count_drop(Dropped::BadIcv);
    state.count_drop(Dropped::BadIcv);
    assert_eq!(state.drops(), [(Dropped::BadIcv, 2)]);
}

#[test]
fn a_run_that_is_held_counts_like_its_packets_one_by_one() {
    let limits = LifetimeLimits {
        packets: 6,
        ..LifetimeLimits::default()
    };
    let config = config(LifetimeLimits::default(), limits);
    let (run, single) = [0, 0].map(|start| SaState::new(&config, 1, start)).into();
    // Forwards, back, twice, too old, and past the limit.
    let numbers = [70, 72, 71, 71, 1, 140, 139, 141, 142].map(SequenceNumber);
    let mut held = run.lock();
    for number in numbers {
        assert_eq!(
            held.precheck(&config, number.low()),
            single.precheck(&config, number.low())
        );
        assert_eq!(
            held.admit(&config, number, 10, 2),
            single.admit(&config, number, 10, 2)
        );
    }
    drop(held);
    assert_eq!(run.usage(), single.usage());
    assert_eq!(run.usage().packets, 6);
}

#[test]
fn an_update_brings_no_association_back_whose_life_is_over() {
    let one_packet = LifetimeLimits {
        packets: 1,
        ..LifetimeLimits::default()
    };
    let mortal = config(LifetimeLimits::default(), one_packet);
    let endless = config(LifetimeLimits::default(), LifetimeLimits::default());
    let state = SaState::new(&mortal, 0, 0);
    assert!(state.reserve(&mortal, 1, 1, 1).is_ok() && !state.is_dead());
    assert!(state.reserve(&mortal, 1, 1, 1).is_err() && state.is_dead());
    state.reconfigure(&endless);
    assert_eq!(state.reserve(&endless, 1, 1, 1), Err(Dropped::LifetimeOver));
    assert_eq!(
        state.admit(&endless, SequenceNumber(1), 1, 1),
        Err(Dropped::LifetimeOver)
    );
}

/// RFC 4303 3.4.3: without anti-replay no number is looked at.
#[test]
fn without_a_window_zero_is_a_number_like_others() {
    let unchecked = SaConfig {
        replay_window: 0,
        ..config(LifetimeLimits::default(), LifetimeLimits::default())
    };
    let state = SaState::new(&unchecked, 0, 0);
    for _ in 0..2 {
        assert_eq!(state.precheck(&unchecked, 0), Ok(SequenceNumber(0)));
        assert_eq!(state.admit(&unchecked, SequenceNumber(0), 1, 1), Ok(()));
    }
}

/// RFC 7296 2.23: behind a NAT the other side may come from elsewhere, and come back.
#[test]
fn a_peer_that_a_nat_has_moved_is_known_until_it_is_back() {
    let native = config(LifetimeLimits::default(), LifetimeLimits::default());
    let in_udp = SaConfig {
        encapsulation: Some(UdpEncapsulation {
            source_port: 4500,
            destination_port: 4500,
        }),
        ..native.clone()
    };
    let state = SaState::new(&in_udp, 0, 0);
    let at = |port| SocketAddr::new(in_udp.source, port);
    let elsewhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), 4500);
    for (from, expected) in [
        (at(4500), None),
        (at(40_001), Some(at(40_001))),
        (at(40_002), Some(at(40_002))),
        (elsewhere, Some(elsewhere)),
        (at(4500), None),
    ] {
        state.record_peer_endpoint(&in_udp, from);
        assert_eq!(state.observed_peer_endpoint(), expected, "{from}");
    }
    state.record_peer_endpoint(&in_udp, at(40_001));
    let mut updated = in_udp.clone();
    for (source_port, expected) in [(40_002, Some(at(40_001))), (40_001, None)] {
        updated.encapsulation = Some(UdpEncapsulation {
            source_port,
            destination_port: 4500,
        });
        state.reconfigure(&updated);
        assert_eq!(state.observed_peer_endpoint(), expected, "{source_port}");
    }
    state.record_peer_endpoint(&native, at(40_001));
    assert_eq!(
        state.observed_peer_endpoint(),
        None,
        "native ESP has no port to move"
    );
}

/// An update of the configuration counts from its moment: a limit that was not there, and a window of another width.
#[test]
fn what_an_update_changes_holds_for_the_next_packet() {
    let before = config(LifetimeLimits::default(), LifetimeLimits::default());
    let state = SaState::new(&before, 0, 0);
    for number in [1, 100] {
        state.admit(&before, SequenceNumber(number), 1, 1).unwrap();
    }
    assert!(state.precheck(&before, 30).is_err(), "100 - 64 is the edge");
    let limits = LifetimeLimits {
        age: 10,
        ..LifetimeLimits::default()
    };
    let after = SaConfig {
        replay_window: 128,
        ..config(LifetimeLimits::default(), limits)
    };
    state.reconfigure(&after);
    state.admit(&after, SequenceNumber(180), 1, 2).unwrap();
    assert_eq!(state.precheck(&after, 100), Err(Dropped::Replayed));
    assert_eq!(
        state.precheck(&after, 101),
        Ok(SequenceNumber(101)),
        "180 - 128 < 101"
    );
    assert_eq!(
        state.reserve(&after, 1, 1, 9).map(|(_, count)| count),
        Ok(1)
    );
    assert_eq!(state.reserve(&after, 1, 1, 10), Err(Dropped::LifetimeOver));
}
