//! The figures from the records, before they are drawn: cells (one combination of contender and factors, all its
//! rounds), intervals, ratios to the reference, ranks as far as they rise above the noise, and what is missing.

mod cell;
mod factors;
mod missing;

use std::collections::{BTreeMap, BTreeSet};

use super::quantity::{self, Scale};
use crate::record::{Outcome, Record};
use crate::stats;
use factors::{PART, leading, settings};
use missing::missing;

pub use cell::{LEVEL, MeasuredCell, ratio};
pub use factors::{Setting, factor, figure};
pub use missing::{Missing, superseded};

/// The note on figures of an emulated machine.
pub const EMULATED_NOTE: &str = "measured in a guest with emulated processors. The results show what works, but not \
     how fast it is on a \
     real machine; these figures are not compared with those of real machines, with targets or with papers.";

/// The findings of one run.
pub struct Findings<'a> {
    /// All records, in the order of execution.
    pub records: &'a [Record],
    /// Any of them, for the fields that all have in common.
    pub any: &'a Record,
    /// The parts of the study; one without a name where it has none.
    pub parts: Vec<Part<'a>>,
    /// Trials that gave no measurement, each reason once.
    pub missing: Vec<Missing<'a>>,
}

/// Cells that are compared with each other.
pub struct Part<'a> {
    /// The factor `part`, or nothing.
    pub name: &'a str,
    /// The name of the figure that is the result.
    pub figure: String,
    /// Factors that vary while the contender stays, with their levels.
    pub settings: Vec<Setting>,
    /// The cells with a measurement, in the order of the spec.
    pub cells: Vec<MeasuredCell<'a>>,
    /// The relative difference that repeating the same measurement shows by chance.
    pub floor: Option<f64>,
}

impl Part<'_> {
    /// A title, behind the part's name where it has one.
    pub fn titled(&self, title: &str) -> String {
        match self.name {
            "" => title.to_owned(),
            name => format!("{name}: {title}"),
        }
    }

    /// One scale for all cells.
    pub fn scale(&self) -> Scale {
        let most = self.cells.iter().map(|cell| cell.mean).fold(0.0, f64::max);
        Scale::of(&self.figure, most)
    }
}

impl<'a> Findings<'a> {
    /// Looks at the records; `None` where there are none.
    pub fn of(records: &'a [Record]) -> Option<Findings<'a>> {
        let any = records.first()?;
        Some(Findings {
            records,
            any,
            parts: parts(records),
            missing: missing(records),
        })
    }

    /// How many trials of the plan were run; one that was interrupted and run again counts once.
    pub fn ran(&self) -> usize {
        let trials: BTreeSet<usize> = self
            .records
            .iter()
            .map(|record| record.trial)
            .filter(|trial| *trial > 0)
            .collect();
        trials.len()
    }

    /// Every measured cell of every part.
    pub fn cells(&self) -> impl Iterator<Item = &MeasuredCell<'a>> {
        self.parts.iter().flat_map(|part| &part.cells)
    }

    /// The reference's name for readers.
    pub fn reference(&self) -> &'a str {
        let mut records = self.records.iter();
        let named = records.find(|record| record.contender == record.reference);
        named.map_or(&self.any.reference, |record| &record.label)
    }

    /// A cell's name, behind that of its part where there are several.
    pub fn name_of(&self, cell: &MeasuredCell) -> String {
        let first = cell.trials.first();
        match first.and_then(|trial| factor(trial, PART)) {
            Some(part) if self.parts.len() > 1 => format!("{part}: {}", cell.name()),
            _ => cell.name(),
        }
    }
}

fn parts(records: &[Record]) -> Vec<Part<'_>> {
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        let name = factor(record, PART).unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| first_order(records, name));
    names
        .into_iter()
        .filter_map(|name| part(records, name))
        .collect()
}

fn first_order(records: &[Record], name: &str) -> usize {
    let of_part = records
        .iter()
        .filter(|record| factor(record, PART).unwrap_or_default() == name);
    of_part.map(|record| record.order).min().unwrap_or(0)
}

fn part<'a>(records: &'a [Record], name: &'a str) -> Option<Part<'a>> {
    let mut by_order: BTreeMap<usize, Vec<&'a Record>> = BTreeMap::new();
    for record in records {
        let here = factor(record, PART).unwrap_or_default() == name;
        if here && matches!(record.outcome, Outcome::Measured { .. }) {
            by_order.entry(record.order).or_default().push(record);
        }
    }
    let groups: Vec<Vec<&Record>> = by_order.into_values().collect();
    let figure = leading(&groups)?;
    let settings = settings(&groups);
    let mut cells: Vec<MeasuredCell<'a>> = groups
        .into_iter()
        .filter_map(|trials| MeasuredCell::of(trials, &figure, &settings))
        .map(|cell| cell.with_examinations(records))
        .collect();
    let scatter: Vec<Vec<f64>> = cells.iter().map(MeasuredCell::figures).collect();
    let floor = stats::floor(&scatter, LEVEL);
    compare(&mut cells, &figure, floor);
    Some(Part {
        name,
        figure,
        settings,
        cells,
        floor,
    })
}

/// Ratios to the reference and ranks, each among the cells of the same settings.
fn compare(cells: &mut [MeasuredCell], figure: &str, floor: Option<f64>) {
    let Some(reference) = cells
        .first()
        .and_then(|cell| cell.trials.first())
        .map(|trial| trial.reference.clone())
    else {
        return;
    };
    let found: Vec<_> = (0..cells.len())
        .map(|place| {
            let cell = &cells[place];
            let base = cells
                .iter()
                .find(|other| other.contender == reference && cell.beside(other));
            let base = base.filter(|base| !std::ptr::eq(*base, cell));
            (
                base.and_then(|base| ratio(cell, base)),
                rank(cells, place, figure, floor),
            )
        })
        .collect();
    for (cell, (ratio, rank)) in cells.iter_mut().zip(found) {
        (cell.ratio, cell.rank) = (ratio, rank);
    }
}

fn rank(cells: &[MeasuredCell], place: usize, figure: &str, floor: Option<f64>) -> (usize, usize) {
    let rivals: Vec<&MeasuredCell> = cells
        .iter()
        .filter(|other| cells[place].beside(other) && cells[place].share() == other.share())
        .collect();
    let own = rivals
        .iter()
        .position(|rival| std::ptr::eq(*rival, &cells[place]))
        .unwrap_or(0);
    let floor = floor.unwrap_or(f64::INFINITY);
    stats::rank(
        own,
        rivals.len(),
        floor,
        !quantity::less_is_better(figure),
        |a, b| ratio(rivals[a], rivals[b]),
    )
}
