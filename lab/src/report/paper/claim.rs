//! Whether the records confirm a claim.

mod answer;
mod estimate;
mod rule;

use std::cmp::Ordering;

use super::{Claim, Comparison, Deciding, MachineClass};
use crate::report::findings::Findings;
use crate::report::quantity::{Scale, significant, with_interval};
use crate::stats;
use answer::Answer;

pub use rule::Judgement;

/// What this run shows in the cells that a claim is about. A cell is decided by its interval, not by its mean: if the
/// interval includes both results, the cell is undecided.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimCheck {
    found: Vec<Answer>,
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
            .filter_map(|(part, cell)| answer::of(claim, part, cell));
        let found = deciding(all.collect(), claim.decides);
        let kept: Vec<Option<bool>> = found.iter().map(|one| one.confirms).collect();
        let values = found.iter().filter_map(Answer::value);
        let largest = values.map(f64::abs).fold(0.0, f64::max);
        let is_difference = claim.by == Comparison::Difference && claim.than.is_none();
        let has_unit = claim.to.is_none() || is_difference;
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
        self.found.iter().filter_map(Answer::value).collect()
    }

    /// The number in the middle.
    pub fn middle(&self) -> Option<f64> {
        stats::median(&self.values())
    }

    /// The number with its interval, or the range of them.
    pub fn shown(&self) -> String {
        let values = self.values();
        let without = self.found.len() - values.len();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match &self.scale {
            Some(scale) => (scale.number(low), scale.text(high)),
            None => (format!("× {}", significant(low)), significant(high)),
        };
        let known: Vec<_> = self.found.iter().filter_map(|one| one.estimate).collect();
        match (&known[..], &self.scale) {
            ([], _) if without > 0 => "no ratio: the second difference may be 0".into(),
            ([], _) => "not measured".into(),
            ([one], Some(scale)) => scale.mean(one.value, one.interval),
            ([one], None) if without == 0 => format!("× {}", with_interval(one)),
            (several, _) if without == 0 => format!("{low} to {high} ({} cells)", several.len()),
            (several, _) => {
                let cells = several.len();
                format!(
                    "{low} to {high} ({cells} cells; in {without} more the second difference may be 0)"
                )
            }
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
fn deciding(mut found: Vec<Answer>, which: Deciding) -> Vec<Answer> {
    if which == Deciding::Every {
        return found;
    }
    found.retain(|one| one.value().is_some());
    found.sort_by(|a, b| a.value().partial_cmp(&b.value()).unwrap_or(Ordering::Equal));
    match which {
        Deciding::Every => found,
        Deciding::Largest => found.pop().into_iter().collect(),
        Deciding::Smallest => found.into_iter().take(1).collect(),
    }
}
