//! Finds the highest rate whose loss stays within a goal, with noisy trials: MLRsearch's idea on one goal. Short trials
//! narrow the range first; then a rate counts as carried, or as too high, only after a full-length trial. Where a full
//! trial lost only a little more than the goal allows, it is repeated, and the repetition decides (the loss
//! verification of ETSI GS NFV-TST 009 and RFC 9004): a machine that is interrupted for a moment loses a few frames at
//! any rate. Pure: it proposes rates and takes losses.

/// A search under way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RateSearch {
    goal: f64,
    /// Carried by a full trial; 0 until one was.
    carried: f64,
    /// Too much for a full trial, or what cannot be offered.
    too_much: f64,
    short: Option<(f64, f64)>,
    /// Whether the upper end of the short range was ever too much.
    bounded: bool,
    most: f64,
    full_left: u32,
    /// How far the next full trial goes down while none has carried anything.
    stride: f64,
    /// A rate whose little loss is to be verified.
    doubted: Option<f64>,
}

/// One trial to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    /// Frames per second.
    pub rate: f64,
    /// Whether it must have the full length.
    pub full: bool,
}

/// Relative width at which a search ends.
const FINAL_WIDTH_RATIO: f64 = 0.02;
/// As long as nothing was carried there is nothing to bisect: the first step down, which doubles with every further
/// one.
const FIRST_STEP_DOWN_RATIO: f64 = 0.05;
/// And the longest.
const MAX_STEP_DOWN_RATIO: f64 = 0.5;
/// So little beyond the goal may be a moment's trouble, and is verified.
const VERIFIED_EXCESS_LOSS_RATIO: f64 = 0.005;
/// Short trials stop at this width: their noise is larger than that.
const SHORT_TRIAL_WIDTH_RATIO: f64 = 0.10;

impl RateSearch {
    /// Looks below `most`, for a loss ratio of at most `goal`, with at most so many full trials. `hint` is the
    /// rate that arrived when far too much was sent.
    pub(super) fn new(most: f64, hint: f64, goal: f64, full_trials: u32) -> RateSearch {
        let low = (hint * 0.5).min(most * 0.5);
        let high = (hint * 1.2).min(most);
        RateSearch {
            goal,
            carried: 0.0,
            too_much: most,
            short: Some((low, high)),
            bounded: high >= most,
            most,
            full_left: full_trials.max(1),
            stride: FIRST_STEP_DOWN_RATIO,
            doubted: None,
        }
    }

    /// The next trial; `None` when the rate is known well enough.
    pub(super) fn next(&self) -> Option<Step> {
        if let Some((low, high)) = self.short {
            let rate = (low * high).sqrt();
            return Some(Step { rate, full: false });
        }
        let narrow = self.too_much - self.carried <= FINAL_WIDTH_RATIO * self.too_much;
        if self.full_left == 0 || narrow {
            return None;
        }
        let rate = match (self.doubted, self.carried > 0.0) {
            (Some(rate), _) => rate,
            (None, true) => (self.carried + self.too_much) / 2.0,
            (None, false) => self.too_much * (1.0 - self.stride),
        };
        Some(Step { rate, full: true })
    }

    /// The loss ratio of a trial.
    pub(super) fn record(&mut self, step: Step, loss: f64) {
        match (step.full, self.short) {
            (false, Some((low, high))) => {
                self.record_short(low, high, step.rate, loss <= self.goal);
            }
            _ => self.record_full(step.rate, loss),
        }
    }

    fn record_full(&mut self, rate: f64, loss: f64) {
        self.full_left = self.full_left.saturating_sub(1);
        let repeated = self.doubted.take().is_some();
        if loss <= self.goal {
            self.carried = self.carried.max(rate);
        } else if loss <= self.goal + VERIFIED_EXCESS_LOSS_RATIO && !repeated {
            self.doubted = Some(rate);
        } else {
            self.too_much = self.lower(rate);
            self.stride = (2.0 * self.stride).min(MAX_STEP_DOWN_RATIO);
        }
    }

    /// A failure below what was carried before (a noisy machine) does not make that untrue: the range only closes.
    fn lower(&self, rate: f64) -> f64 {
        self.too_much.min(rate.max(self.carried))
    }

