//! The files of control groups in both versions: quota and period, weight, and what the kernel counted.

use std::fs;
use std::io;
use std::path::Path;

/// The two layouts of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy, in which a controller is switched on from the root downwards.
    Two,
}

/// What the kernel counted of a group since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ThrottleCounts {
    /// Periods in which a process ran.
    pub periods: f64,
    /// Periods in which the quota was used up and processes were throttled.
    pub stopped: f64,
    /// Seconds of waiting, summed over processors.
    pub stopped_s: f64,
}

/// The kernel's minimum quota per period.
const MIN_QUOTA_US: f64 = 1000.0;
/// Short, so that a share behaves like a slow machine and not like one that pauses for a tenth of a second.
const PERIOD_US: f64 = 10_000.0;

/// Period and quota of a share, in microseconds.
fn period_and_quota(share: f64) -> (u64, u64) {
    let period = (MIN_QUOTA_US / share).ceil().max(PERIOD_US);
    (period as u64, (share * period).round() as u64)
}

impl Version {
    /// Gives a group its quota.
    pub(super) fn limit(self, group: &Path, share: f64) -> io::Result<()> {
        let (period, quota) = period_and_quota(share);
        match self {
            Version::One => {
                fs::write(group.join("cpu.cfs_period_us"), period.to_string())?;
                fs::write(group.join("cpu.cfs_quota_us"), quota.to_string())
            }
            Version::Two => fs::write(group.join("cpu.max"), format!("{quota} {period}")),
        }
    }

    /// Lets a group compete like so many processes.
    pub(super) fn weigh(self, group: &Path, processes: u64) -> io::Result<()> {
        match self {
            Version::One => {
                let shares = (1024 * processes).min(262_144);
                fs::write(group.join("cpu.shares"), shares.to_string())
            }
            Version::Two => {
                let weight = (100 * processes).min(10_000);
                fs::write(group.join("cpu.weight"), weight.to_string())
            }
        }
    }

    /// Takes the quota back.
    pub(super) fn lift(self, group: &Path) -> io::Result<()> {
        match self {
            Version::One => fs::write(group.join("cpu.cfs_quota_us"), "-1"),
            Version::Two => fs::write(group.join("cpu.max"), "max"),
        }
    }
}

/// A group's `cpu.stat`: version one counts nanoseconds, version two microseconds.
pub(super) fn counted(text: &str) -> ThrottleCounts {
    let mut held = ThrottleCounts::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else {
            continue;
        };
        let value: f64 = value.trim().parse().unwrap_or(0.0);
        match name {
            "nr_periods" => held.periods = value,
            "nr_throttled" => held.stopped = value,
            "throttled_time" => held.stopped_s = value / 1e9,
            "throttled_usec" => held.stopped_s = value / 1e6,
            _ => {}
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_quota_of_a_millisecond_at_least_in_a_period_of_ten() {
        let rows = [
            (1.0, (10_000, 10_000)),
            (0.25, (10_000, 2500)),
            (0.1, (10_000, 1000)),
            (0.03, (33_334, 1000)),
            (0.01, (100_000, 1000)),
            (64.0, (10_000, 640_000)),
        ];
        for (share, wanted) in rows {
            assert_eq!(period_and_quota(share), wanted, "{share}");
        }
        for thousandths in 10..64_000 {
            let share = f64::from(thousandths) / 1000.0;
            let (period, quota) = period_and_quota(share);
            assert!(
                quota >= 1000 && period <= 100_000,
                "{share}: {quota} in {period}"
            );
            assert!(
                (quota as f64 / period as f64 / share - 1.0).abs() < 1e-3,
                "{share}"
            );
        }
    }

    #[test]
    fn quotas_are_written_and_lifted_in_the_form_of_each_version() {
        let group = std::env::temp_dir().join(format!("lab-version-{}", std::process::id()));
        fs::create_dir_all(&group).unwrap();
        let read = |name: &str| fs::read_to_string(group.join(name)).unwrap();
        Version::One.limit(&group, 0.2).unwrap();
        assert_eq!(
            (read("cpu.cfs_period_us"), read("cpu.cfs_quota_us")),
            ("10000".into(), "2000".into())
        );
        Version::One.lift(&group).unwrap();
        assert_eq!(read("cpu.cfs_quota_us"), "-1");
        Version::Two.limit(&group, 0.2).unwrap();
        assert_eq!(read("cpu.max"), "2000 10000");
        Version::Two.lift(&group).unwrap();
        assert_eq!(read("cpu.max"), "max");
        let weights = |processes: u64| {
            Version::One.weigh(&group, processes).unwrap();
            Version::Two.weigh(&group, processes).unwrap();
            (read("cpu.shares"), read("cpu.weight"))
        };
        assert_eq!(weights(1), ("1024".into(), "100".into()));
        assert_eq!(weights(128), ("131072".into(), "10000".into()));
        fs::remove_dir_all(group).unwrap();
    }

    #[test]
    fn both_versions_count_periods_and_the_time_of_waiting() {
        let wanted = ThrottleCounts {
            periods: 200.0,
            stopped: 150.0,
            stopped_s: 1.5,
        };
        let one = "nr_periods 200\nnr_throttled 150\nthrottled_time 1500000000\nnr_bursts 0\n";
        let two = "usage_usec 99\nuser_usec 9\nnr_periods 200\nnr_throttled 150\nthrottled_usec 1500000\n";
        assert_eq!((counted(one), counted(two)), (wanted, wanted));
        assert_eq!(counted("nothing of this\n\n"), ThrottleCounts::default());
    }
}
