//! The textbook interval of a mean.

use super::distribution::student_quantile;
use super::{Interval, mean, variance};

/// The interval that holds the mean with the given confidence, if the values scatter normally. `None` of fewer than two.
pub fn mean_interval(values: &[f64], level: f64) -> Option<Interval> {
    let (centre, spread) = (mean(values)?, variance(values)?);
    let count = values.len() as f64;
    let half = student_quantile(0.5 + level / 2.0, count - 1.0) * (spread / count).sqrt();
    Some(Interval {
        low: centre - half,
        high: centre + half,
    })
}
