//! An association that two engines carry for a moment, each with numbers of its own: while a gateway moves from its own
//! data plane to the kernel's IPsec, or back.
//!
//! ```text
//!   numbers sent         used ──────► sent      limit  │ the other engine's
//!   numbers received     seen ──────► edge      limit  │ the other engine's
//! ```

use super::SaState;
use super::counters::Share;
use crate::sa::replay::ReplayWindow;
use crate::sa::{SaConfig, SequenceNumber};

impl SaState {
    /// From now on this engine sends no number above the last one that it has used and `more`; returns that limit.
    pub fn share_sending(&self, config: &SaConfig, more: u64) -> u64 {
        let mut counters = self.counters();
        let limit = counters.sent.saturating_add(more);
        counters.share.send_up_to = limit.min(config.last_number());
        counters.share.send_up_to
    }

    /// From now on this engine opens no number above the highest one that it has opened and `more`; returns that limit.
    /// Without a replay window it opens none: the other engine takes every number then.
    pub fn share_opening(&self, config: &SaConfig, more: u64) -> u64 {
        let mut counters = self.counters();
        let limit = match config.replay_window {
            0 => 0,
            _ => counters.window.top().saturating_add(more),
        };
        counters.share.open_up_to = limit.min(config.last_number());
        counters.share.open_up_to
    }

    /// From now on no number is this engine's: it seals and opens nothing.
    pub fn leave_all_numbers(&self) {
        self.counters().share = Share {
            send_up_to: 0,
            open_up_to: 0,
            ..Share::EVERYTHING
        };
    }

    /// From now on every number is this engine's.
    pub fn own_all_numbers(&self) {
        self.counters().share = Share::EVERYTHING;
    }

