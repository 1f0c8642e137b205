//! A gateway that was given a share of the processors, and used it up.

use super::finding::Finding;
use crate::meter::Readings;

/// Stopped in this part of its periods, a gateway was stopped nearly all along: short pauses of the traffic are not.
const STOPPED_PERIODS_RATIO: f64 = 0.5;
/// From this part of what it was given on, it used all of it.
const USED_UP_RATIO: f64 = 0.95;

/// A note for verdicts that result from a CPU quota.
pub(super) const SOFTIRQ_NOTE: &str =
    "a CPU quota limits processes, but not the kernel's work in softirqs";

/// The gateway that was held back the most, if one was.
pub(super) fn used_up(readings: &Readings) -> Finding {
    let sides = ["left", "right"].into_iter();
    let held = sides.filter_map(|side| QuotaUse::of(readings, side));
    let most = held.max_by(|one, other| one.stopped.total_cmp(&other.stopped))?;
    most.is_limiting().then(|| ("share", most.sentence()))
}

/// One gateway under its share.
struct QuotaUse<'a> {
    side: &'a str,
    /// Part of the periods in which it was stopped.
    stopped: f64,
    given_s: f64,
    used_s: f64,
}

impl QuotaUse<'_> {
    fn of<'a>(readings: &Readings, side: &'a str) -> Option<QuotaUse<'a>> {
        let of = |name: &str| readings.get(&format!("{side}.share.{name}")).copied();
        let (given_s, periods) = (of("given_s")?, of("periods_count")?);
        let stopped = of("throttled_count")?;
        (given_s > 0.0).then(|| QuotaUse {
            side,
            stopped: if periods > 0.0 {
                stopped / periods
            } else {
                0.0
            },
            given_s,
            used_s: used(readings, side),
        })
    }

    /// One that was never stopped has used up nothing, however much it worked.
    fn is_limiting(&self) -> bool {
        self.stopped >= STOPPED_PERIODS_RATIO
            || (self.stopped > 0.0 && self.used_s >= USED_UP_RATIO * self.given_s)
    }

    fn sentence(&self) -> String {
        format!(
            "the {} gateway was stopped in {:.0} % of its periods, and used {:.2} s of the {:.2} s of processor time that its share gave it",
            self.side,
            100.0 * self.stopped,
            self.used_s,
            self.given_s
        )
    }
}

/// The threads' own time is exact; that of the process is counted in ticks, and is used where there is no other.
fn used(readings: &Readings, side: &str) -> f64 {
    let sum = |begins: &str| -> f64 {
        let found = readings.iter().filter(|(name, _)| name.starts_with(begins));
        found.map(|(_, seconds)| seconds).sum()
    };
    let threads = sum(&format!("{side}.thread."));
    if threads > 0.0 {
        threads
    } else {
        sum(&format!("{side}.cpu."))
    }
}
