//! The counters of an association that are kept across restarts: sequence numbers, the edge of the replay window,
//! lifetimes.
//!
//! ```text
//!   saved() ──► state file ──► a new gateway ──► resume()
//!
//!   numbers of packets sent:   used ──────────► │ reserved, not used yet │ not reserved
//!                                            sent                     allowed
//! ```
//!
//! A restart begins after what was *reserved*, so it need not know how much of that was used. The owner of the state
//! file reserves more in time ([`SaState::allow_up_to`]); without one all of them are allowed.

use super::SaState;
use super::counters::Counters;
use crate::sa::SaConfig;
use crate::sa::replay::ReplayWindow;
use std::sync::atomic::Ordering;

/// The counters of an association at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SavedCounters {
    /// The last sequence number that was sent.
    pub sent: u64,
    /// The highest one that was received: with everything before it, it counts as seen afterwards.
    pub edge: u64,
    /// Bytes carried, as lifetimes count them.
    pub bytes: u64,
    /// Packets carried.
    pub packets: u64,
    /// When it was added, in seconds since the Unix epoch, as are the next two; 0 for never.
    pub created: u64,
    /// When it was first used.
    pub first_used: u64,
    /// When it was last used.
    pub last_used: u64,
}

impl SaState {
    /// The counters to save, at this moment.
    pub fn saved(&self) -> SavedCounters {
        self.saved_of(&self.counters())
    }

    /// The same, and whether a packet found no reserved number since the last call.
    pub fn saved_and_shortage(&self) -> (SavedCounters, bool) {
        let mut counters = self.counters();
        let short = std::mem::take(&mut counters.ran_short);
        (self.saved_of(&counters), short)
    }

    fn saved_of(&self, counters: &Counters) -> SavedCounters {
        SavedCounters {
            sent: counters.sent,
            edge: counters.window.top(),
            bytes: counters.bytes,
            packets: counters.packets,
            created: self.created.load(Ordering::Relaxed),
            first_used: counters.first_used,
            last_used: counters.last_used,
        }
    }

    /// Continues from the saved counters of an earlier incarnation of the same keys. Numbers are only ever raised.
    pub fn resume(&self, config: &SaConfig, kept: &SavedCounters) {
        self.raise(config, kept.sent, kept.edge);
        let mut counters = self.counters();
        counters.bytes = kept.bytes;
        counters.packets = kept.packets;
        counters.first_used = kept.first_used;
        counters.last_used = kept.last_used;
        self.created.store(kept.created, Ordering::Relaxed);
    }

    /// Continues after these numbers, where they are higher than its own.
    pub fn raise(&self, config: &SaConfig, sent: u64, edge: u64) {
        let mut counters = self.counters();
        counters.sent = counters.sent.max(sent);
        if edge > counters.window.top() {
            counters.window = ReplayWindow::behind(edge, config.replay_window);
        }
    }

    /// Allows numbers up to this one, which is reserved in the state file.
    pub fn allow_up_to(&self, last: u64) {
        self.counters().allowed = last;
    }

    /// Allows no number beyond the last one used, which is returned, until more are allowed.
    pub fn freeze_numbers(&self) -> u64 {
        let mut counters = self.counters();
        counters.allowed = counters.allowed.min(counters.sent);
        counters.allowed
    }
}

impl SaConfig {
    /// Whether keys with these counters are used up: a hard limit, or the last sequence number.
    pub fn is_exhausted(&self, kept: &SavedCounters, now: u64) -> bool {
        let hard = &self.lifetimes.hard;
        let since = |moment| now.saturating_sub(moment);
        let in_use = match kept.first_used {
            0 => 0,
            moment => since(moment),
        };
        let limits = [
            (kept.bytes, hard.bytes),
            (kept.packets, hard.packets),
            (since(kept.created), hard.age),
            (in_use, hard.first_use),
            (kept.sent, self.last_number()),
        ];
        limits
            .iter()
            .any(|(value, limit)| *limit > 0 && value >= limit)
    }
}

#[cfg(test)]
mod tests {
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
}
