//! What goes between the main process and the runner.

use crate::config::HookCommand;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// From the main process to the runner.
#[derive(Serialize, Deserialize)]
pub(super) enum ToRunner {
    /// The programs that it may start: the first message, and the only one of its kind.
    Programs(Vec<HookCommand>),
    /// Start one.
    Run {
        /// Comes back with the outcome.
        run: u64,
        /// Which of the programs.
        program: u32,
        /// Names and values of its environment.
        variables: Vec<(String, String)>,
    },
}

/// From the runner to the main process: a hook has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Of the request.
    pub run: u64,
    /// How.
    pub outcome: Outcome,
    /// The last that it wrote to its standard error.
    pub words: String,
    /// How long it ran.
    pub time: Duration,
}

/// How a hook has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signal(i32),
    /// It was killed because its time was over.
    TimeOver,
    /// It could not be started.
    NotStarted(String),
}

impl Ended {
    /// Whether it did what it should.
    pub(crate) fn is_failure(&self) -> bool {
        self.outcome != Outcome::Exited(0)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time.as_secs_f64();
        match &self.outcome {
            Outcome::Exited(status) => write!(f, "exit status {status} after {time:.2} s")?,
            Outcome::Signal(number) => write!(f, "ended by signal {number} after {time:.2} s")?,
            Outcome::TimeOver => write!(f, "killed, because it still ran after {time:.0} s")?,
            Outcome::NotStarted(why) => write!(f, "not started: {why}")?,
        }
        if self.words.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.words)
        }
    }
}
