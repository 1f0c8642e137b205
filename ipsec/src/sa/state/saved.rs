//! What of an association outlives its gateway: numbers, the window's edge and lifetimes, read out and put back.
//!
//! ```text
//!   kept() ──► somewhere safe ──► a new gateway ──► resume()
//!
//!   numbers of packets sent:   used ──────────► │ reserved, not used yet │ not reserved
//!                                            sent                     allowed
//! ```
//!
//! A restart begins behind what was *reserved*, so it need not know how much of that was used. Whoever keeps the numbers
//! reserves more in time ([`SaState::allow`]); without such a one all of them are allowed.

use super::SaState;
use super::counters::{Ledger, last_number};
use crate::sa::SaConfig;
use crate::sa::replay::Window;
use std::sync::atomic::Ordering;

/// What is known of an association at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
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
    /// What is worth keeping, at this moment.
    pub fn kept(&self) -> Kept {
        self.kept_of(&self.lock())
    }

    /// The same, and whether a packet has found no reserved number since the last call.
    pub fn look_at(&self) -> (Kept, bool) {
        let mut ledger = self.lock();
        let short = std::mem::take(&mut ledger.was_short);
        (self.kept_of(&ledger), short)
    }

    fn kept_of(&self, ledger: &Ledger) -> Kept {
        Kept {
            sent: ledger.sent,
            edge: ledger.window.top(),
            bytes: ledger.bytes,
            packets: ledger.packets,
            created: self.created.load(Ordering::Relaxed),
            first_used: ledger.first_used,
            last_used: ledger.last_used,
        }
    }

    /// Goes on from what an earlier incarnation of the same keys has left. Numbers are only ever raised.
    pub fn resume(&self, config: &SaConfig, kept: &Kept) {
        self.raise(config, kept.sent, kept.edge);
        let mut ledger = self.lock();
        ledger.bytes = kept.bytes;
        ledger.packets = kept.packets;
        ledger.first_used = kept.first_used;
        ledger.last_used = kept.last_used;
        self.created.store(kept.created, Ordering::Relaxed);
    }

    /// Goes on behind these numbers, where they are higher than its own.
    pub fn raise(&self, config: &SaConfig, sent: u64, edge: u64) {
        let mut ledger = self.lock();
        ledger.sent = ledger.sent.max(sent);
        if edge > ledger.window.top() {
            ledger.window = Window::behind(edge, config.replay_window);
        }
    }

    /// Lets numbers be used up to this one, which is reserved where a restart will look.
    pub fn allow(&self, last: u64) {
        self.lock().allowed = last;
    }

    /// Lets no number be used beyond the last one that was, which is returned, until more are allowed.
    pub fn allow_no_more(&self) -> u64 {
        let mut ledger = self.lock();
        ledger.allowed = ledger.allowed.min(ledger.sent);
        ledger.allowed
    }
}

impl SaConfig {
    /// The last sequence number that the association can have.
    pub fn last_number(&self) -> u64 {
        last_number(self)
    }

