//! Whether a lane works inline or with workers, by what was measured of it. Pure: no clock, no thread.
//!
//! ```text
//!            ┌── one thread keeps up, or workers gain nothing ─────┐
//!            ▼                                                     │
//!         inline ──► trying workers ──► workers ──► trying inline ─┘
//!            ▲              │              ▲              │
//!            └── no gain ───┘              └─ they gain ──┘
//! ```
//!
//! Measured costs decide whether there is a trial; the trial decides about workers. After each trial comes a pause that
//! grows, so that trials become rare where the load does not change.

mod costs;
mod interval;
mod reason;
#[cfg(test)]
mod tests;

pub use costs::Costs;
use costs::{MIN_INTERVAL_PACKETS, smooth};
pub use interval::Interval;
pub use reason::Reason;

/// How a lane works from now on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// Workers beside the reading thread; with none it does everything itself.
    pub workers: usize,
    /// The reason.
    pub why: Reason,
}

/// Chooses for one lane, interval by interval.
#[derive(Debug)]
pub struct Chooser {
    max_workers: usize,
    state: State,
    costs: Costs,
    /// Seconds from the end of a trial to the next one.
    pause: f64,
    /// Seconds of it that are left.
    pause_left: f64,
    /// The throughput with workers over that without, by the last trial.
    gain: Option<f64>,
    /// The workers of the last trial, if they did not gain.
    in_vain: Option<usize>,
    /// Costs at that trial: with others the result may differ.
    trial_costs: Costs,
}

#[derive(Debug)]
enum State {
    Inline {
        /// Intervals in a row in which the thread did not keep up.
        behind: u32,
        rate: f64,
    },
    Workers {
        count: usize,
        /// Intervals in a row in which one thread would have kept up.
        light: u32,
        rate: f64,
    },
    Trial(Trial),
}

#[derive(Debug)]
struct Trial {
    /// What is tried.
    workers: usize,
    /// What was before, and how fast.
    before: usize,
    rate_before: f64,
    /// Intervals so far. The first does not count: threads wake up and queues fill.
    intervals: u32,
    packets: f64,
    seconds: f64,
}

/// A thread that is busy for this share of the time does not keep up.
const BEHIND_BUSY_SHARE: f64 = 0.9;
/// If the load needs less than this share of one thread's time, one thread keeps up again.
const LIGHT_BUSY_SHARE: f64 = 0.6;
/// Intervals in a row before either counts.
const CONFIRMING_INTERVALS: u32 = 2;
/// Intervals that count in a trial.
const TRIAL_INTERVALS: u32 = 3;
/// The gain predicted from the costs that starts a trial, and the gain that the trial must show. MEASURED: rates of
/// equal intervals of one TCP stream differ by 3 % (2-core VM), and two threads of one lane share caches and locks.
const MIN_PROMISED_GAIN: f64 = 1.1;
const MIN_MEASURED_GAIN: f64 = 1.05;
/// With less than this of a processor idle, there is no processor for a worker.
const MIN_SPARE_PROCESSORS: f64 = 0.1;
const MIN_PAUSE_SECONDS: f64 = 1.0;
const MAX_PAUSE_SECONDS: f64 = 60.0;
/// Costs that differ by this factor count as changed.
const COST_CHANGE_FACTOR: f64 = 1.5;

impl Chooser {
    /// Begins inline; there may be `max_workers` workers.
    pub fn new(max_workers: usize) -> Self {
        Self {
            max_workers,
            state: State::Inline {
                behind: 0,
                rate: 0.0,
            },
            costs: Costs::default(),
            pause: MIN_PAUSE_SECONDS,
            pause_left: 0.0,
            gain: None,
            in_vain: None,
            trial_costs: Costs::default(),
        }
    }

    /// What was measured so far.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Whether the next choice may depend on what other processors do.
    pub fn asks_for_spare(&self) -> bool {
        matches!(self.state, State::Inline { .. }) && self.max_workers > 0 && self.pause_left <= 0.5
    }

    /// What to do until the next interval ends.
    pub fn next(&mut self, seen: &Interval) -> Choice {
        match self.state {
            State::Inline { .. } => self.costs.learn(seen),
            // With workers the reading thread's time does not show the serial cost.
            State::Workers { .. } | State::Trial(_) => self.costs.learn_calls(seen),
        }
        self.pause_left = (self.pause_left - seen.seconds).max(0.0);
        match &mut self.state {
            State::Inline { .. } => self.inline(seen),
            State::Workers { .. } => self.with_workers(seen),
            State::Trial(_) => self.trial(seen),
        }
    }

