//! What another engine, such as the kernel's IPsec, reports of an association that it carries instead of this one.

use super::SaState;
use super::saved::SavedCounters;
use crate::Dropped;
use crate::sa::SaConfig;
use crate::sa::replay::ReplayWindow;
use std::sync::atomic::Ordering;

impl SaState {
    /// Takes over the counters that the other engine reports. Sequence numbers are only ever raised, so that no number
    /// is used twice whatever is reported; when the association was added stays as it is.
    pub fn observe(&self, config: &SaConfig, seen: &SavedCounters) {
        let mut counters = self.counters();
        counters.sent = counters.sent.max(seen.sent);
        if seen.edge > counters.window.top() {
            counters.window = ReplayWindow::behind(seen.edge, config.replay_window);
        }
        counters.bytes = seen.bytes;
        counters.packets = seen.packets;
        if counters.first_used == 0 {
            counters.first_used = seen.first_used;
        }
        counters.last_used = counters.last_used.max(seen.last_used);
        counters.check_amounts(config);
    }

    /// The other engine has reached a limit: the event is taken by [`SaState::take_events`] as if it had been reached
    /// here.
    pub fn expire(&self, is_hard: bool) {
        let mut counters = self.counters();
        if is_hard {
            counters.hard.raise();
        } else {
            counters.soft.raise();
        }
    }

    /// How many drops the other engine has counted for a reason.
    pub fn set_drops(&self, reason: Dropped, count: u64) {
        if count == 0 && self.drops.get().is_none() {
            return;
        }
        let drops = self.drops.get_or_init(Box::default);
        drops[reason.index()].store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Encryption;
    use crate::sa::{LifetimeEvent, LifetimeLimits, Lifetimes, Protocol, SaId, Spi};
    use crate::suite::{Secret, Suite};
    use std::net::{IpAddr, Ipv4Addr};

    fn config() -> SaConfig {
        let row = Encryption::named("aes-gcm-16").unwrap();
        let suite = Suite::new(Some((row, Secret::new(vec![1; 20]))), None, None).unwrap();
        let id = SaId {
            destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
            protocol: Protocol::Esp,
            spi: Spi::new(256).unwrap(),
        };
        let soft = LifetimeLimits {
            bytes: 1000,
            ..LifetimeLimits::default()
        };
        SaConfig {
            replay_window: 64,
            lifetimes: Lifetimes {
                soft,
                ..Lifetimes::default()
            },
            ..SaConfig::new(id, IpAddr::V4(Ipv4Addr::LOCALHOST), suite)
        }
    }

    #[test]
    fn reported_numbers_are_only_ever_raised() {
        let config = config();
        let state = SaState::new(&config, 5, 0);
        let seen = SavedCounters {
            sent: 70,
            edge: 90,
            bytes: 400,
            packets: 4,
            first_used: 8,
            last_used: 9,
            ..SavedCounters::default()
        };
        state.observe(&config, &seen);
        let expected = SavedCounters { created: 5, ..seen };
        assert_eq!(state.saved(), expected);
        state.observe(
            &config,
            &SavedCounters {
                sent: 3,
                edge: 4,
                ..seen
            },
        );
        assert_eq!(state.saved(), expected);
        assert!(
            state.precheck(&config, 90).is_err(),
            "seen by the other engine"
        );
        assert!(state.precheck(&config, 91).is_ok());
    }

    #[test]
    fn a_limit_that_is_reached_there_is_an_event_here_once() {
        let config = config();
        let state = SaState::new(&config, 5, 0);
        let seen = SavedCounters {
            bytes: 1000,
            packets: 4,
            ..SavedCounters::default()
        };
        state.observe(&config, &seen);
        assert_eq!(state.take_events(&config, 6), [LifetimeEvent::Soft]);
        state.observe(&config, &seen);
        assert_eq!(state.take_events(&config, 6), []);
        state.expire(true);
        assert_eq!(state.take_events(&config, 6), [LifetimeEvent::Hard]);
        assert!(state.is_dead());
    }

    #[test]
    fn drops_that_are_reported_replace_those_of_before() {
        let config = config();
        let state = SaState::new(&config, 5, 0);
        state.set_drops(Dropped::Replayed, 0);
        assert_eq!(state.drops(), []);
        for count in [3, 7] {
            state.set_drops(Dropped::Replayed, count);
            assert_eq!(state.drops(), [(Dropped::Replayed, count)]);
        }
    }
}