    fn record_short(&mut self, low: f64, high: f64, rate: f64, good: bool) {
        let (low, mut high) = if good { (rate, high) } else { (low, rate) };
        self.bounded |= !good;
        if !self.bounded {
            high = (high * 1.5).min(self.most);
            self.bounded = high >= self.most;
        }
        self.short = Some((low, high));
        if high - low <= SHORT_TRIAL_WIDTH_RATIO * high {
            self.short = None;
            self.too_much = self
                .too_much
                .min(high * (1.0 + SHORT_TRIAL_WIDTH_RATIO / 2.0));
        }
    }

    /// The highest rate that a full trial carried.
    pub(super) fn found(&self) -> f64 {
        self.carried
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::SplitMix64;

    fn search(capacity: f64, hint: f64, goal: f64, noise: impl Fn(f64) -> f64) -> (f64, usize) {
        let mut search = RateSearch::new(1e7, hint, goal, 12);
        let mut trials = 0;
        while let Some(step) = search.next() {
            let loss = ((step.rate - capacity) / step.rate).max(0.0);
            search.record(step, noise(loss));
            trials += 1;
            assert!(trials < 60, "it does not end");
        }
        (search.found(), trials)
    }

    #[test]
    fn a_steady_path_is_found_within_the_width() {
        for capacity in [1e3, 123_456.0, 3e6] {
            for hint in [0.7, 1.0, 1.3] {
                let (found, _) = search(capacity, capacity * hint, 0.0, |loss| loss);
                assert!(
                    found <= capacity && found >= capacity * 0.95,
                    "{found} of {capacity}"
                );
            }
        }
    }

    #[test]
    fn a_partial_drop_goal_gives_a_little_more() {
        let (none, _) = search(1e5, 1e5, 0.0, |loss| loss);
        let (some, _) = search(1e5, 1e5, 0.05, |loss| loss);
        assert!(some > none, "{some} {none}");
    }

    #[test]
    fn a_path_that_always_loses_ends_with_nothing() {
        let (found, trials) = search(1e5, 1e5, 0.0, |loss| loss + 0.01);
        assert_eq!(found, 0.0);
        assert!(trials < 40);
    }

    #[test]
    fn a_little_loss_is_verified_once_and_much_is_accepted_at_once() {
        let full = |rate| Step { rate, full: true };
        let mut search = RateSearch::new(1e6, 1e6, 0.0, 10);
        search.short = None;
        let first = search.next().unwrap();
        assert_eq!(first, full(0.95e6));
        search.record(first, 1e-6);
        assert_eq!(search.next(), Some(first), "again");
        search.record(first, 0.0);
        assert_eq!(search.found(), 0.95e6, "the repetition decides");
        let second = search.next().unwrap();
        search.record(second, 1e-6);
        search.record(second, 1e-6);
        assert!(
            search.next().is_none_or(|step| step.rate < second.rate),
            "once"
        );
        let mut lost = RateSearch::new(1e6, 1e6, 0.0, 10);
        lost.short = None;
        lost.record(full(0.95e6), 0.1);
        assert_eq!(
            lost.next(),
            Some(full(0.95e6 * 0.9)),
            "and further each time"
        );
    }

    #[test]
    fn far_too_high_a_start_still_finds_something() {
        // What the short trials carried with luck is ten times what a full one carries.
        let mut search = RateSearch::new(1e6, 1e6, 0.0, 10);
        search.short = None;
        while let Some(step) = search.next() {
            search.record(step, if step.rate > 1e5 { 0.1 } else { 0.0 });
        }
        assert!(search.found() > 0.5e5, "{}", search.found());
    }

    #[test]
    fn noise_never_makes_it_claim_what_no_full_trial_carried() {
        let seeded = std::cell::RefCell::new(SplitMix64::new(5));
        let lucky = |loss: f64| {
            let luck = seeded.borrow_mut().below(10) == 0;
            if luck { 0.0 } else { loss }
        };
        let mut search = RateSearch::new(1e7, 1e5, 0.0, 12);
        let mut best: f64 = 0.0;
        while let Some(step) = search.next() {
            let loss = lucky(((step.rate - 1e5) / step.rate).max(0.0));
            if step.full && loss == 0.0 {
                best = best.max(step.rate);
            }
            search.record(step, loss);
        }
        assert_eq!(search.found(), best);
    }
}
