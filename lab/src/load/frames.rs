//! The lab's frame generator and receiver, and the search for the highest rate without loss (RFC 2544 26.1; NDR) or
//! with half a percent of it (PDR): loss, duplicates, reordering and one-way latency of stamped UDP frames. Or a steady
//! stream, whose frames are counted while keys or the path MTU change.
//!
//! Delays at the highest rate are mostly those of queues, which are full there. So a search may be followed by trials
//! at shares of the rate that it found, on the same tunnel and in the same record.
//!
//! Between hosts without a common clock there is no one-way latency: round trips are measured in its place.

mod generator;
mod trial;

use std::path::PathBuf;
use std::time::Duration;

use super::search::{RateSearch, Step};
use super::{Carried, Demand, Direction, Load, Prepared};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::testbed::Topology;
use generator::Generator;
use trial::{MAX_BEHIND_RATIO, RateTrial};

pub use generator::FRAME_OVERHEAD_BYTES;

/// Stamped frames, searched for the highest rate.
pub struct Frames {
    /// `esplanade-lab`, whose tools send and receive.
    pub program: PathBuf,
    /// Bytes of a frame on an Ethernet, its check sequence included, before any tunnel; several go out in turn.
    pub frame_bytes: Vec<u32>,
    /// What is done with them.
    pub search: Search,
    /// Which way they go.
    pub direction: Direction,
    /// At which percentages of the rate that a search found it also measures delays, in trials of their own.
    pub latency_at_percent: Vec<u32>,
}

/// Which rate is looked for, if one is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Search {
    /// No-drop rate: the highest without loss.
    Ndr,
    /// Partial-drop rate: the highest with half a percent.
    Pdr,
    /// None: so many frames a second, and what becomes of each.
    Steady(f64),
}

impl Search {
    fn goal(self) -> f64 {
        match self {
            Search::Ndr | Search::Steady(_) => 0.0,
            Search::Pdr => 0.005,
        }
    }
}

/// The time of a search beyond 1.4 times the sum of its full trials. MEASURED: 17.8 s for 10 s, with starting the tools
/// for some twenty trials.
const SEARCH_OVERHEAD: Duration = Duration::from_millis(3500);
/// MEASURED: 0.23 s for starting the tools of a trial and for its end, on two virtual processors, by
/// `esplanade-lab tool receive` and `send` over the loopback.
const TRIAL_OVERHEAD: Duration = Duration::from_millis(250);
/// The length of a trial that only narrows the range.
const SHORT_TRIAL: Duration = Duration::from_millis(150);
/// Full trials share the duration; one at least has this length.
const FULL_TRIALS_PER_DURATION: u32 = 5;
const WARM_UP_FRAMES_PER_S: f64 = 1000.0;

impl Load for Frames {
    fn id(&self) -> &str {
        match self.search {
            Search::Ndr => "frames-ndr",
            Search::Pdr => "frames-pdr",
            Search::Steady(_) => "frames-steady",
        }
    }

    fn demand(&self) -> Demand {
        match self.search {
            Search::Ndr | Search::Pdr => Demand::RateSearch,
            Search::Steady(_) => Demand::Steady,
        }
    }

    fn presence(&self, _topology: &Topology) -> Result<(), Absence> {
        Ok(())
    }

    fn takes(&self, duration: Duration) -> Duration {
        match self.search {
            Search::Steady(_) => duration,
            Search::Ndr | Search::Pdr => {
                let delays = self.latency_at_percent.len() as u32;
                let each = full_length(duration) + TRIAL_OVERHEAD;
                duration.mul_f64(1.4) + SEARCH_OVERHEAD + delays * each
            }
        }
    }

    fn prepare<'topology>(
        &'topology self,
        topology: &'topology Topology,
    ) -> Result<Box<dyn Prepared + 'topology>, Fault> {
        Ok(Box::new(PreparedFrames {
            load: self,
            topology,
            generator: Generator::new(&self.program, &self.frame_bytes, self.direction, topology),
        }))
    }
}

struct PreparedFrames<'topology> {
    load: &'topology Frames,
    topology: &'topology Topology,
    generator: Generator<'topology>,
}

