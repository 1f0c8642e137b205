//! The steps of a trial.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The steps of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Building the topology.
    Testbed,
    /// Bringing the contender up.
    Up,
    /// Looking whether it is correct.
    Check,
    /// A little traffic first.
    WarmUp,
    /// The measured traffic.
    Load,
    /// Reading the meters.
    Meters,
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Stage::Testbed => "building the testbed",
            Stage::Up => "starting the contender",
            Stage::Check => "the check before the load",
            Stage::WarmUp => "warming up",
            Stage::Load => "the load",
            Stage::Meters => "reading the meters",
        })
    }
}
