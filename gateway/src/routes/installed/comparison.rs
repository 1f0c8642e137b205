//! How often rules and routes are compared with the kernel's.

use std::time::{Duration, Instant};

/// Comparing takes at most this part of the time while the kernel notifies of nothing: with thousands of peers it reads
/// as many routes.
const MAX_SHARE_OF_TIME: u32 = 200;

/// However long comparing takes, it is done again after this time.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// A comparison by which nothing was missing.
pub(super) struct Whole {
    pub began: Instant,
    pub took: Duration,
}

impl Whole {
    pub(super) fn still_counts(&self, now: Instant) -> bool {
        now < self.began + (self.took * MAX_SHARE_OF_TIME).min(MAX_INTERVAL)
    }
}