    fn inline(&mut self, seen: &Interval) -> Choice {
        let State::Inline { behind, rate } = &mut self.state else {
            unreachable!("called inline")
        };
        smooth(rate, seen.rate());
        let (was_behind, rate) = (*behind, *rate);
        *behind = was_behind + 1;
        if seen.share_busy() < BEHIND_BUSY_SHARE || seen.packets < MIN_INTERVAL_PACKETS {
            *behind = 0;
            return stay(Reason::KeepsUp(seen.share_busy()));
        }
        if self.max_workers == 0 {
            return stay(Reason::Alone);
        }
        if was_behind + 1 < CONFIRMING_INTERVALS {
            return stay(Reason::Behind);
        }
        if self.pause_left > 0.0 && !self.costs_differ() {
            let gain = self.gain.unwrap_or(1.0);
            return stay(Reason::DidNotPay(gain, self.pause_left));
        }
        let spare = seen.spare.unwrap_or(1.0);
        if spare < MIN_SPARE_PROCESSORS {
            return stay(Reason::NoneIdle(spare));
        }
        let workers = self.workers_to_try(spare);
        let promise = self.costs.promise(workers, spare);
        if promise < MIN_PROMISED_GAIN {
            return stay(Reason::WouldNotPay(promise));
        }
        self.start_trial(workers, 0, rate)
    }

    /// As many as the costs of one thread can keep busy, or, after those were in vain, as many as there are idle
    /// processors: small batches, which are done sooner by more workers, cost more for a packet than these costs say.
    fn workers_to_try(&self, spare: f64) -> usize {
        let useful = self.costs.useful_workers().min(self.max_workers);
        let idle = (spare as usize).clamp(useful, self.max_workers);
        match self.in_vain {
            Some(tried) if tried < idle => idle,
            _ => useful,
        }
    }

    fn with_workers(&mut self, seen: &Interval) -> Choice {
        let State::Workers { count, light, rate } = &mut self.state else {
            unreachable!("called with workers")
        };
        smooth(rate, seen.rate());
        let needed = seen.rate() * self.costs.all_ns() / 1e9;
        *light = if needed < LIGHT_BUSY_SHARE {
            *light + 1
        } else {
            0
        };
        let (count, rate) = (*count, *rate);
        if *light > CONFIRMING_INTERVALS {
            self.state = State::Inline {
                behind: 0,
                rate: 0.0,
            };
            // Workers did gain before; they may come back without a pause.
            self.pause_left = 0.0;
            return stay(Reason::KeepsUp(seen.share_busy()));
        }
        if self.pause_left > 0.0 {
            let why = Reason::Pays(self.gain.unwrap_or(1.0));
            return Choice {
                workers: count,
                why,
            };
        }
        self.start_trial(0, count, rate)
    }

    fn start_trial(&mut self, workers: usize, before: usize, rate_before: f64) -> Choice {
        if self.costs_differ() {
            self.pause = MIN_PAUSE_SECONDS;
        }
        self.trial_costs = self.costs;
        self.state = State::Trial(Trial {
            workers,
            before,
            rate_before,
            intervals: 0,
            packets: 0.0,
            seconds: 0.0,
        });
        let why = match workers {
            0 => Reason::TryingInline,
            _ => Reason::Trying,
        };
        Choice { workers, why }
    }

    fn trial(&mut self, seen: &Interval) -> Choice {
        let State::Trial(trial) = &mut self.state else {
            unreachable!("called in a trial")
        };
        trial.intervals += 1;
        if trial.intervals > 1 {
            trial.packets += seen.packets;
            trial.seconds += seen.seconds;
        }
        if trial.intervals <= TRIAL_INTERVALS {
            let workers = trial.workers;
            let why = match workers {
                0 => Reason::TryingInline,
                _ => Reason::Trying,
            };
            return Choice { workers, why };
        }
        let rate = trial.packets / trial.seconds;
        let (workers, with, without) = match trial.workers {
            0 => (trial.before, trial.rate_before, rate),
            count => (count, rate, trial.rate_before),
        };
        self.end_trial(workers, with, without)
    }

    /// The faster mode stays; the next trial comes after twice the pause.
    fn end_trial(&mut self, workers: usize, with: f64, without: f64) -> Choice {
        let gain = with / without.max(1.0);
        self.gain = Some(gain);
        self.pause_left = self.pause;
        self.pause = (self.pause * 2.0).min(MAX_PAUSE_SECONDS);
        self.in_vain = (gain < MIN_MEASURED_GAIN).then_some(workers);
        if gain < MIN_MEASURED_GAIN {
            self.state = State::Inline {
                behind: CONFIRMING_INTERVALS,
                rate: without,
            };
            return stay(Reason::DidNotPay(gain, self.pause_left));
        }
        self.state = State::Workers {
            count: workers,
            light: 0,
            rate: with,
        };
        Choice {
            workers,
            why: Reason::Pays(gain),
        }
    }

    /// Whether the share of the ciphers has changed since the last trial.
    fn costs_differ(&self) -> bool {
        let weight = |costs: &Costs| costs.transform_ns / costs.serial_ns.max(1.0);
        let (now, then) = (weight(&self.costs), weight(&self.trial_costs));
        now > then * COST_CHANGE_FACTOR || now * COST_CHANGE_FACTOR < then
    }
}

fn stay(why: Reason) -> Choice {
    Choice { workers: 0, why }
}
