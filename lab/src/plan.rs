//! The plan lists every trial before the first one starts. Each round holds every case once, so that slow drifts of
//! the machine meet all of them alike; the order within a round is shuffled by a recorded seed.

use std::time::Duration;

use crate::meter::IntrusiveMeter;
use crate::seed::SplitMix64;

/// One trial to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// From 1, in the order of execution.
    pub number: usize,
    /// From 1.
    pub round: usize,
    /// Which case: a contender on a testbed under a load, by its place in the experiment.
    pub case: usize,
    /// The meter that this trial is for; `None`: a measured one.
    pub intrusive: Option<IntrusiveMeter>,
}

/// Every trial, in the order of execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The trials.
    pub trials: Vec<Planned>,
    /// The number of rounds.
    pub rounds: usize,
    /// The seed of the order.
    pub seed: u64,
}

impl Plan {
    /// Plans `rounds` rounds over the given cases.
    pub fn new(cases: &[usize], rounds: usize, seed: u64) -> Plan {
        let mut seeded = SplitMix64::new(seed);
        let mut trials = Vec::with_capacity(cases.len() * rounds);
        for round in 1..=rounds {
            let mut order = cases.to_vec();
            seeded.shuffle(&mut order);
            for case in order {
                let number = trials.len() + 1;
                trials.push(Planned {
                    number,
                    round,
                    case,
                    intrusive: None,
                });
            }
        }
        Plan {
            trials,
            rounds,
            seed,
        }
    }

    /// Adds trials under intrusive meters, after all measured ones, so that an early stop keeps the measurements.
    pub fn examine(&mut self, cases: &[usize], intrusive: IntrusiveMeter) {
        for &case in cases {
            let number = self.trials.len() + 1;
            self.trials.push(Planned {
                number,
                round: intrusive.round(self.rounds),
                case,
                intrusive: Some(intrusive),
            });
        }
    }

    /// About how long it will take: the load of every trial (`load` returns that of a case), and what surrounds it.
    pub fn estimate(&self, load: impl Fn(usize) -> Duration) -> Duration {
        let trials = self.trials.iter();
        trials.map(|trial| load(trial.case) + TRIAL_OVERHEAD).sum()
    }
}

/// MEASURED: building the topology, coming up, checking, warming up and going down take 0.13 s (plain IP) to 0.9 s
/// (3DES) on a 2-core VM with AES-NI: `took_s - duration_s` in the records of `esplanade lab run demo`.
pub(crate) const TRIAL_OVERHEAD: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_holds_every_case_once() {
        let plan = Plan::new(&[0, 2, 5, 7], 6, 42);
        assert_eq!(plan.trials.len(), 24);
        for round in 1..=6 {
            let of_round = plan.trials.iter().filter(|trial| trial.round == round);
            let mut cases: Vec<usize> = of_round.map(|trial| trial.case).collect();
            cases.sort_unstable();
            assert_eq!(cases, [0, 2, 5, 7]);
        }
        let numbers: Vec<usize> = plan.trials.iter().map(|trial| trial.number).collect();
        assert_eq!(numbers, (1..=24).collect::<Vec<_>>());
    }

    #[test]
    fn the_seed_decides_the_order() {
        let cases: Vec<usize> = (0..9).collect();
        assert_eq!(Plan::new(&cases, 3, 7), Plan::new(&cases, 3, 7));
        assert_ne!(
            Plan::new(&cases, 3, 7).trials,
            Plan::new(&cases, 3, 8).trials
        );
    }

    #[test]
    fn intrusive_meters_come_after_all_rounds_and_leave_their_order_alone() {
        let mut plan = Plan::new(&[0, 1, 2], 4, 9);
        plan.examine(&[2], IntrusiveMeter::Profile);
        assert_eq!(plan.trials[..12], Plan::new(&[0, 1, 2], 4, 9).trials);
        let last = plan.trials[12];
        assert_eq!((last.number, last.round, last.case), (13, 5, 2));
        assert_eq!(last.intrusive, Some(IntrusiveMeter::Profile));
    }

    #[test]
    fn a_long_plan_favours_no_position() {
        let cases: Vec<usize> = (0..3).collect();
        let plan = Plan::new(&cases, 3000, 1);
        let firsts = plan.trials.iter().step_by(3);
        let zeros = firsts.filter(|trial| trial.case == 0).count();
        assert!((900..1100).contains(&zeros), "{zeros} of 3000");
    }
}