    /// The other engine has ended. It has opened what `is_seen` says, `last` being the highest: copies of these packets
    /// that still arrive are none that were replayed. Numbers up to `given` never were the other engine's: this one
    /// knows which of them it has opened. Every number is this engine's from now on.
    ///
    /// Without a replay window nothing tells those copies apart, and this engine opens no number before
    /// [`SaState::own_all_numbers`].
    pub fn take_over_window(
        &self,
        config: &SaConfig,
        given: u64,
        last: u64,
        is_seen: impl Fn(u64) -> bool,
    ) {
        if config.replay_window == 0 {
            return self.leave_all_numbers();
        }
        // Up to what was given to it the other engine has opened nothing.
        let last = if last > given { last } else { 0 };
        let mut counters = self.counters();
        counters.share = Share {
            opened_elsewhere: last,
            ..Share::EVERYTHING
        };
        let own = &counters.window;
        let is_known = |number| {
            let by_other = number > given && number <= last && is_seen(number);
            by_other || own.check(SequenceNumber(number)).is_err()
        };
        let top = last.max(own.top());
        counters.window = ReplayWindow::with_seen(top, config.replay_window, is_known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dropped;
    use crate::algorithm::{Encryption, Integrity};
    use crate::sa::{Protocol, SaId, Spi};
    use crate::suite::{Secret, Suite};
    use std::net::{IpAddr, Ipv4Addr};

    fn state() -> (SaConfig, SaState) {
        let encryption = Encryption::named("aes-cbc").unwrap();
        let integrity = Integrity::named("hmac-sha1").unwrap();
        let suite = Suite::new(
            Some((encryption, Secret::new(vec![1; 16]))),
            Some((integrity, Secret::new(vec![2; 20]))),
            None,
        );
        let id = SaId {
            destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
            protocol: Protocol::Esp,
            spi: Spi::new(256).unwrap(),
        };
        let config = SaConfig {
            replay_window: 64,
            ..SaConfig::new(id, IpAddr::V4(Ipv4Addr::LOCALHOST), suite.unwrap())
        };
        let state = SaState::new(&config, 0, 0);
        (config, state)
    }

    #[test]
    fn no_number_is_sent_beyond_the_share_and_none_is_missing_afterwards() {
        let (config, state) = state();
        state.reserve(&config, 10, 1, 1).unwrap();
        assert_eq!(state.share_sending(&config, 5), 15);
        assert_eq!(
            state.reserve(&config, 44, 1, 1),
            Ok((SequenceNumber(11), 5))
        );
        assert_eq!(state.reserve(&config, 1, 1, 1), Err(Dropped::OtherPlane));
        state.own_all_numbers();
        assert_eq!(state.reserve(&config, 1, 1, 1), Ok((SequenceNumber(16), 1)));
    }

    #[test]
    fn an_association_of_the_other_engine_seals_and_opens_nothing_here() {
        let (config, state) = state();
        state.leave_all_numbers();
        assert_eq!(state.reserve(&config, 1, 1, 1), Err(Dropped::OtherPlane));
        for number in [1, 2, 1000] {
            assert_eq!(
                state.precheck(&config, number),
                Err(Dropped::OtherPlane),
                "{number}"
            );
        }
        state.own_all_numbers();
        assert_eq!(state.reserve(&config, 1, 1, 1), Ok((SequenceNumber(1), 1)));
        assert_eq!(state.precheck(&config, 1), Ok(SequenceNumber(1)));
    }

    #[test]
    fn reserved_numbers_do_not_lift_the_share() {
        let (config, state) = state();
        state.allow_up_to(3);
        state.share_sending(&config, 7);
        assert_eq!(state.reserve(&config, 44, 1, 1), Ok((SequenceNumber(1), 3)));
        assert_eq!(state.reserve(&config, 44, 1, 1), Ok((SequenceNumber(4), 4)));
        assert_eq!(state.reserve(&config, 44, 1, 1), Err(Dropped::OtherPlane));
    }

    #[test]
    fn each_number_is_opened_by_one_engine_alone() {
        let (config, state) = state();
        state.admit(&config, SequenceNumber(7), 1, 1).unwrap();
        assert_eq!(state.share_opening(&config, 2), 9);
        let begun = state.precheck(&config, 9).unwrap();
        assert_eq!(state.precheck(&config, 10), Err(Dropped::OtherPlane));
        assert_eq!(state.share_opening(&config, 0), 7);
        let late = state.admit(&config, begun, 1, 1);
        assert_eq!(late, Err(Dropped::OtherPlane), "prechecked before");
        assert_eq!(state.precheck(&config, 7), Err(Dropped::Replayed));
        assert!(state.precheck(&config, 6).is_ok(), "late, and not seen");
    }

    #[test]
    fn a_late_number_that_was_never_the_other_engines_is_still_opened() {
        let (config, state) = state();
        for number in [7, 10] {
            state.admit(&config, SequenceNumber(number), 1, 1).unwrap();
        }
        // The other engine has everything up to 10 marked, and has opened 12.
        state.take_over_window(&config, 10, 12, |number| number != 11);
        for (number, is_opened) in [(7, false), (9, true), (10, false), (11, true), (12, false)] {
            let checked = state.precheck(&config, number);
            assert_eq!(checked.is_ok(), is_opened, "{number}");
        }
    }

    #[test]
    fn numbers_that_were_only_given_are_still_opened() {
        let (config, state) = state();
        state.admit(&config, SequenceNumber(10), 1, 1).unwrap();
        // The other engine has everything up to 74 marked, and has opened nothing.
        state.take_over_window(&config, 74, 74, |_| true);
        assert_eq!(state.saved().edge, 10);
        for (number, is_opened) in [(9, true), (10, false), (11, true), (74, true)] {
            let checked = state.precheck(&config, number);
            assert_eq!(checked.is_ok(), is_opened, "{number}");
        }
    }

    #[test]
    fn what_the_other_engine_has_opened_below_our_own_last_number_is_known_too() {
        let (config, state) = state();
        for number in [10, 20] {
            state.admit(&config, SequenceNumber(number), 1, 1).unwrap();
        }
        state.take_over_window(&config, 10, 19, |number| number == 19);
        for (number, is_opened) in [(18, true), (19, false), (20, false), (21, true)] {
            let checked = state.precheck(&config, number);
            assert_eq!(checked.is_ok(), is_opened, "{number}");
        }
    }

    #[test]
    fn without_a_window_all_numbers_are_one_engines() {
        let (config, state) = state();
        let config = SaConfig {
            replay_window: 0,
            ..config
        };
        state.reconfigure(&config);
        state.admit(&config, SequenceNumber(7), 1, 1).unwrap();
        assert_eq!(state.share_opening(&config, 64), 0);
        assert_eq!(state.precheck(&config, 3), Err(Dropped::OtherPlane));
        state.own_all_numbers();
        assert!(state.precheck(&config, 3).is_ok());
        state.take_over_window(&config, 0, 9, |_| true);
        assert_eq!(state.precheck(&config, 12), Err(Dropped::OtherPlane));
        state.own_all_numbers();
        assert!(state.precheck(&config, 12).is_ok());
    }

    #[test]
    fn copies_of_what_the_other_engine_has_opened_are_no_replays() {
        let (config, state) = state();
        state.take_over_window(&config, 0, 100, |number| number != 98);
        for (number, outcome) in [
            (100, false),
            (99, false),
            (98, true),
            (101, true),
            (1, false),
        ] {
            let checked = state.precheck(&config, number);
            assert_eq!(checked.is_ok(), outcome, "{number}");
            assert!(outcome || checked == Err(Dropped::OtherPlane), "{number}");
        }
        state.own_all_numbers();
        assert_eq!(state.precheck(&config, 100), Err(Dropped::Replayed));
    }
}
