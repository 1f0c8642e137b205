//! How long the next round of key exchange waits for clients of the control socket, so that a client is answered
//! between two rounds and not behind one more.
//!
//! ```text
//!   round ── client connects … asks … is answered ── round          at most so long, however many clients come
//! ```

use std::time::{Duration, Instant};

/// How long clients hold a round back at most.
const MAX_HOLD: Duration = Duration::from_millis(20);

/// Whether the next round waits.
#[derive(Default)]
pub(super) struct Hold {
    /// Since when clients have been waiting without a round.
    since: Option<Instant>,
}

impl Hold {
    /// Until when the next round waits, if clients want that until `wanted`.
    pub(super) fn end(&mut self, wanted: Option<Instant>, now: Instant) -> Option<Instant> {
        let Some(wanted) = wanted else {
            self.since = None;
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let end = wanted.min(since + MAX_HOLD);
        (now < end).then_some(end)
    }

    /// A round was handled: clients may hold back the next one again.
    pub(super) fn round_done(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_round_waits_for_a_client_and_no_longer_than_it_wants() {
        let now = Instant::now();
        let mut hold = Hold::default();
        assert_eq!(hold.end(None, now), None);
        assert_eq!(hold.end(Some(now + 5 * MS), now), Some(now + 5 * MS));
        assert_eq!(hold.end(Some(now + 5 * MS), now + 5 * MS), None);
        assert_eq!(hold.end(None, now + 6 * MS), None);
    }

    #[test]
    fn clients_that_come_one_after_the_other_do_not_keep_rounds_from_being_handled() {
        let begin = Instant::now();
        let mut hold = Hold::default();
        for at in 0..20 {
            let now = begin + at * MS;
            assert_eq!(
                hold.end(Some(now + 19 * MS), now),
                Some((now + 19 * MS).min(begin + MAX_HOLD))
            );
        }
        let now = begin + MAX_HOLD;
        assert_eq!(hold.end(Some(now + 19 * MS), now), None);
        hold.round_done();
        assert_eq!(hold.end(Some(now + 19 * MS), now), Some(now + 19 * MS));
    }
}
