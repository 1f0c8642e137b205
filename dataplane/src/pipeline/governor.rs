//! The governor of a lane: measures it while it works, and changes its number of workers.
//!
//! ```text
//!   reading thread:   step, step, step, … ──► interval over? ──► LaneStats, ThreadTime, idle processors
//!                                                                        │
//!   between two batches:   Pump::set_workers ◄── WorkerThreads::grow_to ◄── Chooser ◄──┘
//! ```
//!
//! It runs on the lane's reading thread and reads the clock once for several batches. While that thread sleeps in its
//! source, nothing is measured.

use super::affinity;
use super::choice::{Choice, Chooser, Costs, Interval, Reason};
use super::cpu_time::{ThreadTime, ThreadUsage, idle_time};
use super::lane::{Lane, Transform};
use super::lane_stats::StatsReading;
use super::worker::WorkerThreads;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many workers there are beside the reading threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Workers {
    /// None, or as many as measurements show to be faster.
    #[default]
    Auto,
    /// This number.
    Forced(usize),
}

impl Workers {
    /// How many there are at the start.
    pub fn at_first(self) -> usize {
        match self {
            Self::Auto => 0,
            Self::Forced(count) => count,
        }
    }

    /// How many there can be, of a process that may use the processors of the calling thread.
    pub fn at_most(self) -> usize {
        match self {
            Self::Auto => affinity::allowed()
                .unwrap_or_default()
                .len()
                .saturating_sub(1),
            Self::Forced(count) => count,
        }
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            number => number
                .parse()
                .ok()
                .filter(|count| *count <= MAX_WORKERS)
                .map(Self::Forced)
                .ok_or_else(|| format!("auto or a number up to {MAX_WORKERS} is expected")),
        }
    }
}

/// The most workers that can be configured.
const MAX_WORKERS: usize = 1024;

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Forced(count) => count.fmt(f),
        }
    }
}

/// The state of a lane, and the reason for its number of workers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LaneReport {
    /// Workers beside the reading thread; 0 is inline.
    pub workers: usize,
    /// The share of the last interval in which the reading thread had something to do.
    pub busy: f64,
    /// What a packet costs; zeros before enough packets were measured.
    pub costs: Costs,
    /// The reason.
    pub why: Reason,
}

/// Where a [`Governor`] stores its last report.
pub type ReportCell = Arc<Mutex<LaneReport>>;

/// A cell with the report of a lane that has not begun.
pub fn report_cell(workers: Workers) -> ReportCell {
    Arc::new(Mutex::new(LaneReport {
        workers: workers.at_first(),
        busy: 0.0,
        costs: Costs::default(),
        why: match workers {
            Workers::Auto => Reason::KeepsUp(0.0),
            Workers::Forced(_) => Reason::Forced,
        },
    }))
}

/// Governs one lane.
pub struct Governor {
    policy: Policy,
    threads: Arc<WorkerThreads>,
    report_cell: ReportCell,
    cpus: Vec<usize>,
    time: ThreadTime,
    last: IntervalEnd,
    /// Idle time of all processors at the end of the last interval, if it was read.
    idle: Option<Duration>,
    steps: u32,
    /// Time spent polling an empty source.
    polled: Duration,
    /// When the polling began.
    polling_since: Option<Instant>,
}

enum Policy {
    Forced(Costs),
    Auto(Box<Chooser>),
}

/// All clocks at the end of an interval.
struct IntervalEnd {
    at: Instant,
    spent: ThreadUsage,
    stats: StatsReading,
}

/// The result of one step of the pump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PumpStep {
    /// It carried a batch.
    Carried,
    /// No packet came within the time that the thread may sleep.
    Slept,
    /// No packet was there, and the thread did not sleep.
    Polled,
}

/// The length of an interval.
const MEASURE_INTERVAL: Duration = Duration::from_millis(100);

/// Batches from one reading of the clock to the next.
const CLOCK_CHECK_BATCHES: u32 = 8;