    /// Whether keys that have come so far have reached their end: a hard limit, or the last number.
    pub fn is_over(&self, kept: &Kept, now: u64) -> bool {
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

    /// Whether a sequence number that comes twice could make a nonce come twice: counter modes, whose key bytes end in a
    /// salt (RFC 3686, 4106, 4309, 4543, 7634, 8750).
    pub fn nonce_is_counter(&self) -> bool {
        let encryption = self.suite.encryption();
        encryption.is_some_and(|(row, _)| row.salt_len > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dropped;
    use crate::algorithm::{Encryption, Integrity};
    use crate::sa::{Lifetimes, Limits};
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

    #[test]
    fn a_counter_nonce_waits_for_reserved_numbers_and_says_so_once() {
        let config = config("aes-gcm-16", 20);
        let state = SaState::new(&config, 0, 0);
        state.allow(10);
        assert_eq!(
            state.reserve(&config, 44, 1, 1),
            Ok((SequenceNumber(1), 10))
        );
        assert!(!state.look_at().1);
        assert_eq!(state.reserve(&config, 1, 1, 1), Err(Dropped::StateNotKept));
        assert!(state.look_at().1 && !state.look_at().1);
        assert_eq!(state.take_events(&config, 1), []);
        state.allow(12);
        assert_eq!(
            state.reserve(&config, 44, 1, 1),
            Ok((SequenceNumber(11), 2))
        );
    }

    #[test]
    fn a_random_iv_goes_on_beyond_what_is_reserved() {
        let config = config("aes-cbc", 16);
        let state = SaState::new(&config, 0, 0);
        state.allow(10);
        assert_eq!(
            state.reserve(&config, 44, 1, 1),
            Ok((SequenceNumber(1), 10))
        );
        assert_eq!(
            state.reserve(&config, 44, 1, 1),
            Ok((SequenceNumber(11), 44))
        );
        assert!(state.look_at().1);
    }

    #[test]
    fn the_last_number_of_all_is_the_last_one_however_much_is_allowed() {
        let config = config("aes-gcm-16", 20);
        let state = SaState::new(&config, 0, 0);
        let last = config.last_number();
        state.raise(&config, last, 0);
        state.allow(last);
        assert_eq!(state.reserve(&config, 1, 1, 1), Err(Dropped::SequenceOver));
        assert!(!state.look_at().1);
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
        let kept = before.kept();
        assert_eq!((kept.sent, kept.edge, kept.bytes), (5, 9, 70));
        let after = SaState::new(&config, 1000, 0);
        after.resume(&config, &kept);
        assert_eq!(after.kept(), kept);
        for number in 1..=9 {
            assert!(after.look(&config, number).is_err(), "{number}");
        }
        assert!(after.look(&config, 10).is_ok());
        after.raise(&config, 3, 8);
        assert_eq!((after.kept().sent, after.kept().edge), (5, 9));
    }

    #[test]
    fn a_lifetime_goes_on_where_it_was() {
        let hard = Limits {
            age: 60,
            ..Limits::default()
        };
        let config = SaConfig {
            lifetimes: Lifetimes {
                hard,
                ..Lifetimes::default()
            },
            ..config("aes-gcm-16", 20)
        };
        let state = SaState::new(&config, 1000, 0);
        let kept = Kept {
            created: 950,
            ..Kept::default()
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
        state.allow(100);
        state.reserve(&config, 7, 1, 1).unwrap();
        assert_eq!(state.allow_no_more(), 7);
        assert_eq!(state.reserve(&config, 1, 1, 1), Err(Dropped::StateNotKept));
        state.allow(5);
        assert_eq!(state.allow_no_more(), 5, "never more than was allowed");
    }

    #[test]
    fn an_edge_that_is_no_higher_takes_nothing_from_the_window() {
        let config = config("aes-gcm-16", 20);
        let state = SaState::new(&config, 0, 0);
        for number in [7, 9].map(SequenceNumber) {
            state.admit(&config, number, 10, 1).unwrap();
        }
        state.raise(&config, 0, 9);
        assert!(state.look(&config, 8).is_ok(), "late, and never seen");
        state.raise(&config, 0, 10);
        assert!(state.look(&config, 8).is_err());
    }

    #[test]
    fn keys_are_over_at_the_first_of_their_limits_and_not_before() {
        let hard = Limits {
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
        let kept = Kept {
            created: 1000,
            first_used: 1010,
            ..Kept::default()
        };
        let unused = Kept {
            first_used: 0,
            ..kept
        };
        let bytes = |bytes| Kept { bytes, ..kept };
        let packets = |packets| Kept { packets, ..kept };
        let sent = |sent| Kept { sent, ..kept };
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
            assert_eq!(config.is_over(&kept, now), expected, "{kept:?} at {now}");
        }
    }
}
