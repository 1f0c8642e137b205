//! Whether the records confirm a claim.

mod estimate;
mod rule;

use super::{Claim, Comparison, Deciding, MachineClass};
use crate::report::findings::Findings;
use crate::report::quantity::{Scale, significant, with_interval};
use crate::stats::{self, Estimate};

pub use rule::Judgement;

/// What this run shows in the cells that a claim is about. A cell is decided by its interval, not by its mean: if the
/// interval includes both results, the cell is undecided.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimCheck {
    found: Vec<Estimate>,
    /// In how many of these cells the interval includes both results.
    unsure: usize,
    /// The unit of what is a figure or a difference of figures.
    scale: Option<Scale>,
    judgement: Judgement,
}

impl ClaimCheck {
    /// Looks for the cells and compares them. A machine that lacks what the claim takes cannot answer it.
    pub fn of(claim: &Claim, findings: &Findings) -> ClaimCheck {
        let fits = claim.machine.includes(&findings.any.provenance);
        let parts = findings.parts.iter().filter(|_| fits);
        let cells = parts.flat_map(|part| part.cells.iter().map(move |cell| (part, cell)));
        let all = cells
            .filter(|(_, cell)| estimate::matches(cell, &claim.of))
            .filter_map(|(part, cell)| estimate::estimate(claim, part, cell))
            .filter(|found| found.value.is_finite());
        let found = deciding(all.collect(), claim.decides);
        let kept: Vec<Option<bool>> = found.iter().map(|one| keeps(claim, one)).collect();
        let largest = found.iter().map(|one| one.value.abs()).fold(0.0, f64::max);
        let has_unit = claim.to.is_none() || claim.by == Comparison::Difference;
        let figure = claim.figure.as_deref();
        let figure = figure.or_else(|| findings.parts.first().map(|part| part.figure.as_str()));
        ClaimCheck {
            scale: has_unit.then(|| Scale::of(figure.unwrap_or_default(), largest)),
            unsure: kept.iter().filter(|kept| kept.is_none()).count(),
            judgement: rule::judge(&kept),
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

    /// The number in the middle.
    pub fn middle(&self) -> Option<f64> {
        stats::median(&self.values())
    }

    /// The number with its interval, or the range of them.
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
            ([one], Some(scale)) => scale.mean(one.value, one.interval),
            ([one], None) => format!("× {}", with_interval(one)),
            (several, _) => format!("{low} to {high} ({} cells)", several.len()),
        }
    }

    /// The judgement in a few words, as a table has room for.
    pub fn verdict(&self) -> String {
        match self.judgement {
            Judgement::Holds => "holds".into(),
            Judgement::DoesNotHold { contradicting } if self.found.len() > 1 => {
                let all = self.found.len();
                format!("does not hold in {contradicting} of {all}")
            }
            Judgement::DoesNotHold { .. } => "does not hold".into(),
            Judgement::Undecided => "not decided".into(),
            Judgement::NotMeasured => "not measured".into(),
        }
    }

    /// The judgement in a sentence.
    pub fn sentence(&self, claim: &Claim) -> String {
        let because = |why: &str| match why {
            "" => String::new(),
            why => format!("; our reading: {why}"),
        };
        let cells = self.found.len();
        let noise = match self.unsure {
            0 => String::new(),
            unsure => format!(" (not significant in {unsure} of {cells} cells)"),
        };
        match self.judgement {
            Judgement::Holds => format!("Holds{noise}{}", because(&claim.if_it_holds)),
            Judgement::DoesNotHold { .. } => {
                let verdict = self.verdict().replacen('d', "D", 1);
                format!("{verdict}{noise}{}", because(&claim.if_not))
            }
            Judgement::Undecided => format!(
                "Not decided: in {} of {cells} cells the interval includes both answers",
                self.unsure
            ),
            Judgement::NotMeasured => not_measured(claim),
        }
    }
}

/// What is missing, and which machine can measure it.
fn not_measured(claim: &Claim) -> String {
    match claim.machine {
        MachineClass::Any => "Not answered: this run has no such cells".into(),
        class => format!(
            "Not answered here. It takes {}; run it there with --for {}",
            class.has(),
            class.name()
        ),
    }
}

/// The estimates that decide: all, or the one at the end that the claim is about.
fn deciding(mut found: Vec<Estimate>, which: Deciding) -> Vec<Estimate> {
    found.sort_by(|a, b| a.value.total_cmp(&b.value));
    match which {
        Deciding::Every => found,
        Deciding::Largest => found.pop().into_iter().collect(),
        Deciding::Smallest => found.into_iter().take(1).collect(),
    }
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
