//! What varies in a part: the figure that stands for its result, and the factors that take several levels.

use std::collections::BTreeSet;

use super::{PART, factor, figure};
use crate::record::Record;

/// A factor and its levels: by size where all are numbers, in order of appearance otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The factor's dotted name.
    pub name: String,
    /// The levels.
    pub levels: Vec<String>,
}

/// The figure that stands for the result: the first of this list that most trials have.
pub(super) fn leading(groups: &[Vec<&Record>]) -> Option<String> {
    const FIRST: [&str; 10] = [
        "ndr_pps",
        "pdr_pps",
        "transactions_per_s",
        "connections_per_s",
        "lost_per_rekey",
        "outage_s",
        "goodput_bps",
        "rate_pps",
        "rtt.p50_us",
        "latency.p50_us",
    ];
    let records: Vec<&&Record> = groups.iter().flatten().collect();
    let has = |name: &str| {
        let with = records
            .iter()
            .filter(|record| figure(record, name).is_some());
        2 * with.count() > records.len()
    };
    let known = FIRST
        .iter()
        .find(|name| has(name))
        .map(|name| (*name).to_owned());
    known.or_else(|| records.first()?.figures.keys().next().cloned())
}

/// Factors that take several levels for one and the same contender.
pub(super) fn settings(groups: &[Vec<&Record>]) -> Vec<Setting> {
    let firsts: Vec<&Record> = groups
        .iter()
        .filter_map(|trials| trials.first().copied())
        .collect();
    let names: BTreeSet<&String> = firsts
        .iter()
        .flat_map(|record| record.factors.keys())
        .collect();
    names
        .into_iter()
        .filter(|name| *name != PART && varies(&firsts, name))
        .map(|name| Setting {
            name: name.clone(),
            levels: levels(&firsts, name),
        })
        .collect()
}

fn varies(firsts: &[&Record], name: &str) -> bool {
    firsts.iter().any(|one| {
        firsts.iter().any(|other| {
            let (here, there) = (factor(one, name), factor(other, name));
            one.contender == other.contender && here.is_some() && there.is_some() && here != there
        })
    })
}

fn levels(firsts: &[&Record], name: &str) -> Vec<String> {
    let mut levels: Vec<String> = Vec::new();
    for level in firsts.iter().filter_map(|record| factor(record, name)) {
        if !levels.iter().any(|known| known == level) {
            levels.push(level.into());
        }
    }
    let size = |level: &String| level.parse::<f64>().ok();
    if levels.iter().all(|level| size(level).is_some()) {
        let sized = |level: &String| size(level).unwrap_or_default();
        levels.sort_by(|a, b| sized(a).total_cmp(&sized(b)));
    }
    levels
}
