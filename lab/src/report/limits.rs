//! What limited each cell, with the evidence.

use std::collections::BTreeMap;

use super::findings::{Findings, MeasuredCell};
use super::html::{Table, TableCell};
use super::quantity::significant;
use super::section::Section;
use crate::meter::IntrusiveMeter;
use crate::record::{Outcome, Record, Verdict};

/// The section; empty where no record carries a verdict.
pub(super) fn section(findings: &Findings) -> Section {
    let mut table = Table::new(
        "Limits",
        &[
            "contender",
            "under",
            "limit",
            "#trials",
            "#of the maximum goodput",
            "evidence",
        ],
    );
    for part in &findings.parts {
        for cell in &part.cells {
            table.rows.extend(row(cell));
        }
    }
    let body = if table.rows.is_empty() {
        String::new()
    } else {
        table.html()
    };
    Section::new("limits", "What limited it", body)
}

fn row(cell: &MeasuredCell) -> Option<Vec<TableCell>> {
    let (limit, trials) = commonest(cell)?;
    let evidence = profiled(cell)
        .into_iter()
        .chain(
            cell.trials
                .iter()
                .filter_map(|trial| trial.verdict.as_ref()),
        )
        .find(|verdict| verdict.limit == limit);
    let ideal = cell
        .other("ideal_ratio")
        .map(|ratio| format!("{} %", significant(100.0 * ratio)));
    Some(vec![
        TableCell::text(cell.label),
        TableCell::words(&cell.under),
        TableCell::text(words(limit)),
        TableCell::number(
            match in_most_trials(cell) {
                Some((measured, _)) if measured != limit => "by the profile".into(),
                _ => format!("{trials} of {}", cell.trials.len()),
            },
            None,
        ),
        TableCell::maybe(ideal, None),
        TableCell::text(evidence.map_or_else(String::new, |verdict| verdict.evidence.join("; "))),
    ])
}

/// Limits that are counted, not sampled: a profile does not replace them.
const COUNTED: [&str; 4] = ["link", "drops", "disorder", "share"];

/// The verdict of the profile that was taken beside the measured trials.
fn profiled<'a>(cell: &MeasuredCell<'a>) -> Option<&'a Verdict> {
    let profile = |trial: &&&Record| {
        matches!(
            trial.outcome,
            Outcome::Examined {
                by: IntrusiveMeter::Profile,
                ..
            }
        )
    };
    cell.under_meters
        .iter()
        .find(profile)
        .and_then(|trial| trial.verdict.as_ref())
}

/// What limited most trials of a cell, in words, and how many.
pub(super) fn limit<'a>(cell: &MeasuredCell<'a>) -> Option<(&'a str, usize)> {
    commonest(cell).map(|(limit, trials)| (words(limit), trials))
}

/// The limit that most trials name, and how many do. Where it is a question of time, the verdict of a
/// profile replaces it.
fn commonest<'a>(cell: &MeasuredCell<'a>) -> Option<(&'a str, usize)> {
    let (limit, trials) = in_most_trials(cell)?;
    match profiled(cell) {
        Some(verdict) if !COUNTED.contains(&limit) && verdict.limit != "unknown" => {
            Some((&verdict.limit, trials))
        }
        _ => Some((limit, trials)),
    }
}

fn in_most_trials<'a>(cell: &MeasuredCell<'a>) -> Option<(&'a str, usize)> {
    let mut counts: BTreeMap<&'a str, usize> = BTreeMap::new();
    for verdict in cell
        .trials
        .iter()
        .filter_map(|trial| trial.verdict.as_ref())
    {
        *counts.entry(&verdict.limit).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count)
}

/// The words for a limit that the readings do not show.
pub(super) const NOT_KNOWN: &str = "not known";

/// The limit in words.
fn words(limit: &str) -> &str {
    match limit {
        "link" => "the link",
        "generator" => "the load generator",
        "share" => "the processor share given to the gateway",
        "core" => "one saturated processor",
        "cipher" => "the cipher",
        "gateways" => "the gateways' own code",
        "others" => "other programs on the machine",
        "copies" => "copies and system calls",
        "drops" => "dropped packets",
        "disorder" => "packets out of order",
        "unknown" => NOT_KNOWN,
        other => other,
    }
}
