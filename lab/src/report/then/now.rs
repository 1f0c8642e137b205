//! What the records answer to a claim.

use std::collections::BTreeMap;

use super::Claim;
use crate::report::findings::{Cell, Findings, Part, factor};
use crate::report::quantity::{Scale, significant};
use crate::stats;

/// Today's ratios of the cells that a claim speaks of, or their figures where it compares them to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    ratios: Vec<f64>,
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
    Gone,
    /// Nothing of it was measured.
    Open,
}

impl Answer {
    /// Looks for the cells and compares them.
    pub fn of(claim: &Claim, findings: &Findings) -> Answer {
        let cells = findings
            .parts
            .iter()
            .flat_map(|part| part.cells.iter().map(move |cell| (part, cell)));
        let ratios: Vec<f64> = cells
            .filter(|(_, cell)| matches(cell, &claim.of))
            .filter_map(|(part, cell)| found(claim, part, cell))
            .filter(|ratio| ratio.is_finite())
            .collect();
        let judgement = judge(claim, &ratios);
        let figure = claim.figure.as_deref().unwrap_or("ratio");
        let largest = ratios.iter().copied().fold(0.0, f64::max);
        Answer {
            scale: claim.to.is_none().then(|| Scale::of(figure, largest)),
            ratios,
            judgement,
        }
    }

    /// Whether it holds.
    pub fn judgement(&self) -> Judgement {
        self.judgement
    }

    /// The middle ratio.
    pub fn middle(&self) -> Option<f64> {
        stats::median(&self.ratios)
    }

    /// The ratio, or the range of them.
    pub fn shown(&self) -> String {
        let low = self.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self
            .ratios
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match &self.scale {
            Some(scale) => (scale.number(low), scale.text(high)),
            None => (format!("× {}", significant(low)), significant(high)),
        };
        match (self.ratios.len(), &self.scale) {
            (0, _) => "not measured".into(),
            (1, Some(_)) => high,
            (1, None) => low,
            (count, _) => format!("{low} to {high} ({count} cells)"),
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
        match self.judgement {
            Judgement::Holds => format!("Holds{}", because(&claim.held)),
            Judgement::InPart => "Holds in some of these cells and not in others".into(),
            Judgement::Gone => format!("No longer holds here{}", because(&claim.gone)),
            Judgement::Open => "Not answered: the records have no such pair of cells".into(),
        }
    }
}

/// What a claim asks of a cell.
fn found(claim: &Claim, part: &Part, cell: &Cell) -> Option<f64> {
    let name = claim.figure.as_deref().unwrap_or(&part.figure);
    let value = |cell: &Cell| stats::mean(&cell.values_of(name));
    let Some(to) = &claim.to else {
        return value(cell);
    };
    // What the claim itself fixes may differ between the two; everything else must be the same.
    let mut others = part
        .cells
        .iter()
        .filter(|other| matches(other, to) && same(cell, other, claim));
    Some(value(cell)? / value(others.next()?)?)
}

fn judge(claim: &Claim, ratios: &[f64]) -> Judgement {
    let fits = |ratio: &&f64| {
        claim.least.is_none_or(|least| **ratio >= least)
            && claim.most.is_none_or(|most| **ratio <= most)
    };
    match (ratios.iter().filter(fits).count(), ratios.len()) {
        (_, 0) => Judgement::Open,
        (0, _) => Judgement::Gone,
        (held, all) if held == all => Judgement::Holds,
        _ => Judgement::InPart,
    }
}

/// Whether a cell has all these levels. A word ending with `*` compares the beginning.
fn matches(cell: &Cell, wanted: &BTreeMap<String, String>) -> bool {
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
fn same(cell: &Cell, other: &Cell, claim: &Claim) -> bool {
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
