//! The lines that a soaker writes, one JSON object each.

use serde::{Deserialize, Serialize};

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoakLine {
    /// Once, in the beginning: all have calibrated and spin.
    Ready(Vec<Spinning>),
    /// Again and again.
    Counts(SoakCounts),
}

/// A thread that spins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spinning {
    /// Its processor.
    pub cpu: usize,
    /// What it counts in a second that is all its own.
    pub units_per_s: f64,
    /// Its scheduling class.
    pub class: Class,
}

/// The scheduling class of a spinner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// `SCHED_IDLE`: yields to all other processes at once.
    Idle,
    /// Nice 19, where the idle class was refused: it gets a seventieth of a processor that others use.
    Nice,
}

/// What was counted until a moment, spinner by spinner in the order of [`SoakLine::Ready`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SoakCounts {
    /// The moment, by a monotonic clock.
    pub at_ns: u64,
    /// Units of work.
    pub units: Vec<u64>,
    /// Processor time that the kernel charged to the spinner.
    pub cpu_ns: Vec<u64>,
    /// Processor time of looking and saying so.
    pub own_ns: u64,
}
