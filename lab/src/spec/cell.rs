//! A cell of a spec: a contender with one value of every factor, under one load.

use std::time::Duration;

use super::build::Kind;
use super::kinds::LoadKind;
use super::settings::Settings;
use crate::meter::IntrusiveMeter;

/// One thing to measure in each round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    /// The contender's id.
    pub id: String,
    /// The part of the study, where it has parts.
    pub part: Option<String>,
    /// The part's own seconds of load.
    pub duration: Option<Duration>,
    /// Meters that it gets a further trial for, each.
    pub intrusive: Vec<IntrusiveMeter>,
    pub(super) load: LoadKind,
    pub(super) kind: Kind,
    pub(super) settings: Settings,
}
