//! From counts at two moments to shares of the time between them. Pure arithmetic.
//!
//! ```text
//!   |◄─────────────── processors × window ───────────────►|
//!   | others, by the scheduler's clock | hidden | counted |
//!   |◄───────────── load ──────────────────────►|
//!                                      |◄── charged ─────►|  to the soaker
//! ```

use crate::meter::Readings;
use crate::tool::{Class, SoakCounts, Spinning};

/// Shares of a processor's window.
struct Share {
    cpu: usize,
    /// What was counted, as time at the rate of the calibration.
    counted: f64,
    /// What the kernel charged to the spinner.
    charged: f64,
}

/// The readings between two samples; `None` where these are not of the same spinners, or of the same moment.
pub(super) fn readings(
    prefix: &str,
    spinning: &[Spinning],
    began: &SoakCounts,
    ended: &SoakCounts,
) -> Option<Readings> {
    let window = seconds(began.at_ns, ended.at_ns).filter(|window| *window > 0.0)?;
    let places = 0..spinning.len();
    let shares: Option<Vec<Share>> = places
        .map(|place| share(&spinning[place], place, window, [began, ended]))
        .collect();
    let shares = shares.filter(|shares| !shares.is_empty())?;
    let processors = shares.len() as f64;
    let mean = |of: fn(&Share) -> f64| shares.iter().map(of).sum::<f64>() / processors;
    let (counted, charged) = (mean(|share| share.counted), mean(|share| share.charged));
    // The soaker's own time is not load.
    let own = seconds(began.own_ns, ended.own_ns)? / (processors * window);
    let load = (1.0 - counted - own).clamp(0.0, 1.0);
    let loads = shares.iter().map(Share::load);
    let mut named = vec![
        ("load_ratio".into(), load),
        ("hidden_ratio".into(), (charged - counted).clamp(0.0, load)),
        ("busiest_ratio".into(), loads.fold(0.0, f64::max)),
        ("faster_ratio".into(), faster(counted, charged)),
        ("window_s".into(), window),
        ("processors_count".into(), processors),
    ];
    let nice = spinning.iter().filter(|one| one.class == Class::Nice);
    let nice = nice.count() as f64;
    if nice > 0.0 {
        named.push(("nice_count".into(), nice));
    }
    named.extend(
        shares
            .iter()
            .map(|share| (format!("cpu{}.load_ratio", share.cpu), share.load())),
    );
    let named = named.into_iter();
    Some(
        named
            .map(|(name, value): (String, f64)| (format!("{prefix}soaker.{name}"), value))
            .collect(),
    )
}

fn share(spinning: &Spinning, place: usize, window: f64, seen: [&SoakCounts; 2]) -> Option<Share> {
    let between = |of: fn(&SoakCounts) -> &Vec<u64>| {
        let [began, ended] = seen.map(|seen| of(seen).get(place).copied());
        ended?.checked_sub(began?)
    };
    let units = between(|seen| &seen.units)? as f64;
    let charged = between(|seen| &seen.cpu_ns)? as f64 / 1e9;
    (spinning.units_per_s > 0.0).then(|| Share {
        cpu: spinning.cpu,
        counted: units / spinning.units_per_s / window,
        charged: charged / window,
    })
}

impl Share {
    /// A clock that runs faster than in the calibration counts more than there was: that is no load below nothing.
    fn load(&self) -> f64 {
        (1.0 - self.counted).clamp(0.0, 1.0)
    }
}

/// By how much more was counted than the time charged for allows; 0 where nothing was.
fn faster(counted: f64, charged: f64) -> f64 {
    if charged > 0.0 {
        (counted / charged - 1.0).max(0.0)
    } else {
        0.0
    }
}

fn seconds(from_ns: u64, to_ns: u64) -> Option<f64> {
    Some(to_ns.checked_sub(from_ns)? as f64 / 1e9)
}
