//! Statistics over plain numbers. Pure: no clock, and no randomness but a given seed.
//!
//! Tested against fixed values that SciPy 1.17.1 gave.

mod bootstrap;
pub(crate) mod difference;
mod distribution;
mod netperf;
mod noise;
mod outlier;
mod ratio;
mod student;

pub(crate) use bootstrap::{bca, expanded};
#[cfg(test)]
pub(crate) use netperf::enough;
pub(crate) use netperf::width;
pub(crate) use noise::{differs, floor, rank};
pub(crate) use outlier::outliers;
pub(crate) use ratio::{Estimate, paired, robust, separate};
pub(crate) use student::{mean_interval, welch_interval};

/// A range that holds a value with a stated confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies in it; its ends do.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Half of its width: the number behind `±`.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The arithmetic mean; `None` of nothing.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    match values.len() {
        0 => None,
        count => Some(values.iter().sum::<f64>() / count as f64),
    }
}

/// The unbiased variance; `None` of fewer than two values.
pub(crate) fn variance(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (values.len() > 1).then(|| squares / (values.len() - 1) as f64)
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// The quantile of sorted values, linear between neighbours; `None` of nothing.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let weight = place - below as f64;
    Some(sorted[below] * (1.0 - weight) + sorted[above] * weight)
}

#[cfg(test)]
mod tests;