impl Prepared for PreparedFrames<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        let trial = self.generator.run_at(WARM_UP_FRAMES_PER_S, SHORT_TRIAL)?;
        match trial.received.received {
            0 => Err(Fault::failed("no frame arrived")),
            _ => Ok(()),
        }
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        match self.load.search {
            Search::Steady(rate) => self.steady(rate, duration),
            Search::Ndr | Search::Pdr => self.search(duration),
        }
    }
}

impl PreparedFrames<'_> {
    fn search(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let flood = self.generator.run_at(0.0, SHORT_TRIAL)?;
        let most = flood.sent.sent as f64 / flood.sent.seconds.max(1e-9);
        let goal = self.load.search.goal();
        let mut search =
            RateSearch::new(most, flood.rate_pps(), goal, FULL_TRIALS_PER_DURATION * 2);
        let (mut best, mut behind, mut offered) = (None, false, false);
        while let Some(step) = search.next() {
            let trial = self.generator.run_at(step.rate, length(step, duration))?;
            let short_of = trial.behind() > MAX_BEHIND_RATIO;
            behind |= short_of;
            offered |= !short_of;
            // A rate that was not offered was not carried either.
            search.record(step, if short_of { 1.0 } else { trial.loss() });
            if step.full && search.found() == step.rate {
                best = Some((step.rate, trial));
            }
        }
        let (rate, trial) = best.ok_or_else(|| nothing_found(goal, offered))?;
        let mut carried = self.found(rate, &trial, &flood, behind);
        let found = carried.figures["rate_pps"];
        for percent in &self.load.latency_at_percent {
            let rate = found * f64::from(*percent) / 100.0;
            let trial = self.generator.run_at(rate, full_length(duration))?;
            carried.figures.extend(trial.figures_at(*percent));
        }
        Ok(carried)
    }
}

fn nothing_found(goal: f64, offered: bool) -> Fault {
    Fault::failed(if offered {
        format!("no rate had a loss of at most {} %", goal * 100.0)
    } else {
        "no rate could be offered in time: this machine is too busy to send frames evenly".into()
    })
}

fn length(step: Step, duration: Duration) -> Duration {
    if step.full {
        full_length(duration)
    } else {
        SHORT_TRIAL
    }
}

fn full_length(duration: Duration) -> Duration {
    (duration / FULL_TRIALS_PER_DURATION).max(2 * SHORT_TRIAL)
}

impl PreparedFrames<'_> {
    /// What became of every frame of a steady stream. An interruption of the path is reported as the longest gap.
    fn steady(&mut self, rate: f64, duration: Duration) -> Result<Carried, Fault> {
        let trial = self.generator.run_at(rate, duration)?;
        let lost = trial.sent.sent.saturating_sub(trial.received.received);
        // If the path stays interrupted, the gap lasts from its last frame to the sender's last.
        let after = (trial.sent.seconds - trial.received.seconds).max(0.0) * 1e9;
        let silence = (trial.received.longest_gap as f64).max(after);
        let mut carried = trial.carried();
        carried.figures.extend([
            ("lost_count".to_owned(), lost as f64),
            ("silence_us".to_owned(), silence / 1e3),
        ]);
        if self.topology.path.is_some() {
            carried.figures.insert("outage_s".into(), silence / 1e9);
        }
        Ok(carried)
    }

    fn found(
        &self,
        rate: f64,
        trial: &RateTrial,
        flood: &RateTrial,
        generator_behind: bool,
    ) -> Carried {
        let mut carried = trial.carried();
        // A queue on the path absorbs slightly more than the path carries during a trial: the rate of arrival counts.
        let arrived = rate.min(trial.rate_pps());
        let numbers = [
            ("rate_pps", arrived),
            ("offered_pps", rate),
            ("overload.rate_pps", flood.rate_pps()),
            (
                "overload.offered_pps",
                flood.sent.sent as f64 / flood.sent.seconds.max(1e-9),
            ),
            ("generator.behind", f64::from(u8::from(generator_behind))),
        ];
        let named = numbers.map(|(name, value)| (name.to_owned(), value));
        carried.figures.extend(named);
        carried
    }
}
