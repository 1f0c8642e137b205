//! What is compared in each cell of a claim: its figure, or how it compares to another cell's under the same settings.

use super::super::{Claim, Comparison, Levels, Pair, is_one_of};
use crate::record::{Outcome, Record};
use crate::report::findings::{LEVEL, MeasuredCell, Part, factor, figure};
use crate::stats::{self, Estimate};

/// The figures of two cells in one round.
type Figures = (f64, f64);

/// What a cell shows.
pub(super) enum Shown {
    /// A figure, a difference or a ratio.
    Number(Estimate),
    /// Of each round a difference, and the one that it is compared with.
    Differences(Vec<(f64, f64)>),
}

/// What a cell that a claim is about shows. `None` where there is nothing to compare it to.
pub(super) fn shown(claim: &Claim, part: &Part, cell: &MeasuredCell) -> Option<Shown> {
    match &claim.than {
        Some(than) if claim.by == Comparison::Difference => {
            let compared = beside_another_pair(claim, than, part, cell)?;
            let differences = compared.into_iter().map(|((a, b), (c, d))| (a - b, c - d));
            Some(Shown::Differences(differences.collect()))
        }
        _ => estimate(claim, part, cell).map(Shown::Number),
    }
}

fn estimate(claim: &Claim, part: &Part, cell: &MeasuredCell) -> Option<Estimate> {
    let name = claim.figure.as_deref().unwrap_or(&part.figure);
    let Some(to) = &claim.to else {
        let values: Vec<f64> = values(cell, name).into_iter().map(|(_, v)| v).collect();
        return Some(Estimate {
            value: stats::mean(&values)?,
            interval: stats::mean_interval(&values, LEVEL),
        });
    };
    if let Some(than) = &claim.than {
        let compared = beside_another_pair(claim, than, part, cell)?;
        // (a / b) / (c / d) of each round is (a * d) / (b * c).
        let products = compared.into_iter().map(|((a, b), (c, d))| (a * d, b * c));
        return ratio(&products.collect::<Vec<_>>());
    }
    let other = counterpart(part, cell, to)?;
    let own = rounds(&values(cell, name), &values(other, name));
    let pairs: Vec<(f64, f64)> = own.into_iter().map(|(_, pair)| pair).collect();
    match claim.by {
        Comparison::Ratio => ratio(&pairs),
        Comparison::Difference => difference(&pairs),
    }
}

/// A cell and its counterpart, and the two that they are compared with, of each round that all four have.
fn beside_another_pair(
    claim: &Claim,
    than: &Pair,
    part: &Part,
    cell: &MeasuredCell,
) -> Option<Vec<(Figures, Figures)>> {
    let name = claim.figure.as_deref().unwrap_or(&part.figure);
    let other = counterpart(part, cell, claim.to.as_ref()?)?;
    let own = rounds(&values(cell, name), &values(other, name));
    let two = counterpart(part, cell, &than.of).zip(counterpart(part, cell, &than.to))?;
    let two = rounds(&values(two.0, name), &values(two.1, name));
    let both = own.iter().filter_map(|(round, pair)| {
        let (_, beside) = two.iter().find(|(other, _)| other == round)?;
        Some((*pair, *beside))
    });
    Some(both.collect())
}

/// What an intrusive meter read, it read once, and so without an interval.
fn ratio(pairs: &[(f64, f64)]) -> Option<Estimate> {
    if let [(a, b)] = pairs {
        let value = a / b;
        return value.is_finite().then_some(Estimate {
            value,
            interval: None,
        });
    }
    stats::paired(pairs, LEVEL, 1)
}

fn difference(pairs: &[(f64, f64)]) -> Option<Estimate> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
    Some(Estimate {
        value: stats::mean(&differences)?,
        interval: stats::mean_interval(&differences, LEVEL),
    })
}

/// The cell of these levels that shares with `cell` every factor that the claim does not name.
fn counterpart<'a, 'b>(
    part: &'a Part<'b>,
    cell: &MeasuredCell,
    levels: &Levels,
) -> Option<&'a MeasuredCell<'b>> {
    let mut others = part
        .cells
        .iter()
        .filter(|other| matches(other, levels) && same(cell, other, levels));
    others.next()
}

fn rounds(a: &[(usize, f64)], b: &[(usize, f64)]) -> Vec<(usize, (f64, f64))> {
    let of_round = |round: usize| b.iter().find(|(other, _)| *other == round);
    let both = a
        .iter()
        .filter_map(|(round, value)| Some((*round, (*value, of_round(*round)?.1))));
    both.collect()
}

/// Round and value of a figure, of one that is computed from a record, or of what only an intrusive meter read.
fn values(cell: &MeasuredCell, name: &str) -> Vec<(usize, f64)> {
    if name == "spread_ratio" {
        return spread(cell).into_iter().map(|value| (0, value)).collect();
    }
    if name == "overtaken_count" {
        return overtaken(cell)
            .into_iter()
            .map(|value| (0, value))
            .collect();
    }
    let of_trial = |trial: &&Record| Some((trial.round, computed(trial, name)?));
    let measured: Vec<(usize, f64)> = cell.trials.iter().filter_map(of_trial).collect();
    if measured.is_empty() {
        cell.examined(name).into_iter().map(|v| (0, v)).collect()
    } else {
        measured
    }
}

