//! Outliers. They are listed and not removed: what a machine did once it may do again.

use super::median;

/// With fewer values none is called an outlier.
const MIN_VALUES: usize = 5;
/// Iglewicz and Hoaglin's threshold of the modified z-score.
const OUTLIER_SCORE: f64 = 3.5;
/// The quartile of a normal distribution: makes the median deviation comparable to a standard deviation.
const NORMAL_QUARTILE: f64 = 0.674_489_750_196_081_7;

/// The places of the outliers: further from the median than 3.5 standard deviations, as the median of all distances
/// estimates one, and at least a hundredth of the median (among equal values every other one would be an outlier).
pub(crate) fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(centre) = median(values).filter(|_| values.len() >= MIN_VALUES) else {
        return Vec::new();
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    let typical = median(&distances).unwrap_or(0.0) / NORMAL_QUARTILE;
    let far = (OUTLIER_SCORE * typical).max(centre.abs() / 100.0);
    let places = distances.iter().enumerate();
    places
        .filter(|(_, distance)| **distance > far)
        .map(|(place, _)| place)
        .collect()
}
