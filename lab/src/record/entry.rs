//! One record: what is kept of a trial.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::provenance::Provenance;
use crate::check::Evidence;
use crate::contender::Protection;
use crate::load::Carried;
use crate::meter::{IntrusiveMeter, Readings};
use crate::stage::Stage;

/// Version of this layout. A reader refuses what is newer; fields may be added, never change their meaning.
pub const SCHEMA: u32 = 2;

/// One trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] when it was written.
    pub schema: u32,
    /// The study's name.
    pub study: String,
    /// The study's title.
    pub title: String,
    /// Number of this trial in the order of execution, from 1.
    pub trial: usize,
    /// How many trials the plan lists.
    pub trials: usize,
    /// The round it belongs to, from 1; every round holds every contender once. Trials under intrusive meters
    /// have the rounds after these.
    pub round: usize,
    /// How many rounds the plan has.
    pub rounds: usize,
    /// The seed of the plan.
    pub seed: u64,
    /// Place of the case (a contender on a testbed under a load) in the spec, from 0: the order of a table. Trials of
    /// one run with the same number differ in nothing but the round.
    pub order: usize,
    /// The contender's id.
    pub contender: String,
    /// The contender's name for readers.
    pub label: String,
    /// Every factor of the trial under its dotted name: the contender's (`suite`, `mode`), the testbed's (`mtu`,
    /// `link.rate_mbit`, `impair.loss_percent`), the load's (`load`, `message_bytes`) and the study's `part`.
    pub factors: BTreeMap<String, String>,
    /// Its declared protection on the wire.
    pub protection: Protection,
    /// The id of the contender that ratios are taken to.
    pub reference: String,
    /// The load's id.
    pub load: String,
    /// Seconds of load in the plan.
    pub duration_s: f64,
    /// When the trial began, seconds since 1970.
    pub started_unix: f64,
    /// How long the whole trial took.
    pub took_s: f64,
    /// Its outcome.
    pub outcome: Outcome,
    /// What the load found, under dotted names with the unit last: `goodput_bps`, `rtt.p99_us`, `loss_ratio`, and what
    /// follows from it: `ideal_bps`, `ideal_ratio`. Empty in records of before there were figures.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// What limited the trial, if known.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// Things worth knowing that did not spoil the measurement.
    pub notes: Vec<String>,
    /// The machine, the versions and the command that repeats the run.
    pub provenance: Provenance,
}

/// What limited a trial, and the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// `link`, `generator`, `share`, `core`, `cipher`, `gateways`, `others`, `copies`, `drops`, `disorder` or
    /// `unknown`.
    pub limit: String,
    /// One sentence for each observation, the strongest first.
    pub evidence: Vec<String>,
}

/// The outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// Correct, loaded and measured.
    Measured {
        /// What the check before the load saw.
        check: Evidence,
        /// What the load carried.
        carried: Carried,
        /// What the meters read.
        readings: Readings,
    },
    /// Correct and loaded, under an intrusive meter: it shows where the time goes, not how much was carried.
    Examined {
        /// The meter.
        by: IntrusiveMeter,
        /// What the check before the load saw.
        check: Evidence,
        /// What the load carried under it.
        carried: Carried,
        /// What all meters read.
        readings: Readings,
    },
    /// The contender, or an intrusive meter, is not on this machine.
    Absent {
        /// What is missing.
        why: String,
        /// How to get it.
        remedy: String,
    },
    /// Something broke, and at which stage.
    Failed {
        /// The stage that broke.
        stage: Stage,
        /// The reason.
        why: String,
        /// What the check saw, if it came so far.
        check: Option<Evidence>,
    },
    /// The user stopped the run during this trial.
    Interrupted {
        /// The stage that was cut short.
        stage: Stage,
    },
}
