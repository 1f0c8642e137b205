//! The clocks of lifetimes and of waits: neither goes back when the date is set.
//!
//! ```text
//!   date at the start of the process ──┐
//!                                      ├──► now()    seconds since the Unix epoch, as if the date was never set again
//!   time since boot, sleep included ───┘
//! ```
//!
//! Lifetimes and reassembly use [`now`]: with the date, a clock set back would make a key live longer, one set forward
//! would end it. Only output for people shows the date, which [`date_of`] returns.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::OnceLock;

/// Seconds since the Unix epoch by the date at the process's start and the time since. Read once per batch.
pub fn now() -> u64 {
    static EPOCH: OnceLock<Epoch> = OnceLock::new();
    EPOCH
        .get_or_init(|| Epoch::at(date(), since_boot()))
        .seconds(since_boot())
}

/// Milliseconds since the system's start, sleep included: for waits of a few hundred milliseconds.
pub fn milliseconds() -> u64 {
    nanoseconds(since_boot()) / 1_000_000
}

/// Seconds since the Unix epoch by the system's date at this moment: for output.
pub fn today() -> u64 {
    nanoseconds(date()) / NANOSECONDS_PER_SECOND
}

/// The date of a moment that [`now`] gave: the date may have been set since.
pub fn date_of(moment: u64) -> u64 {
    moment.saturating_add_signed(set_by(now(), today()))
}

/// By how many seconds the date was set since the process began. A difference of one second is ignored: two clocks that
/// are read one after the other differ by that now and then.
fn set_by(now: u64, today: u64) -> i64 {
    let difference = today.wrapping_sub(now) as i64;
    if difference.unsigned_abs() > 1 {
        difference
    } else {
        0
    }
}

/// Nanoseconds from the Unix epoch to the system's start, determined once.
#[derive(Clone, Copy)]
struct Epoch(u64);

impl Epoch {
    fn at(date: Timespec, since_boot: Timespec) -> Self {
        Self(nanoseconds(date).saturating_sub(nanoseconds(since_boot)))
    }

    fn seconds(self, since_boot: Timespec) -> u64 {
        self.0.saturating_add(nanoseconds(since_boot)) / NANOSECONDS_PER_SECOND
    }
}

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

fn date() -> Timespec {
    clock_gettime(ClockId::Realtime)
}

fn since_boot() -> Timespec {
    clock_gettime(ClockId::Boottime)
}

/// The time in nanoseconds; 0 for times before 1970.
fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds
        .saturating_mul(NANOSECONDS_PER_SECOND)
        .saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(tv_sec: i64, tv_nsec: i64) -> Timespec {
        Timespec { tv_sec, tv_nsec }
    }

    /// A machine whose date is set while it runs: each row is the time since boot and the date at that moment.
    #[test]
    fn a_date_that_is_set_changes_no_moment_and_shows_in_the_date_alone() {
        let epoch = Epoch::at(time(1_800_000_000, 900_000_000), time(100, 950_000_000));
        for (boot, date, now) in [
            (100, 1_800_000_000, 1_800_000_000),
            (160, 1_799_996_460, 1_800_000_060),
            (161, 1_900_000_000, 1_800_000_061),
            (4000, 5, 1_800_003_900),
        ] {
            let seen = epoch.seconds(time(boot, 960_000_000));
            assert_eq!(seen, now, "{boot} s after boot");
            let shown = now.saturating_add_signed(set_by(seen, date));
            assert!(shown.abs_diff(date) <= 1, "{shown} for {date}");
        }
    }

    #[test]
    fn a_lifetime_ends_after_its_seconds_whatever_the_date_is() {
        let epoch = Epoch::at(time(1_800_000_000, 0), time(0, 0));
        let created = epoch.seconds(time(10, 0));
        // The date was set back by a year meanwhile: nothing here could see it.
        let age = |boot| epoch.seconds(time(boot, 0)) - created;
        assert_eq!((age(10), age(69), age(70)), (0, 59, 60));
    }

    #[test]
    fn without_a_date_time_passes_all_the_same() {
        let epoch = Epoch::at(time(-5, 0), time(7, 0));
        assert_eq!(epoch.seconds(time(8, 0)), 8);
        let epoch = Epoch::at(time(3, 0), time(7, 0));
        assert!(epoch.seconds(time(9, 0)) > epoch.seconds(time(8, 0)));
    }

    #[test]
    fn the_clock_runs_with_the_time_since_boot() {
        let (before, boot) = (now(), since_boot().tv_sec);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let (after, boot_after) = (now(), since_boot().tv_sec);
        assert!((after - before).abs_diff((boot_after - boot) as u64) <= 1);
        assert!(after > before && date_of(after).abs_diff(today()) <= 1);
    }
}
