//! The JSON that iperf3 ends with.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::load::Carried;

/// All of it.
#[derive(Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    error: Option<String>,
    start: Start,
    intervals: Vec<Interval>,
    end: End,
}

#[derive(Deserialize)]
struct Start {
    version: String,
}

#[derive(Deserialize)]
struct Interval {
    sum: Sum,
    sum_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct End {
    sum_sent: Sum,
    sum_received: Sum,
    sum: Option<Sum>,
    sum_sent_bidir_reverse: Option<Sum>,
    sum_received_bidir_reverse: Option<Sum>,
    sum_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Sum {
    seconds: f64,
    bytes: u64,
    bits_per_second: f64,
    retransmits: Option<u64>,
    lost_packets: Option<u64>,
    packets: Option<u64>,
    jitter_ms: Option<f64>,
}

/// Parses it; iperf3 reports its errors in it.
pub(super) fn read(json: &str) -> Result<Answer, String> {
    let answer: Answer = serde_json::from_str(json).map_err(|error| match json.trim() {
        "" => "it said nothing".to_owned(),
        _ => format!("its output is not valid: {error}"),
    })?;
    match answer.error {
        Some(error) => Err(error),
        None => Ok(answer),
    }
}

impl Answer {
    /// What the receivers counted: where data went both ways, the sum, and each way among the figures.
    pub(super) fn carried(self) -> Carried {
        let figures = self.figures();
        let (there, back) = (&self.end.sum_received, &self.end.sum_received_bidir_reverse);
        let ways = || std::iter::once(there).chain(back);
        let sent = std::iter::once(&self.end.sum_sent).chain(&self.end.sum_sent_bidir_reverse);
        Carried {
            tool: self.start.version.clone(),
            seconds: there.seconds,
            bytes: ways().map(|way| way.bytes).sum(),
            goodput_bps: ways().map(|way| way.bits_per_second).sum(),
            retransmits: sent.filter_map(|way| way.retransmits).reduce(|a, b| a + b),
            intervals_bps: self.intervals.iter().map(Interval::goodput_bps).collect(),
            figures,
        }
    }

    /// What UDP adds, whose `sum` holds its losses; and where data went both ways, each of them.
    fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        if let Some(back) = &self.end.sum_received_bidir_reverse {
            let there = self.end.sum_received.bits_per_second;
            figures.insert("forward.goodput_bps".into(), there);
            figures.insert("reverse.goodput_bps".into(), back.bits_per_second);
        }
        let sums = [&self.end.sum, &self.end.sum_bidir_reverse];
        let sums = || sums.into_iter().flatten();
        let count = |pick: fn(&Sum) -> Option<u64>| sums().filter_map(pick).reduce(|a, b| a + b);
        let (lost, packets) = (count(|sum| sum.lost_packets), count(|sum| sum.packets));
        if let (Some(lost), Some(packets)) = (lost, packets.filter(|all| *all > 0)) {
            figures.insert("loss_ratio".into(), lost as f64 / packets as f64);
            let arrived = packets.saturating_sub(lost) as f64;
            let seconds = sums().map(|sum| sum.seconds).fold(1e-9, f64::max);
            figures.insert("rate_pps".into(), arrived / seconds);
        }
        if let Some(jitter) = sums().filter_map(|sum| sum.jitter_ms).reduce(f64::max) {
            figures.insert("jitter_us".into(), jitter * 1e3);
        }
        figures
    }
}

impl Interval {
    fn goodput_bps(&self) -> f64 {
        let back = self.sum_bidir_reverse.as_ref();
        self.sum.bits_per_second + back.map_or(0.0, |back| back.bits_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"start": {"version": "iperf 3.12", "connected": []},
        "intervals": [{"streams": [], "sum": {"bits_per_second": 8e9}}, {"sum": {"bits_per_second": 9.5e9}}],
        "end": {"sum_sent": {"seconds": 2.0, "bytes": 2500000, "bits_per_second": 1e7, "retransmits": 3},
                "sum_received": {"seconds": 2.01, "bytes": 2400000, "bits_per_second": 9.55e6}}}"#;

    #[test]
    fn the_receiver_decides_what_arrived() {
        let carried = read(GOOD).unwrap().carried();
        assert_eq!((carried.bytes, carried.retransmits), (2_400_000, Some(3)));
        assert_eq!(carried.intervals_bps, [8e9, 9.5e9]);
        assert_eq!(carried.tool, "iperf 3.12");
    }

    #[test]
    fn the_error_of_iperf3_is_passed_on() {
        let refused = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {},
            "error": "unable to connect to server: Connection refused"}"#;
        assert_eq!(
            read(refused).err().unwrap(),
            "unable to connect to server: Connection refused"
        );
        assert_eq!(read("").err().unwrap(), "it said nothing");
        assert!(
            read("{")
                .err()
                .unwrap()
                .starts_with("its output is not valid")
        );
    }

    #[test]
    fn losses_of_udp_are_figures() {
        let json = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {
            "sum": {"seconds": 2.0, "packets": 1000, "lost_packets": 50, "jitter_ms": 0.25},
            "sum_received": {"seconds": 2.0, "bytes": 950000, "bits_per_second": 3.8e6}}}"#;
        let figures = read(json).unwrap().carried().figures;
        assert_eq!((figures["loss_ratio"], figures["rate_pps"]), (0.05, 475.0));
        assert_eq!(figures["jitter_us"], 250.0);
    }

    #[test]
    fn both_ways_are_reported_as_their_sum_and_each() {
        let json = r#"{"start": {"version": "iperf 3.12"},
            "intervals": [{"sum": {"bits_per_second": 8e9}, "sum_bidir_reverse": {"bits_per_second": 7e9}}],
            "end": {"sum_sent": {"bytes": 1000, "retransmits": 2}, "sum_received": {"seconds": 1.0, "bytes": 900, "bits_per_second": 7200},
            "sum_sent_bidir_reverse": {"bytes": 600, "retransmits": 3},
            "sum_received_bidir_reverse": {"seconds": 1.0, "bytes": 500, "bits_per_second": 4000}}}"#;
        let carried = read(json).unwrap().carried();
        assert_eq!((carried.bytes, carried.goodput_bps), (1400, 11_200.0));
        assert_eq!(
            (carried.retransmits, carried.intervals_bps),
            (Some(5), vec![15e9])
        );
        let each = ["forward.goodput_bps", "reverse.goodput_bps"].map(|way| carried.figures[way]);
        assert_eq!(each, [7200.0, 4000.0]);
    }

    #[test]
    fn losses_of_both_ways_are_one_share() {
        let json = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {
            "sum": {"seconds": 2.0, "packets": 1000, "lost_packets": 50, "jitter_ms": 0.25},
            "sum_bidir_reverse": {"seconds": 2.0, "packets": 1000, "lost_packets": 150, "jitter_ms": 0.5}}}"#;
        let figures = read(json).unwrap().carried().figures;
        assert_eq!((figures["loss_ratio"], figures["rate_pps"]), (0.1, 900.0));
        assert_eq!(figures["jitter_us"], 500.0);
    }
}
