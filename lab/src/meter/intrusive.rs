//! Meters that take something from what they measure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A meter that disturbs what it measures. It gets a separate trial for each case that has it configured, after all
/// rounds, which counts for no mean, ratio or rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntrusiveMeter {
    /// [`super::Profile`].
    Profile,
    /// [`super::Soaker`].
    Soaker,
}

impl IntrusiveMeter {
    /// All of them, in the order of their trials.
    pub const ALL: [IntrusiveMeter; 2] = [IntrusiveMeter::Profile, IntrusiveMeter::Soaker];

    /// Its name in specs, records and on the screen.
    pub fn name(self) -> &'static str {
        match self {
            IntrusiveMeter::Profile => "profile",
            IntrusiveMeter::Soaker => "soaker",
        }
    }

    /// Its name for readers.
    pub fn label(self) -> &'static str {
        match self {
            IntrusiveMeter::Profile => "sampled profile",
            IntrusiveMeter::Soaker => "cycle soaker",
        }
    }

    /// What a trial takes under it beyond its load, about.
    pub fn takes(self) -> Duration {
        match self {
            // MEASURED: 0.9 to 1.4 s for trials of two seconds on two processors; names are what takes it.
            IntrusiveMeter::Profile => Duration::from_millis(1500),
            // MEASURED: 0.27 s of its own time on each of two processors to calibrate; the rest is for starting.
            IntrusiveMeter::Soaker => Duration::from_millis(500),
        }
    }

    /// Whether what is idle is still idle under it.
    pub fn leaves_idle_time(self) -> bool {
        self != IntrusiveMeter::Soaker
    }

    /// The round its trials belong to, behind those that are measured.
    pub fn round(self, rounds: usize) -> usize {
        rounds + 1 + self as usize
    }
}
