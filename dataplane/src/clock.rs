//! The time that lifetimes count by, and the one that waits do.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since the Unix epoch, from the coarse clock: read once per batch, a few nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(time.tv_sec).unwrap_or_default()
}

/// Milliseconds since the system's start, from the coarse clock: for what waits a few hundred of them.
pub fn milliseconds() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000_000
}