impl Governor {
    /// Governs the lane that the calling thread reads for.
    pub fn of_this_thread(
        workers: Workers,
        threads: Arc<WorkerThreads>,
        report_cell: ReportCell,
    ) -> Self {
        let cpus = affinity::allowed().unwrap_or_default();
        let time = ThreadTime::of_this_thread();
        let last = IntervalEnd {
            at: Instant::now(),
            spent: time.read(),
            stats: StatsReading::default(),
        };
        Self {
            policy: match workers {
                Workers::Auto => Policy::Auto(Box::new(Chooser::new(workers.at_most()))),
                Workers::Forced(_) => Policy::Forced(Costs::default()),
            },
            threads,
            report_cell,
            cpus,
            time,
            last,
            idle: None,
            steps: 0,
            polled: Duration::ZERO,
            polling_since: None,
        }
    }

    /// To be called after each step. When an interval is over, returns how many workers `lane` has from now on, if that
    /// changes.
    pub fn after<B: Transform>(&mut self, step: PumpStep, lane: &Lane<B>) -> Option<usize> {
        let now = self.read_clock(step)?;
        if now - self.last.at < MEASURE_INTERVAL {
            return None;
        }
        let seen = self.interval(now, lane.stats().read());
        let workers = lane.workers();
        let (choice, costs) = match &mut self.policy {
            Policy::Forced(costs) => {
                costs.learn(&seen);
                let why = Reason::Forced;
                (Choice { workers, why }, *costs)
            }
            Policy::Auto(chooser) => (chooser.next(&seen), chooser.costs()),
        };
        let choice = self.with_workers_started(choice);
        let report = LaneReport {
            workers: choice.workers,
            busy: (seen.busy / seen.seconds).clamp(0.0, 1.0),
            costs,
            why: choice.why,
        };
        *self
            .report_cell
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = report;
        (choice.workers != workers).then_some(choice.workers)
    }

    fn read_clock(&mut self, step: PumpStep) -> Option<Instant> {
        self.steps = self.steps.wrapping_add(1);
        if step == PumpStep::Carried && !self.steps.is_multiple_of(CLOCK_CHECK_BATCHES) {
            self.polling_since = None;
            return None;
        }
        let now = Instant::now();
        let since = self.polling_since.take();
        if step == PumpStep::Polled {
            self.polled += since.map_or(Duration::ZERO, |since| now - since);
            self.polling_since = Some(now);
        }
        Some(now)
    }

    fn interval(&mut self, now: Instant, stats: StatsReading) -> Interval {
        let spent = self.time.read();
        let since = stats.since(&self.last.stats);
        let seconds = (now - self.last.at).as_secs_f64();
        let polled = std::mem::take(&mut self.polled);
        let ran = (spent.ran - self.last.spent.ran).saturating_sub(polled);
        let waited = spent.waited.saturating_sub(self.last.spent.waited);
        let busy = (ran + waited).as_secs_f64();
        let seen = Interval {
            seconds,
            packets: since.packets as f64,
            ran: ran.as_secs_f64(),
            busy,
            transform: since.transform.as_secs_f64(),
            own_transform: since.own_transform.as_secs_f64(),
            calling: since.calling.as_secs_f64(),
            calls: since.calls as f64,
            spare: self.spare(seconds, busy),
        };
        self.last = IntervalEnd {
            at: now,
            spent,
            stats,
        };
        seen
    }

    /// Idle processors in this interval. Read only where the choice may depend on it: the kernel walks over all
    /// processors.
    fn spare(&mut self, seconds: f64, busy: f64) -> Option<f64> {
        let asked = matches!(&self.policy, Policy::Auto(chooser) if chooser.asks_for_spare());
        let now = (asked && busy > seconds / 2.0)
            .then(|| idle_time(&self.cpus))
            .flatten();
        let before = std::mem::replace(&mut self.idle, now)?;
        Some(now?.saturating_sub(before).as_secs_f64() / seconds)
    }

    /// Starts workers when they are first needed; where the system refuses, the lane stays without.
    fn with_workers_started(&mut self, choice: Choice) -> Choice {
        match self.threads.grow_to(choice.workers) {
            Ok(()) => choice,
            Err(_) => {
                self.policy = Policy::Auto(Box::new(Chooser::new(0)));
                Choice {
                    workers: 0,
                    why: Reason::NoThreads,
                }
            }
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back() {
        for word in ["auto", "0", "7"] {
            assert_eq!(word.parse::<Workers>().unwrap().to_string(), word);
        }
        for wrong in ["", "-1", "many", "1025", "1.5"] {
            assert!(wrong.parse::<Workers>().is_err(), "{wrong}");
        }
    }
}
