//! The time when commit stops waiting for a lost AGGFRAG payload. The reading thread reads it and wakes up then.

use crate::clock;
use crate::io::Wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The next deadline, set by commit and read by prepare.
#[derive(Clone)]
pub(super) struct Deadline(Arc<AtomicU64>);

/// No deadline.
const NO_DEADLINE: u64 = u64::MAX;

impl Default for Deadline {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(NO_DEADLINE)))
    }
}

impl Deadline {
    /// How long the source may wait at most.
    pub fn shorten(&self, wait: Wait) -> Wait {
        match (self.0.load(Ordering::Relaxed), wait) {
            (NO_DEADLINE, _) | (_, Wait::Poll) => wait,
            (deadline, Wait::AtMost(limit)) => {
                let left = deadline.saturating_sub(clock::milliseconds());
                Wait::AtMost(limit.min(Duration::from_millis(left)))
            }
        }
    }

    /// Whether it is over; true only once for each deadline.
    pub fn is_over(&self) -> bool {
        let deadline = self.0.load(Ordering::Relaxed);
        let over = deadline != NO_DEADLINE && deadline <= clock::milliseconds();
        if over {
            self.0.store(NO_DEADLINE, Ordering::Relaxed);
        }
        over
    }

    /// Sets it, in milliseconds of [`clock::milliseconds`].
    pub fn set(&self, deadline: Option<u64>) {
        let deadline = deadline.unwrap_or(NO_DEADLINE);
        self.0.store(deadline, Ordering::Relaxed);
    }
}
