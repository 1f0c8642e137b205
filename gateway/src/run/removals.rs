//! What other programs removed and the gateway restored: how often, what last, and how soon again.
//!
//! A program that removes things repeatedly would otherwise keep this thread from all other work: after
//! [`MAX_IMMEDIATE_RESTORATIONS`] removals in [`RESTORATION_COUNT_PERIOD`] there is one restoration a second. Until
//! then traffic is blocked, not open: missing routes and rules lead nowhere, and one barrier still holds where another
//! is missing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many restorations are made at once in [`RESTORATION_COUNT_PERIOD`].
const MAX_IMMEDIATE_RESTORATIONS: usize = 10;

/// The span in which they are counted.
const RESTORATION_COUNT_PERIOD: Duration = Duration::from_secs(10);

/// What is removed so soon after a restoration counts as part of the same removal.
const SAME_REMOVAL_PERIOD: Duration = Duration::from_millis(25);

/// How long a restoration waits after the previous one when there were too many.
const MIN_RESTORATION_INTERVAL: Duration = Duration::from_secs(1);

/// Notifications wait this long after a comparison, so that many small changes cost one comparison and are still
/// noticed in time.
const MAX_COMPARISON_DELAY: Duration = Duration::from_millis(20);

/// Without notifications for this long the removal counts as complete: `ip route flush` repeats until it finds nothing,
/// and would at once remove what was restored meanwhile.
const QUIET_PERIOD: Duration = Duration::from_millis(4);

/// The history of a gateway's removals.
#[derive(Default)]
pub(super) struct Removals {
    count: u64,
    last: Option<(Instant, String)>,
    recent: VecDeque<Instant>,
    compared: Option<Instant>,
    /// When the first notification since that comparison arrived.
    first_news: Option<Instant>,
    due: Option<Instant>,
    /// What is missing and could not be restored.
    standing: Option<String>,
}

impl Removals {
    /// Something may be missing: a comparison is due when notifications stop, or after a short time in any case.
    pub(super) fn suspect(&mut self, now: Instant) {
        let first = *self.first_news.get_or_insert(now);
        let soon = (now + QUIET_PERIOD).min(first + MAX_COMPARISON_DELAY);
        let earliest = self
            .compared
            .map_or(soon, |compared| compared + MAX_COMPARISON_DELAY);
        self.due = Some(soon.max(earliest));
    }

    /// When the next comparison is due, if one is.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A comparison is being made.
    pub(super) fn compared(&mut self, now: Instant) {
        (self.compared, self.due, self.first_news) = (Some(now), None, None);
    }

    /// Whether what is missing may be restored now. If not, the next comparison is scheduled for the time when it may.
    pub(super) fn may_restore(&mut self, now: Instant) -> bool {
        self.forget_old(now);
        let wait = match self.recent.back() {
            Some(last) if self.recent.len() >= MAX_IMMEDIATE_RESTORATIONS => {
                *last + MIN_RESTORATION_INTERVAL
            }
            _ => return true,
        };
        if now < wait {
            self.due = Some(wait);
        }
        now >= wait
    }

    /// Whether restorations are held back at the moment.
    pub(super) fn is_held_back(&mut self, now: Instant) -> bool {
        self.forget_old(now);
        self.recent.len() >= MAX_IMMEDIATE_RESTORATIONS
    }

    /// Something was restored.
    pub(super) fn restored(&mut self, now: Instant, what: String) -> u64 {
        self.count += 1;
        let is_the_same = self
            .recent
            .back()
            .is_some_and(|last| now < *last + SAME_REMOVAL_PERIOD);
        if !is_the_same {
            self.recent.push_back(now);
        }
        self.last = Some((now, what));
        self.standing = None;
        self.count
    }

    /// Something is missing and cannot be restored; true if that was not known before.
    pub(super) fn stands(&mut self, what: &str) -> bool {
        let is_news = self.standing.as_deref() != Some(what);
        self.standing = Some(what.to_owned());
        is_news
    }

    /// Nothing is missing.
    pub(super) fn nothing(&mut self) {
        self.standing = None;
    }

    /// What is missing and could not be restored.
    pub(super) fn standing(&self) -> Option<&str> {
        self.standing.as_deref()
    }

    /// How often something was restored; how long ago the last time was, and what.
    pub(super) fn summary(&self, now: Instant) -> (u64, Option<(u64, &str)>) {
        let last = self.last.as_ref();
        (
            self.count,
            last.map(|(when, what)| ((now - *when).as_secs(), &**what)),
        )
    }

    fn forget_old(&mut self, now: Instant) {
        let is_old = |first: &Instant| *first + RESTORATION_COUNT_PERIOD <= now;
        while self.recent.len() > 2 * MAX_IMMEDIATE_RESTORATIONS
            || self.recent.front().is_some_and(is_old)
        {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn ten_losses_in_ten_seconds_are_made_good_at_once_and_then_one_a_second() {
        let (mut removals, start) = (Removals::default(), Instant::now());
        for n in 0..10 {
            assert!(removals.may_restore(start + 2 * n * SAME_REMOVAL_PERIOD));
            removals.restored(
                start + 2 * n * SAME_REMOVAL_PERIOD,
                "table deleted".to_owned(),
            );
            // The program that removes things continues for a moment.
            removals.restored(
                start + 2 * n * SAME_REMOVAL_PERIOD + ms(5),
                "table deleted".to_owned(),
            );
        }
        let mut restored = 0;
        for n in 460..5_000 {
            if removals.may_restore(start + ms(n)) {
                removals.restored(start + ms(n), "table deleted".to_owned());
                restored += 1;
            }
        }
        assert_eq!(restored, 4);
        assert!(removals.is_held_back(start + ms(5_000)));
        assert_eq!(
            removals.summary(start + ms(6_100)),
            (24, Some((1, "table deleted")))
        );
    }

    #[test]
    fn after_a_quiet_time_a_loss_is_made_good_at_once_again() {
        let (mut removals, start) = (Removals::default(), Instant::now());
        for n in 0..10 {
            removals.restored(start + n * SAME_REMOVAL_PERIOD, String::new());
        }
        let last = start + 9 * SAME_REMOVAL_PERIOD;
        assert!(!removals.may_restore(last + ms(1)));
        assert_eq!(removals.due(), Some(last + MIN_RESTORATION_INTERVAL));
        assert!(removals.may_restore(last + RESTORATION_COUNT_PERIOD));
        assert!(!removals.is_held_back(last + RESTORATION_COUNT_PERIOD));
    }

    #[test]
    fn news_are_looked_at_when_they_stop_and_a_flood_of_them_every_breath() {
        let (mut removals, start) = (Removals::default(), Instant::now());
        removals.suspect(start);
        removals.suspect(start + ms(1));
        assert_eq!(removals.due(), Some(start + ms(1) + QUIET_PERIOD));
        removals.compared(start);
        let mut comparisons = 0;
        for n in 0..1000 {
            removals.suspect(start + ms(n));
            if removals.due().is_some_and(|due| due <= start + ms(n)) {
                removals.compared(start + ms(n));
                comparisons += 1;
            }
        }
        assert!((47..=50).contains(&comparisons), "{comparisons}");
    }

    #[test]
    fn what_cannot_be_put_back_is_news_once() {
        let mut removals = Removals::default();
        assert!(removals.stands("table deleted"));
        assert!(!removals.stands("table deleted"));
        removals.nothing();
        assert!(removals.stands("table deleted"));
    }
}
