//! Trials that gave no measurement, and why.

use crate::record::{Outcome, Record};

/// A contender of which trials are missing.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing<'a> {
    /// The contender's name.
    pub label: &'a str,
    /// `absent`, `failed` or `interrupted`.
    pub how: &'static str,
    /// The reason.
    pub why: String,
    /// How to get it, where that is known.
    pub remedy: &'a str,
    /// How many trials.
    pub trials: usize,
}

/// Whether a resumed run measured later what was interrupted, or absent, at first.
pub fn superseded(record: &Record, records: &[Record]) -> bool {
    let loaded = |record: &Record| {
        matches!(
            record.outcome,
            Outcome::Measured { .. } | Outcome::Examined { .. }
        )
    };
    if loaded(record) {
        return false;
    }
    let same = |other: &&Record| {
        other.order == record.order && (record.round == 0 || other.round == record.round)
    };
    let mut others = records.iter().filter(same);
    others.any(loaded)
}

/// What is missing, each reason once.
pub(super) fn missing(records: &[Record]) -> Vec<Missing<'_>> {
    let mut all: Vec<Missing> = Vec::new();
    for record in records.iter().filter(|record| !superseded(record, records)) {
        let (how, why, remedy) = match &record.outcome {
            Outcome::Measured { .. } | Outcome::Examined { .. } => continue,
            Outcome::Absent { why, remedy } => ("absent", why.clone(), remedy.as_str()),
            Outcome::Failed { stage, why, .. } => ("failed", format!("at {stage}: {why}"), ""),
            Outcome::Interrupted { stage } => ("interrupted", format!("at {stage}"), ""),
        };
        let known = all
            .iter_mut()
            .find(|one| one.label == record.label && one.how == how && one.why == why);
        match known {
            Some(known) => known.trials += 1,
            None => all.push(Missing {
                label: &record.label,
                how,
                why,
                remedy,
                trials: 1,
            }),
        }
    }
    all
}