/// The standard deviation of the goodput over the rounds, as a share of its mean.
fn spread(cell: &MeasuredCell) -> Option<f64> {
    let values = cell.all("goodput_bps");
    Some(stats::variance(&values)?.sqrt() / stats::mean(&values)?)
}

/// A figure of a trial, or one of those that only claims need.
fn computed(trial: &Record, name: &str) -> Option<f64> {
    /// Headers of IPv4 and of TCP with timestamps.
    const HEADERS_BYTES: f64 = 52.0;
    let number = |name: &str| factor(trial, name)?.parse::<f64>().ok();
    match name {
        "link_ratio" => Some(figure(trial, "goodput_bps")? / (number("link.rate_mbit")? * 1e6)),
        "segments_pps" => {
            let payload_bits = (number("mtu")? - HEADERS_BYTES) * 8.0;
            Some(figure(trial, "goodput_bps")? / payload_bits)
        }
        "machine.busy_ratio" => Some(1.0 - state(trial, &["idle", "iowait"])?),
        "machine.interrupts_ratio" => {
            let busy = 1.0 - state(trial, &["idle", "iowait"])?;
            Some(state(trial, &["irq", "softirq"])? / busy)
        }
        // A kernel without interrupt accounting has no irq to compare with.
        "machine.softirq_ratio" => {
            let irq = state(trial, &["irq"]).filter(|irq| *irq > 0.0)?;
            let softirq = state(trial, &["softirq"])?;
            Some(softirq / (irq + softirq))
        }
        name => figure(trial, name),
    }
}

/// The share of all processors' time in these states.
fn state(trial: &Record, names: &[&str]) -> Option<f64> {
    let Outcome::Measured { readings, .. } = &trial.outcome else {
        return None;
    };
    let spent = |(name, seconds): (&String, &f64)| {
        let name = name.strip_prefix("machine.")?.strip_suffix("_s")?;
        Some((name.to_owned(), *seconds))
    };
    let all: Vec<(String, f64)> = readings.iter().filter_map(spent).collect();
    let whole: f64 = all.iter().map(|(_, seconds)| seconds).sum();
    let named = all
        .iter()
        .filter(|(name, _)| names.contains(&name.as_str()));
    let part: f64 = named.map(|(_, seconds)| seconds).sum();
    (whole > 0.0).then(|| part / whole)
}

/// The most frames that were overtaken in any round: one of them is no noise. Where a load does not count them, those
/// of the numbered datagrams that the check sends before it.
fn overtaken(cell: &MeasuredCell) -> Option<f64> {
    let of_check = |trial: &Record| match &trial.outcome {
        Outcome::Measured { check, .. } => Some(check.row.as_ref()?.overtaken as f64),
        _ => None,
    };
    let trials = cell.trials.iter();
    let counted = trials.filter_map(|trial| reordered(trial).or_else(|| of_check(trial)));
    counted.reduce(f64::max)
}

/// The most reordered frames in a run of a trial: at the rate that its search found, or at a share of it.
fn reordered(trial: &Record) -> Option<f64> {
    let is_count = |name: &str| name.starts_with("reordered_") && name.ends_with("count");
    let counts = trial.figures.iter().filter(|(name, _)| is_count(name));
    counts.map(|(_, count)| *count).reduce(f64::max)
}

/// Whether a cell has all these levels.
pub(super) fn matches(cell: &MeasuredCell, wanted: &Levels) -> bool {
    let Some(trial) = cell.trials.first() else {
        return false;
    };
    wanted.iter().all(|(name, levels)| {
        let found = match name.as_str() {
            "contender" => cell.contender,
            name => factor(trial, name).unwrap_or_default(),
        };
        is_one_of(found, levels)
    })
}

/// Whether two cells share every factor but those that these levels name. Plain IP has no suite and no mode: a factor
/// that one of them lacks is passed over where the levels name the other cell's contender, and there alone.
fn same(cell: &MeasuredCell, other: &MeasuredCell, levels: &Levels) -> bool {
    let (Some(here), Some(there)) = (cell.trials.first(), other.trials.first()) else {
        return false;
    };
    let may_lack = levels.contains_key("contender");
    let differs = |(name, level): (&String, &String)| {
        let as_here = match there.factors.get(name) {
            Some(other) => other == level,
            None => may_lack,
        };
        !levels.contains_key(name) && !as_here
    };
    let is_known = |name: &String| levels.contains_key(name) || here.factors.contains_key(name);
    let has_more = !may_lack && !there.factors.keys().all(is_known);
    !has_more && !here.factors.iter().any(differs)
}
