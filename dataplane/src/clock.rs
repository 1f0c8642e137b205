//! The time that lifetimes count by.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since the Unix epoch, from the coarse clock: read once per batch, a few nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(time.tv_sec).unwrap_or_default()
}
