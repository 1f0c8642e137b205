//! Where packets were lost: by the tunnel's own count, at sockets, at interfaces, or in a processor's backlog.

use super::finding::Finding;
use crate::meter::Readings;

/// Losses matter from this share of the packets on.
const MIN_LOSS_RATIO: f64 = 0.001;

/// Whether a reading counts losses at this place.
type Counts = fn(&str) -> bool;

/// The places, each with its name for readers. A packet is lost at one of the first three; a full backlog may be seen
/// by an interface, too.
const LOSS_POINTS: [(&str, Counts); 4] = [
    ("by the tunnel itself", |name| name.starts_with("drops.")),
    ("at full socket buffers", |name| {
        name.ends_with("_buffer_errors") || at_an_end(name)
    }),
    ("at interfaces", |name| name.ends_with("_dropped")),
    ("in full backlogs (softnet)", |name| {
        name.ends_with("softnet.dropped_count")
    }),
];

/// Sockets of the end hosts; those of the gateways have readings of their own.
fn at_an_end(name: &str) -> bool {
    let end = name.starts_with("client.") || name.starts_with("server.");
    end && (name.ends_with(".RcvbufErrors_count") || name.ends_with(".SndbufErrors_count"))
}

/// More losses than a path without trouble has.
pub(super) fn many(readings: &Readings) -> Finding {
    let sum = |counts: Counts| -> f64 {
        let found = readings.iter().filter(|(name, _)| counts(name));
        found.map(|(_, count)| count.max(0.0)).sum()
    };
    let found = LOSS_POINTS.map(|(place, counts)| (place, sum(counts)));
    let once: f64 = found[..3].iter().map(|(_, count)| count).sum();
    let lost = once.max(found[3].1);
    let passed = sum(|name| name.ends_with(".if.wan.rx_packets"));
    if lost <= MIN_LOSS_RATIO * passed || passed <= 0.0 {
        return None;
    }
    let named = found.iter().filter(|(_, count)| *count > 0.0);
    let places: Vec<String> = named
        .map(|(place, count)| format!("{count:.0} {place}"))
        .collect();
    let reasons = reasons(readings);
    Some((
        "drops",
        format!(
            "{lost:.0} packets were dropped while {passed:.0} crossed the wire: {}{reasons}",
            places.join(", ")
        ),
    ))
}

/// The tunnel's commonest reasons, by its own names.
fn reasons(readings: &Readings) -> String {
    let counted = readings
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix("drops.")?, *count)));
    let mut counted: Vec<(&str, f64)> = counted.filter(|(_, count)| *count > 0.0).collect();
    counted.sort_by(|one, other| other.1.total_cmp(&one.1));
    let named: Vec<&str> = counted.iter().take(3).map(|(name, _)| *name).collect();
    if named.is_empty() {
        String::new()
    } else {
        format!(" ({})", named.join(", "))
    }
}
