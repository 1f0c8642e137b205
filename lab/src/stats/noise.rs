//! What is not significant. The noise floor is the difference that two measurements of *the same thing* show by
//! chance; ranks are given only as far as differences rise above it.

use super::distribution::student_quantile;
use super::{Estimate, mean, median, variance};

/// The relative difference that two means, each of as many runs as these groups have, show in one of twenty cases (at
/// level 0.95) though nothing differs. Each group holds the repeated measurements of one thing; their median scatter is
/// taken, so that one unsteady contender does not decide. `None` without a group of two.
pub(crate) fn floor(groups: &[Vec<f64>], level: f64) -> Option<f64> {
    let many: Vec<&Vec<f64>> = groups.iter().filter(|group| group.len() > 1).collect();
    let scatters: Vec<f64> = many.iter().filter_map(|group| scatter(group)).collect();
    let counts: Vec<f64> = many.iter().map(|group| group.len() as f64).collect();
    let freedom = counts.iter().map(|count| count - 1.0).sum();
    let both = median(&scatters)? * 2.0 / median(&counts)?;
    Some(student_quantile(0.5 + level / 2.0, freedom) * both.sqrt())
}

/// The relative variance of a group, as the median of many such groups estimates it: half of all sample variances
/// lie below (1 − 2/9f)³ of the true one, f being the degrees of freedom (Wilson and Hilferty).
fn scatter(group: &[f64]) -> Option<f64> {
    let centre = mean(group).filter(|centre| *centre != 0.0)?;
    let freedom = (group.len() - 1) as f64;
    Some(variance(group)? / centre.powi(2) / (1.0 - 2.0 / (9.0 * freedom)).powi(3))
}

/// The best and the worst rank, from 1, that thing number `own` of `count` may have. `ratio` compares two of them; a
/// ratio counts only if it [`differs`].
pub(crate) fn rank(
    own: usize,
    count: usize,
    floor: f64,
    higher_is_better: bool,
    ratio: impl Fn(usize, usize) -> Option<Estimate>,
) -> (usize, usize) {
    let (mut best, mut worst) = (1, count);
    for other in (0..count).filter(|other| *other != own) {
        let found = ratio(own, other).filter(|found| differs(found, floor));
        match found.map(|found| (found.value > 1.0) == higher_is_better) {
            Some(true) => worst -= 1,
            Some(false) => best += 1,
            None => {}
        }
    }
    (best, worst)
}

/// Whether a ratio is significant: its interval excludes 1, and it is further from 1 than the noise floor.
pub(crate) fn differs(ratio: &Estimate, floor: f64) -> bool {
    ratio.interval.is_some_and(|interval| !interval.holds(1.0))
        && (ratio.value.ln()).abs() > floor.ln_1p()
}
