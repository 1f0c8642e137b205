//! Finds the highest rate whose loss stays within a goal, when trials are noisy: MLRsearch's idea on one goal. Short trials
//! narrow the range first; then a rate counts as carried only when a full-length trial says so, and as too much only when a
//! full-length trial says that. Pure: it names rates and hears losses.

/// A search under way.
#[derive(Debug, Clone, PartialEq)]
pub struct RateSearch {
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
}

/// One trial to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Frames per second.
    pub rate: f64,
    /// Whether it must have the full length.
    pub full: bool,
}

/// Relative width at which a search ends.
const WIDTH: f64 = 0.02;
/// As long as nothing was carried there is nothing to bisect.
const STEP_DOWN: f64 = 0.95;
/// Short trials stop at this width: their noise is larger than that.
const SHORT_WIDTH: f64 = 0.10;

impl RateSearch {
    /// Looks below `most`, for a loss ratio of at most `goal`, with at most so many full trials. `hint` is a guess: what
    /// arrived when far too much was sent.
    pub fn new(most: f64, hint: f64, goal: f64, full_trials: u32) -> RateSearch {
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
        }
    }

    /// The next trial; `None` when the rate is known well enough.
    pub fn next(&self) -> Option<Step> {
        if let Some((low, high)) = self.short {
            let rate = (low * high).sqrt();
            return Some(Step { rate, full: false });
        }
        let narrow = self.too_much - self.carried <= WIDTH * self.too_much;
        if self.full_left == 0 || narrow {
            return None;
        }
        let rate = match self.carried > 0.0 {
            true => (self.carried + self.too_much) / 2.0,
            false => self.too_much * STEP_DOWN,
        };
        Some(Step { rate, full: true })
    }

    /// The loss ratio of a trial.
    pub fn hear(&mut self, step: Step, loss: f64) {
        let good = loss <= self.goal;
        match (step.full, self.short) {
            (false, Some((low, high))) => self.hear_short(low, high, step.rate, good),
            _ => {
                self.full_left = self.full_left.saturating_sub(1);
                match good {
                    true => self.carried = self.carried.max(step.rate),
                    false => self.too_much = self.lower(step.rate),
                }
            }
        }
    }

    /// A failure below what was carried before (a noisy machine) does not make that untrue: the range only closes.
    fn lower(&self, rate: f64) -> f64 {
        self.too_much.min(rate.max(self.carried))
    }

    fn hear_short(&mut self, low: f64, high: f64, rate: f64, good: bool) {
        let (low, mut high) = if good { (rate, high) } else { (low, rate) };
        self.bounded |= !good;
        if !self.bounded {
            high = (high * 1.5).min(self.most);
            self.bounded = high >= self.most;
        }
        self.short = Some((low, high));
        if high - low <= SHORT_WIDTH * high {
            self.short = None;
            self.too_much = self.too_much.min(high * (1.0 + SHORT_WIDTH / 2.0));
        }
    }

    /// The highest rate that a full trial carried.
    pub fn found(&self) -> f64 {
        self.carried
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seeded;

    fn search(capacity: f64, hint: f64, goal: f64, noise: impl Fn(f64) -> f64) -> (f64, usize) {
        let mut search = RateSearch::new(1e7, hint, goal, 12);
        let mut trials = 0;
        while let Some(step) = search.next() {
            let loss = ((step.rate - capacity) / step.rate).max(0.0);
            search.hear(step, noise(loss));
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
    fn noise_never_makes_it_claim_what_no_full_trial_carried() {
        let seeded = std::cell::RefCell::new(Seeded::new(5));
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
            search.hear(step, loss);
        }
        assert_eq!(search.found(), best);
    }
}
