//! How much larger one thing is than another. Two things that were measured in the same rounds are compared pair by
//! pair, which removes drifts that affected both; two measured in different runs are compared as separate samples.

use super::{Interval, bca, expanded, mean, mean_interval, median, welch_interval};

/// A value and its interval at the requested level, where there were enough measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The best single number.
    pub value: f64,
    /// Its interval.
    pub interval: Option<Interval>,
}

/// Below this many pairs a bootstrap has too little to draw from; the logarithms are then taken as normal.
const MIN_PAIRS_TO_RESAMPLE: usize = 8;
const RESAMPLES: usize = 4000;

/// The ratio of the means of pairs, first to second. `None` unless all numbers are positive.
pub(crate) fn paired(pairs: &[(f64, f64)], level: f64, seed: u64) -> Option<Estimate> {
    let value = ratio_of_means(pairs);
    if pairs.is_empty() || !pairs.iter().all(|(a, b)| *a > 0.0 && *b > 0.0) {
        return None;
    }
    let resampled = (pairs.len() >= MIN_PAIRS_TO_RESAMPLE)
        .then(|| {
            bca(
                pairs,
                ratio_of_means,
                expanded(level, pairs.len()),
                RESAMPLES,
                seed,
            )
        })
        .flatten();
    Some(Estimate {
        value,
        interval: resampled.or_else(|| by_logarithms(pairs, level)),
    })
}

fn ratio_of_means(pairs: &[(f64, f64)]) -> f64 {
    let (a, b) = pairs
        .iter()
        .fold((0.0, 0.0), |(a, b), pair| (a + pair.0, b + pair.1));
    a / b
}

fn by_logarithms(pairs: &[(f64, f64)], level: f64) -> Option<Interval> {
    let logarithms: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    mean_interval(&logarithms, level).map(exponential)
}

/// The ratio of the means of two independent samples. `None` unless all numbers are
/// positive.
pub(crate) fn separate(a: &[f64], b: &[f64], level: f64) -> Option<Estimate> {
    let (in_a, in_b) = (logarithms(a)?, logarithms(b)?);
    Some(Estimate {
        value: mean(a)? / mean(b)?,
        interval: welch_interval(&in_a, &in_b, level).map(exponential),
    })
}

/// The ratio of two samples that outliers do not move: the median of every value of one over every value of
/// the other (Hodges and Lehmann, on the logarithms).
pub(crate) fn robust(a: &[f64], b: &[f64]) -> Option<f64> {
    let (in_a, in_b) = (logarithms(a)?, logarithms(b)?);
    let differences: Vec<f64> = in_a
        .iter()
        .flat_map(|a| in_b.iter().map(move |b| a - b))
        .collect();
    median(&differences).map(f64::exp)
}

fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    let positive = !values.is_empty() && values.iter().all(|value| *value > 0.0);
    positive.then(|| values.iter().map(|value| value.ln()).collect())
}

fn exponential(interval: Interval) -> Interval {
    Interval {
        low: interval.low.exp(),
        high: interval.high.exp(),
    }
}
