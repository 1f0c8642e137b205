//! Whether the records confirm a claim.

use std::collections::BTreeMap;

use super::Claim;
use crate::report::findings::{Findings, LEVEL, MeasuredCell, Part, factor, ratio};
use crate::report::quantity::{Scale, significant, with_interval};
use crate::stats::{self, Estimate};

/// This run's ratios of the cells that a claim is about, or their figures where it has no reference. A claim is decided
/// by a cell's interval, not by its mean: if the interval includes both results, the cell is undecided.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimCheck {
    found: Vec<Estimate>,
    /// In how many cells the interval includes both results.
    unsure: usize,
    /// The unit of what is a figure.
    scale: Option<Scale>,
    judgement: Judgement,
}

/// Whether a claim still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// In every cell.
    Holds,
    /// In some cells.
    InPart,
    /// In none.
    Refuted,
    /// Every interval includes both results.
    Undecided,
    /// Nothing of it was measured.
    NotMeasured,
}

impl ClaimCheck {
    /// Looks for the cells and compares them.
    pub fn of(claim: &Claim, findings: &Findings) -> ClaimCheck {
        let cells = findings
            .parts
            .iter()
            .flat_map(|part| part.cells.iter().map(move |cell| (part, cell)));
        let found: Vec<Estimate> = cells
            .filter(|(_, cell)| matches(cell, &claim.of))
            .filter_map(|(part, cell)| found(claim, part, cell))
            .filter(|found| found.value.is_finite())
            .collect();
        let kept: Vec<Option<bool>> = found.iter().map(|one| keeps(claim, one)).collect();
        let figure = claim.figure.as_deref().unwrap_or("ratio");
        let largest = found.iter().map(|one| one.value).fold(0.0, f64::max);
        ClaimCheck {
            scale: claim.to.is_none().then(|| Scale::of(figure, largest)),
            unsure: kept.iter().filter(|kept| kept.is_none()).count(),
            judgement: judge(&kept),
            found,
        }
    }

    /// Whether it holds.
    pub fn judgement(&self) -> Judgement {
        self.judgement
    }

    fn values(&self) -> Vec<f64> {
        self.found.iter().map(|one| one.value).collect()
    }

    /// The middle ratio.
    pub fn middle(&self) -> Option<f64> {
        stats::median(&self.values())
    }

    /// The ratio with its interval, or the range of them.
    pub fn shown(&self) -> String {
        let values = self.values();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match &self.scale {
            Some(scale) => (scale.number(low), scale.text(high)),
            None => (format!("× {}", significant(low)), significant(high)),
        };
        match (&self.found[..], &self.scale) {
            ([], _) => "not measured".into(),
            ([_], Some(_)) => high,
            ([one], None) => format!("× {}", with_interval(one)),
            (several, _) => format!("{low} to {high} ({} cells)", several.len()),
        }
    }

    /// The judgement in a sentence.
    pub fn sentence(&self, claim: &Claim) -> String {
        let because = |why: &str| {
            if why.is_empty() {
                String::new()
            } else {
                format!("; our reading: {why}")
            }
        };
        let noise = match self.unsure {
            0 => String::new(),
            unsure => format!(
                " (not significant in {unsure} of {} cells)",
                self.found.len()
            ),
        };
        match self.judgement {
            Judgement::Holds => format!("Holds{noise}{}", because(&claim.if_it_holds)),
            Judgement::InPart => format!("Holds in some of these cells and not in others{noise}"),
            Judgement::Refuted => format!("No longer holds here{noise}{}", because(&claim.if_not)),
            Judgement::Undecided => "Not decided: the intervals include both answers".into(),
            Judgement::NotMeasured => "Not answered: this run has no such pair of cells".into(),
        }
    }
}

/// The estimate in a cell that a claim is about.
fn found(claim: &Claim, part: &Part, cell: &MeasuredCell) -> Option<Estimate> {
    let name = claim.figure.as_deref().unwrap_or(&part.figure);
    let Some(to) = &claim.to else {
        let values = cell.values_of(name);
        return Some(Estimate {
            value: stats::mean(&values)?,
            interval: stats::mean_interval(&values, LEVEL),
        });
    };
    // What the claim itself fixes may differ between the two; everything else must be the same.
    let mut others = part
        .cells
        .iter()
        .filter(|other| matches(other, to) && same(cell, other, claim));
    let other = others.next()?;
    if name == part.figure {
        return ratio(cell, other);
    }
    // What an intrusive meter read, it read once.
    let value = |cell: &MeasuredCell| stats::mean(&cell.values_of(name));
    Some(Estimate {
        value: value(cell)? / value(other)?,
        interval: None,
    })
}

/// Whether a cell confirms the claim. `None`: its interval includes both results.
fn keeps(claim: &Claim, found: &Estimate) -> Option<bool> {
    let too_little = |value: f64| claim.at_least.is_some_and(|least| value < least);
    let too_much = |value: f64| claim.at_most.is_some_and(|most| value > most);
    let (low, high) = match found.interval {
        Some(interval) => (interval.low, interval.high),
        None => (found.value, found.value),
    };
    match (
        too_little(low) || too_much(high),
        too_little(high) || too_much(low),
    ) {
        (false, _) => Some(true),
        (true, true) => Some(false),
        (true, false) => None,
    }
}

fn judge(kept: &[Option<bool>]) -> Judgement {
    let has = |answer: Option<bool>| kept.contains(&answer);
    match (has(Some(true)), has(Some(false))) {
        (true, false) => Judgement::Holds,
        (false, true) => Judgement::Refuted,
        (true, true) => Judgement::InPart,
        (false, false) if kept.is_empty() => Judgement::NotMeasured,
        (false, false) => Judgement::Undecided,
    }
}

/// Whether a cell has all these levels. A word ending with `*` compares the beginning.
fn matches(cell: &MeasuredCell, wanted: &BTreeMap<String, String>) -> bool {
    let Some(trial) = cell.trials.first() else {
        return false;
    };
    wanted.iter().all(|(name, level)| {
        let found = match name.as_str() {
            "contender" => cell.contender,
            name => factor(trial, name).unwrap_or_default(),
        };
        match level.strip_suffix('*') {
            Some(beginning) => found.starts_with(beginning),
            None => found == level,
        }
    })
}

/// Whether two cells share every factor but those that the claim names, and those that one of them does not have.
fn same(cell: &MeasuredCell, other: &MeasuredCell, claim: &Claim) -> bool {
    let (Some(here), Some(there)) = (cell.trials.first(), other.trials.first()) else {
        return false;
    };
    let to = claim.to.as_ref();
    let named =
        |name: &String| claim.of.contains_key(name) || to.is_some_and(|to| to.contains_key(name));
    let differs = |(name, level): (&String, &String)| {
        !named(name) && there.factors.get(name).is_some_and(|other| other != level)
    };
    !here.factors.iter().any(differs)
}
