//! Whether a cell confirms a claim.

use super::super::Claim;
use super::estimate::{self, Shown};
use crate::report::findings::{LEVEL, MeasuredCell, Part};
use crate::stats::{Estimate, Interval, difference};

/// What a cell says to a claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    /// Its number. `None` where two differences are compared and the second may be 0.
    pub(super) estimate: Option<Estimate>,
    /// Whether it confirms the claim. `None`: its interval includes both results.
    pub(super) confirms: Option<bool>,
}

impl Answer {
    pub(super) fn value(&self) -> Option<f64> {
        self.estimate.map(|estimate| estimate.value)
    }
}

/// The answer of a cell; `None` where there is nothing to compare it to, or no number.
pub(super) fn of(claim: &Claim, part: &Part, cell: &MeasuredCell) -> Option<Answer> {
    match estimate::shown(claim, part, cell)? {
        Shown::Number(found) => found.value.is_finite().then(|| Answer {
            estimate: Some(found),
            confirms: within(claim, &found),
        }),
        Shown::Differences(pairs) => (!pairs.is_empty()).then(|| Answer {
            estimate: difference::multiple(&pairs, LEVEL),
            confirms: within_multiples(claim, &pairs),
        }),
    }
}

/// Whether a number lies within the limits of the claim.
fn within(claim: &Claim, found: &Estimate) -> Option<bool> {
    let Interval { low, high } = ends(found);
    let least = claim.at_least.map(|least| (low - least, high - least));
    let most = claim.at_most.map(|most| (most - high, most - low));
    not_negative(least.into_iter().chain(most))
}

/// Whether the first difference is at least, or at most, the claim's multiples of the second. This has an answer for
/// differences of either sign, which their ratio has not.
fn within_multiples(claim: &Claim, pairs: &[(f64, f64)]) -> Option<bool> {
    let excess = |multiple: f64| difference::excess(pairs, multiple, LEVEL).map(|one| ends(&one));
    let least = claim.at_least.and_then(excess);
    let most = claim.at_most.and_then(excess);
    let least = least.map(|excess| (excess.low, excess.high));
    let most = most.map(|excess| (-excess.high, -excess.low));
    not_negative(least.into_iter().chain(most))
}

/// The ends of the interval; of a single measurement the value itself.
fn ends(found: &Estimate) -> Interval {
    found.interval.unwrap_or(Interval {
        low: found.value,
        high: found.value,
    })
}

/// Whether none of these intervals lies below 0. `None`: 0 lies within one of them, and none is below.
fn not_negative(intervals: impl Iterator<Item = (f64, f64)>) -> Option<bool> {
    let mut sure = true;
    for (low, high) in intervals {
        if high < 0.0 {
            return Some(false);
        }
        sure &= low >= 0.0;
    }
    sure.then_some(true)
}
