//! The rule by which netperf, and with it the study of 2009, decides that it has measured often enough. Stopping at the
//! first narrow interval makes it too optimistic; the rule is used only to compare with that study.

use super::distribution::student_quantile;
use super::mean;

/// The full width of the interval relative to the mean. `None` of fewer than two values or a mean of zero.
pub(crate) fn width(values: &[f64], level: f64) -> Option<f64> {
    let centre = mean(values)?;
    if values.len() < 2 || centre == 0.0 {
        return None;
    }
    let count = values.len() as f64;
    let squares: f64 = values.iter().map(|value| value * value).sum();
    let population = squares / count - centre * centre;
    let t = student_quantile(0.5 + level / 2.0, count - 1.0);
    Some(2.0 * t * (population.max(0.0) / (count - 1.0)).sqrt() / centre)
}

/// Whether to stop: never before `least` values, always at `most`, in between as soon as the width is within `wanted`.
#[cfg(test)]
pub(crate) fn enough(values: &[f64], level: f64, wanted: f64, least: usize, most: usize) -> bool {
    let narrow = width(values, level).is_some_and(|width| width <= wanted);
    values.len() >= most || (values.len() >= least && narrow)
}
