//! The textbook intervals: of a mean, and of the difference of two.

use super::distribution::student_quantile;
use super::{Interval, mean, variance};

/// The interval that holds the mean with the given confidence, if the values scatter normally. `None` of fewer than
/// two.
pub(crate) fn mean_interval(values: &[f64], level: f64) -> Option<Interval> {
    let (centre, spread) = (mean(values)?, variance(values)?);
    let count = values.len() as f64;
    let half = student_quantile(0.5 + level / 2.0, count - 1.0) * (spread / count).sqrt();
    Some(Interval {
        low: centre - half,
        high: centre + half,
    })
}

/// The interval that holds the difference of the means of two separate samples, `a` less `b`, if both scatter normally,
/// each in its own way (Welch). `None` of fewer than two values in either.
pub(crate) fn welch_interval(a: &[f64], b: &[f64], level: f64) -> Option<Interval> {
    let difference = mean(a)? - mean(b)?;
    let (of_a, of_b) = (variance(a)? / a.len() as f64, variance(b)? / b.len() as f64);
    let parts = of_a.powi(2) / (a.len() - 1) as f64 + of_b.powi(2) / (b.len() - 1) as f64;
    let half = match parts {
        0.0 => 0.0,
        parts => {
            let freedom = (of_a + of_b).powi(2) / parts;
            student_quantile(0.5 + level / 2.0, freedom) * (of_a + of_b).sqrt()
        }
    };
    Some(Interval {
        low: difference - half,
        high: difference + half,
    })
}
