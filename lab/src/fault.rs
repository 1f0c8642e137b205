//! What can go wrong while an experiment runs. A fault ends a trial, not the experiment: it is recorded, and the next
//! trial starts on a fresh testbed.

use std::fmt;
use std::time::Duration;

/// Why a step did not happen.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Something failed; the text names it, the reason and, if known, the remedy.
    Failed(String),
    /// Something took longer than it may.
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long it was given.
        after: Duration,
    },
    /// The user stopped the run.
    Interrupted,
}

impl Fault {
    /// A failure with its explanation.
    pub fn failed(why: impl Into<String>) -> Fault {
        Fault::Failed(why.into())
    }

    /// The same fault, saying during what it happened.
    pub fn during(self, what: &str) -> Fault {
        match self {
            Fault::Failed(why) => Fault::Failed(format!("{what}: {why}")),
            other => other,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Failed(why) => out.write_str(why),
            Fault::TimedOut { what, after } => {
                write!(out, "{what} took longer than {} s", after.as_secs_f64())
            }
            Fault::Interrupted => out.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Fault {}
