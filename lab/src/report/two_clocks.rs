//! What is not measured of stamped frames between hosts that have no clock in common.

use super::findings::Findings;
use crate::record::{Outcome, Record};

/// For the page and the table.
pub(super) const NOTE: &str = "one-way delays of frames are not measured here: each end host has a clock of its own, \
     and their difference is not known. Round trips stand in their place: a frame on its way there, and a \
     small answer on its way back, by the sender's clock; at most 1000 frames a second are answered";

/// The note, where frames were measured without one-way delays.
pub(super) fn note(findings: &Findings) -> Option<&'static str> {
    findings.records.iter().any(without_delays).then_some(NOTE)
}

fn without_delays(record: &Record) -> bool {
    let measured = matches!(
        record.outcome,
        Outcome::Measured { .. } | Outcome::Examined { .. }
    );
    let mut figures = record.figures.keys();
    measured
        && record.load.starts_with("frames-")
        && !figures.any(|name| name.starts_with("latency"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn only_frames_without_one_way_delays_have_the_note() {
        let noted = |load: &str, figure: &str| {
            let mut records = fixture::cell("a", 0, &[], &[1e9]);
            records[0].load = load.into();
            records[0].figures.insert(figure.into(), 40.0);
            note(&Findings::of(&records).unwrap()).is_some()
        };
        assert!(noted("frames-ndr", "rtt.p50_us"));
        assert!(
            noted("frames-steady", "lost_count"),
            "every answer was lost"
        );
        assert!(!noted("frames-ndr", "latency.p50_us"));
        assert!(!noted("round-trip", "rtt.p50_us"));
    }
}
