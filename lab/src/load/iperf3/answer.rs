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
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct End {
    sum_sent: Sum,
    sum_received: Sum,
    sum: Option<Sum>,
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

/// Reads it; iperf3 tells its own errors in it.
pub(super) fn read(json: &str) -> Result<Answer, String> {
    let answer: Answer = serde_json::from_str(json).map_err(|error| match json.trim() {
        "" => "it said nothing".to_owned(),
        _ => format!("its answer is not understood: {error}"),
    })?;
    match answer.error {
        Some(error) => Err(error),
        None => Ok(answer),
    }
}

impl Answer {
    /// What the receiver counted.
    pub fn carried(self) -> Carried {
        let figures = self.figures();
        Carried {
            tool: self.start.version,
            seconds: self.end.sum_received.seconds,
            bytes: self.end.sum_received.bytes,
            goodput_bps: self.end.sum_received.bits_per_second,
            retransmits: self.end.sum_sent.retransmits,
            intervals_bps: self
                .intervals
                .iter()
                .map(|interval| interval.sum.bits_per_second)
                .collect(),
            figures,
        }
    }

    /// What UDP adds: `sum` holds its losses.
    fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        let Some(sum) = &self.end.sum else {
            return figures;
        };
        if let (Some(lost), Some(packets)) = (sum.lost_packets, sum.packets.filter(|all| *all > 0))
        {
            figures.insert("loss_ratio".into(), lost as f64 / packets as f64);
            let arrived = packets.saturating_sub(lost) as f64;
            figures.insert("rate_pps".into(), arrived / sum.seconds.max(1e-9));
        }
        if let Some(jitter) = sum.jitter_ms {
            figures.insert("jitter_us".into(), jitter * 1e3);
        }
        figures
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
                .starts_with("its answer is not understood")
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
}
