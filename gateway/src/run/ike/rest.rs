//! How long messages of the ike process wait after a change of the databases, so that the next change does what several
//! of them ask for.
//!
//! ```text
//!   change ── rest, as long as four changes ── change ── rest ── change      many handshakes: several for each change
//!   change ────────────────────────────────────────────────── change        one now and then: at once
//! ```

use std::time::{Duration, Instant};

/// How many times as long as the change a rest lasts, and its longest: what a change costs grows with the peers.
const RESTS_PER_CHANGE: u32 = 4;
const MAX_REST: Duration = Duration::from_millis(20);

/// The rest after the last change.
#[derive(Default)]
pub(crate) struct Rest(Option<Instant>);

impl Rest {
    /// After a change that took so long and ended now.
    pub(crate) fn after(took: Duration, now: Instant) -> Self {
        Self(Some(now + (took * RESTS_PER_CHANGE).min(MAX_REST)))
    }

    /// When it ends, if it lasts.
    pub(crate) fn end(&self, now: Instant) -> Option<Instant> {
        self.0.filter(|end| now < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_four_times_the_change_and_has_an_end() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        assert_eq!(Rest::default().end(now), None);
        let rest = Rest::after(ms(3), now);
        assert_eq!(rest.end(now), Some(now + ms(12)));
        assert_eq!(rest.end(now + ms(12)), None);
        assert_eq!(Rest::after(ms(900), now).end(now), Some(now + MAX_REST));
    }
}
