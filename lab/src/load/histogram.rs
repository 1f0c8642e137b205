//! A histogram of times, with a relative error below one percent and a few kilobytes of memory: every octave has 128
//! equal steps. The largest value is exact.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How often each size occurred.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram {
    counts: BTreeMap<u64, u64>,
    largest: u64,
}

const STEPS_PER_OCTAVE: u64 = 128;

/// The percentiles that are reported, and their names in figures: each leaves out a tenth of the one before.
pub const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p999", 0.999),
    ("p9999", 0.9999),
    ("p99999", 0.99999),
];

impl Histogram {
    /// One more of this size.
    pub fn add(&mut self, value: u64) {
        *self.counts.entry(floor(value)).or_default() += 1;
        self.largest = self.largest.max(value);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The largest, exactly.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The smallest value that at least this share of all does not exceed; 0 of none.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64)
            .ceil()
            .max(1.0) as u64;
        let mut so_far = 0;
        for (value, count) in &self.counts {
            so_far += count;
            if so_far >= wanted {
                return (value + width(*value) / 2).min(self.largest);
            }
        }
        0
    }

    /// `NAME.p50_us` and so on, from nanoseconds. A percentile beyond the largest value is omitted.
    pub fn figures(&self, name: &str) -> BTreeMap<String, f64> {
        let mut figures: BTreeMap<String, f64> = PERCENTILES
            .iter()
            .filter(|(_, share)| *share <= 0.999 || self.count() as f64 >= one_in(*share))
            .map(|(word, share)| {
                (
                    format!("{name}.{word}_us"),
                    self.quantile(*share) as f64 / 1e3,
                )
            })
            .collect();
        figures.insert(format!("{name}.max_us"), self.largest as f64 / 1e3);
        figures
    }
}

/// Of how many it leaves out one.
fn one_in(share: f64) -> f64 {
    (1.0 / (1.0 - share)).round()
}

/// The width of the step that holds a value.
fn width(value: u64) -> u64 {
    let octave = 63 - (value | 1).leading_zeros() as u64;
    1 << octave.saturating_sub(STEPS_PER_OCTAVE.ilog2().into())
}

fn floor(value: u64) -> u64 {
    value - value % width(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_quantile_is_within_a_percent_of_the_sorted_values(
            values in prop::collection::vec(1u64..10_000_000_000, 1..200),
            share in 0.0f64..=1.0,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            let mut sorted = values;
            sorted.sort_unstable();
            let place = ((share * sorted.len() as f64).ceil().max(1.0) as usize) - 1;
            let (ours, exact) = (histogram.quantile(share) as f64, sorted[place] as f64);
            prop_assert!((ours - exact).abs() <= exact * 0.01, "{ours} {exact}");
            prop_assert_eq!(histogram.largest(), *sorted.last().unwrap());
        }
    }

    #[test]
    fn figures_are_in_microseconds() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.add(value * 1000));
        let figures = histogram.figures("rtt");
        assert!((figures["rtt.p50_us"] - 500.0).abs() < 5.0);
        assert!((figures["rtt.p99_us"] - 990.0).abs() < 10.0);
        assert_eq!(figures["rtt.max_us"], 1000.0);
        assert!(!figures.contains_key("rtt.p9999_us"), "of a thousand");
        (0..9000).for_each(|_| histogram.add(1000));
        assert!(histogram.figures("rtt").contains_key("rtt.p9999_us"));
    }

    #[test]
    fn nothing_has_no_times() {
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
