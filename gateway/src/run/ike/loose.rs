//! When memory that changes have left free goes back to the system: once they are over, and for a small part of the
//! time.
//!
//! ```text
//!   change, change, … change ── quiet for a second ── given back ── 300 times as long as that took ── the next time
//! ```

use std::time::{Duration, Instant};

/// So long after the last change no other is expected at once.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// How many times as long as giving back takes it is not done again.
const PAUSE_PER_TIME: u32 = 300;

/// Memory that was freed since it was last given back.
#[derive(Default)]
pub(crate) struct Loose {
    changed_at: Option<Instant>,
    not_before: Option<Instant>,
}

impl Loose {
    /// A change was made.
    pub(crate) fn note(&mut self, now: Instant) {
        self.changed_at = Some(now);
    }

    /// Whether it is time; then it counts as done.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        let is_quiet = |at: &Instant| now.saturating_duration_since(*at) >= QUIET_TIME;
        let may = self.not_before.is_none_or(|at| at <= now);
        may && self.changed_at.take_if(|at| is_quiet(at)).is_some()
    }

    /// How long it took.
    pub(crate) fn took(&mut self, time: Duration, now: Instant) {
        self.not_before = Some(now + time * PAUSE_PER_TIME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_back_once_after_changes_and_not_again_at_once() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut loose = Loose::default();
        assert!(!loose.take_due(begin + second));
        loose.note(begin);
        loose.note(begin + second);
        assert!(!loose.take_due(begin + second));
        assert!(loose.take_due(begin + 2 * second));
        assert!(!loose.take_due(begin + 9 * second));
        loose.took(second / 100, begin + 2 * second);
        loose.note(begin + 3 * second);
        assert!(!loose.take_due(begin + 4 * second));
        assert!(loose.take_due(begin + 5 * second));
    }
}
