//! Processor time that went neither to the tunnel nor to its endpoints: used by other programs of the machine, or taken
//! by its host. A trial that had to share its processors does not show what limits the tunnel.

use super::finding::Finding;
use super::profile;
use crate::meter::Readings;

/// From this share of the processor time on, no limit by processor time is claimed.
const MIN_OTHERS_RATIO: f64 = 0.25;

/// Others, where they used too much of the processors: other programs by the profile, other guests by `/proc/stat`.
pub(super) fn used(readings: &Readings) -> Finding {
    let programs = profile::others(readings).unwrap_or(0.0);
    let stolen = stolen(readings).unwrap_or(0.0);
    let users = [("other programs", programs), ("the host", stolen)];
    let named = users.iter().filter(|(_, ratio)| *ratio > 0.0);
    let named: Vec<String> = named
        .map(|(user, ratio)| format!("{user} took {:.0} % of the processor time", 100.0 * ratio))
        .collect();
    (programs + stolen >= MIN_OTHERS_RATIO).then(|| ("others", named.join(", ")))
}

fn stolen(readings: &Readings) -> Option<f64> {
    let states = readings
        .iter()
        .filter(|(name, _)| name.starts_with("machine.") && name.ends_with("_s"));
    let all: f64 = states.map(|(_, seconds)| seconds).sum();
    let stolen = *readings.get("machine.steal_s")?;
    (all > 0.0).then(|| stolen / all)
}
