//! An interval without assuming how the values scatter: resample them, and correct for bias and skew (BCa).

use super::distribution::{normal, normal_quantile, student_quantile};
use super::{Interval, quantile};
use crate::seed::SplitMix64;

/// The bias-corrected and accelerated bootstrap interval of `statistic`, over values or over pairs that belong
/// together. `None` of fewer than two values, and where every resample gives the same or the correction is undefined.
pub(crate) fn bca<T: Copy>(
    values: &[T],
    statistic: impl Fn(&[T]) -> f64,
    level: f64,
    resamples: usize,
    seed: u64,
) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let drawn = resampled(values, &statistic, resamples, seed);
    let bias = normal_quantile(share_below(&drawn, statistic(values)));
    let acceleration = acceleration(values, &statistic);
    let end = |tail: f64| {
        let z = bias + normal_quantile(tail);
        quantile(&drawn, normal(bias + z / (1.0 - acceleration * z)))
    };
    let (low, high) = (end((1.0 - level) / 2.0)?, end((1.0 + level) / 2.0)?);
    (low.is_finite() && high.is_finite() && low < high).then_some(Interval { low, high })
}

/// The level to pass to a bootstrap, so that its interval of `count` values has the coverage `level`.
/// Resampling a few values underestimates their scatter. The correction is the ratio of Student's to the normal
/// quantile and the root of n/(n − 1).
pub(crate) fn expanded(level: f64, count: usize) -> f64 {
    let freedom = count.saturating_sub(1).max(1) as f64;
    let wider = (count as f64 / freedom).sqrt() * student_quantile(0.5 + level / 2.0, freedom);
    2.0 * normal(wider) - 1.0
}

/// The statistic of every resample, sorted.
fn resampled<T: Copy>(
    values: &[T],
    statistic: impl Fn(&[T]) -> f64,
    resamples: usize,
    seed: u64,
) -> Vec<f64> {
    let mut seeded = SplitMix64::new(seed);
    let mut sample = values.to_vec();
    let mut draw = || {
        sample.fill_with(|| values[seeded.below(values.len())]);
        statistic(&sample)
    };
    let mut drawn: Vec<f64> = (0..resamples).map(|_| draw()).collect();
    drawn.sort_by(f64::total_cmp);
    drawn
}

/// The share of the resamples below the observed value; equal ones count half.
fn share_below(drawn: &[f64], observed: f64) -> f64 {
    let below = drawn.partition_point(|value| *value < observed);
    let not_above = drawn.partition_point(|value| *value <= observed);
    (below + not_above) as f64 / (2 * drawn.len()) as f64
}

/// Skew of the statistic under leaving one value out.
fn acceleration<T: Copy>(values: &[T], statistic: impl Fn(&[T]) -> f64) -> f64 {
    let without = |left_out: usize| {
        let mut rest = values.to_vec();
        rest.remove(left_out);
        statistic(&rest)
    };
    let jackknife: Vec<f64> = (0..values.len()).map(without).collect();
    let centre = jackknife.iter().sum::<f64>() / jackknife.len() as f64;
    let moment = |power: i32| {
        jackknife
            .iter()
            .map(|value| (centre - value).powi(power))
            .sum::<f64>()
    };
    let spread = moment(2).powf(1.5);
    if spread == 0.0 {
        0.0
    } else {
        moment(3) / (6.0 * spread)
    }
}
