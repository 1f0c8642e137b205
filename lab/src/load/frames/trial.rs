//! What became of the frames of one trial at one rate, as figures of a record.

use std::collections::BTreeMap;

use crate::load::Carried;
use crate::tool::{Received, Sent};

/// A sender that sent less than the rest of this was too slow: it did not send at the rate.
pub(super) const MAX_BEHIND_RATIO: f64 = 0.02;

/// One trial at one rate.
pub(super) struct RateTrial {
    pub sent: Sent,
    pub received: Received,
}

impl RateTrial {
    pub(super) fn loss(&self) -> f64 {
        let lost = self.sent.sent.saturating_sub(self.received.received);
        lost as f64 / self.sent.sent.max(1) as f64
    }

    pub(super) fn rate_pps(&self) -> f64 {
        self.received.received as f64 / self.seconds()
    }

    /// From the first frame sent to the last received. Where the ends have two clocks, each knows its own span, and the
    /// longer one is closer to that: a path that delays its last frames makes the receiver's longer, one that loses
    /// them the sender's.
    fn seconds(&self) -> f64 {
        let span = match self.sent.round_trips {
            Some(_) => self.received.seconds.max(self.sent.seconds),
            None => self.received.seconds,
        };
        span.max(1e-9)
    }

    /// The share of what was asked for that the sender could not send in time.
    pub(super) fn behind(&self) -> f64 {
        let asked = self.sent.sent + self.sent.behind;
        self.sent.behind as f64 / asked.max(1) as f64
    }

    /// What became of the frames at a percentage of the rate that was found. Where the sender was too slow, the rate
    /// was another one, and the delays are not those of the percentage.
    pub(super) fn figures_at(&self, percent: u32) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::from([
            (format!("rate_at_{percent}_pps"), self.rate_pps()),
            (format!("loss_at_{percent}_ratio"), self.loss()),
            (format!("behind_at_{percent}_ratio"), self.behind()),
            (
                format!("reordered_at_{percent}_count"),
                self.received.reordered as f64,
            ),
        ]);
        if self.behind() <= MAX_BEHIND_RATIO {
            figures.extend(self.delays(&format!("_at_{percent}")));
        }
        figures
    }

    /// One-way delays, or round trips and how many of them there were.
    fn delays(&self, at: &str) -> BTreeMap<String, f64> {
        let Some(round_trips) = &self.sent.round_trips else {
            return self.received.latency.figures(&format!("latency{at}"));
        };
        let answers = round_trips.count();
        if answers == 0 {
            return BTreeMap::new();
        }
        let lost = self.received.answered.saturating_sub(answers);
        let lost_ratio = lost as f64 / self.received.answered.max(1) as f64;
        let mut figures = round_trips.figures(&format!("rtt{at}"));
        figures.insert(format!("rtt{at}.answers_count"), answers as f64);
        figures.insert(format!("rtt{at}.lost_ratio"), lost_ratio);
        figures
    }

    /// The trial as the result of a load.
    pub(super) fn carried(&self) -> Carried {
        let mut figures = self.delays("");
        let numbers = [
            ("rate_pps", self.rate_pps()),
            ("loss_ratio", self.loss()),
            ("duplicates_count", self.received.duplicates as f64),
            ("reordered_count", self.received.reordered as f64),
            (
                "reorder_distance_frames",
                self.received.reorder_distance as f64,
            ),
        ];
        figures.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
        Carried {
            tool: format!("esplanade-lab {}", env!("CARGO_PKG_VERSION")),
            seconds: self.seconds(),
            bytes: self.received.bytes,
            goodput_bps: self.received.bytes as f64 * 8.0 / self.seconds(),
            retransmits: None,
            intervals_bps: Vec::new(),
            figures,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Histogram;

    fn trial(sent: u64, behind: u64) -> RateTrial {
        let mut latency = Histogram::default();
        latency.add(40_000);
        RateTrial {
            sent: Sent {
                sent,
                seconds: 1.0,
                behind,
                round_trips: None,
            },
            received: Received {
                received: sent - 1,
                seconds: 1.0,
                latency,
                reordered: 3,
                ..Received::default()
            },
        }
    }

    /// The same between two clocks: 8 of 10 answers came back.
    fn of_two_clocks(behind: u64) -> RateTrial {
        let mut trial = trial(1000 - behind, behind);
        let mut times = Histogram::default();
        (0..8).for_each(|_| times.add(90_000));
        trial.received.latency = Histogram::default();
        trial.received.answered = 10;
        trial.sent.round_trips = Some(times);
        trial
    }

    #[test]
    fn a_share_of_the_rate_has_delays_loss_and_order_of_its_own() {
        let figures = trial(1000, 0).figures_at(90);
        assert_eq!(figures["latency_at_90.max_us"], 40.0);
        assert_eq!(figures["rate_at_90_pps"], 999.0);
        assert_eq!(figures["loss_at_90_ratio"], 0.001);
        assert_eq!(figures["reordered_at_90_count"], 3.0);
    }

    #[test]
    fn a_sender_that_was_too_slow_gives_no_delays_of_that_share() {
        let figures = trial(900, 100).figures_at(99);
        assert_eq!(figures["behind_at_99_ratio"], 0.1);
        assert!(!figures.keys().any(|name| name.starts_with("latency")));
        let figures = of_two_clocks(100).figures_at(99);
        assert!(!figures.keys().any(|name| name.starts_with("rtt")));
    }

    #[test]
    fn two_clocks_give_round_trips_and_no_one_way_delay() {
        let figures = of_two_clocks(0).figures_at(50);
        assert_eq!(figures["rtt_at_50.max_us"], 90.0);
        assert_eq!(figures["rtt_at_50.answers_count"], 8.0);
        assert_eq!(figures["rtt_at_50.lost_ratio"], 0.2);
        assert!(!figures.keys().any(|name| name.starts_with("latency")));
        let figures = of_two_clocks(0).carried().figures;
        assert_eq!(figures["rtt.max_us"], 90.0);
        assert!(!figures.keys().any(|name| name.starts_with("latency")));
    }

    #[test]
    fn no_answer_is_no_round_trip_of_nothing() {
        let mut trial = of_two_clocks(0);
        trial.sent.round_trips = Some(Histogram::default());
        assert!(
            !trial
                .carried()
                .figures
                .keys()
                .any(|name| name.starts_with("rtt"))
        );
    }

    #[test]
    fn between_two_clocks_the_longer_of_both_spans_counts() {
        let mut trial = of_two_clocks(0);
        assert_eq!(trial.rate_pps(), 999.0);
        trial.received.seconds = 2.0;
        assert_eq!(trial.rate_pps(), 499.5);
        trial.received.seconds = 0.5;
        assert_eq!(trial.rate_pps(), 999.0);
        trial.sent.round_trips = None;
        assert_eq!(trial.rate_pps(), 1998.0);
    }
}
