//! What the records say, before anybody draws it: cells (one combination of contender and factors, all its rounds),
//! intervals, ratios to the reference, ranks as far as they rise above the noise, and what is missing.

mod missing;
mod settings;

use std::collections::{BTreeMap, BTreeSet};

use super::quantity;
use crate::record::{Outcome, Record};
use crate::stats::{self, Estimate, Interval};
use missing::missing;
use settings::{SHARE, leading, settings};

pub use missing::{Missing, made_good};
pub use settings::Setting;

/// The level of every interval.
pub const LEVEL: f64 = 0.95;

/// Everything a report says of one run.
pub struct Findings<'a> {
    /// All records, in the order of execution.
    pub records: &'a [Record],
    /// Any of them: what they have in common stands in each.
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
    /// The name of the figure that stands for the result.
    pub figure: String,
    /// Factors that vary while the contender stays, with their levels.
    pub settings: Vec<Setting>,
    /// The cells with a measurement, in the order of the spec.
    pub cells: Vec<Cell<'a>>,
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
}

/// All rounds of one contender under one setting of the factors.
pub struct Cell<'a> {
    /// The contender's id.
    pub contender: &'a str,
    /// The contender's name for readers.
    pub label: &'a str,
    /// The levels of the part's settings, in their order; empty where the factor means nothing to this contender.
    pub levels: Vec<&'a str>,
    /// The settings in words, as `mtu 1500, streams 4`.
    pub under: String,
    /// The measured trials.
    pub trials: Vec<&'a Record>,
    /// Those under intrusive meters.
    pub under_meters: Vec<&'a Record>,
    /// Round and figure of each.
    pub values: Vec<(usize, f64)>,
    /// The mean of the figures.
    pub mean: f64,
    /// The interval of the mean (Student).
    pub interval: Option<Interval>,
    /// How it compares to the reference under the same settings, round by round.
    pub ratio: Option<Estimate>,
    /// The best and the worst rank it may have among the cells of the same settings.
    pub rank: (usize, usize),
    /// Places in `values` that stand far from the others.
    pub outliers: Vec<usize>,
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
    pub fn cells(&self) -> impl Iterator<Item = &Cell<'a>> {
        self.parts.iter().flat_map(|part| &part.cells)
    }
}

/// A figure of a record; goodput also of records from before there were figures.
pub fn figure(record: &Record, name: &str) -> Option<f64> {
    let Outcome::Measured { carried, .. } = &record.outcome else {
        return None;
    };
    let found = record.figures.get(name).copied();
    found.or_else(|| {
        (name == "goodput_bps" && record.figures.is_empty()).then_some(carried.goodput_bps)
    })
}

/// A factor of a record.
pub fn factor<'a>(record: &'a Record, name: &str) -> Option<&'a str> {
    record.factors.get(name).map(String::as_str)
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

const PART: &str = "part";

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
    let mut cells: Vec<Cell<'a>> = groups
        .into_iter()
        .filter_map(|trials| Cell::of(trials, &figure, &settings))
        .map(|cell| cell.with_examinations(records))
        .collect();
    let scatter: Vec<Vec<f64>> = cells.iter().map(Cell::figures).collect();
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

impl<'a> Cell<'a> {
    fn of(trials: Vec<&'a Record>, name: &str, settings: &[Setting]) -> Option<Cell<'a>> {
        let first = *trials.first()?;
        let measured = trials
            .iter()
            .map(|trial| (trial.round, figure(trial, name)));
        let values: Vec<(usize, f64)> = measured
            .filter_map(|(round, value)| Some((round, value?)))
            .collect();
        let figures: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let level = |setting: &Setting| factor(first, &setting.name).unwrap_or_default();
        let words = settings
            .iter()
            .map(|setting| (&setting.name, level(setting)));
        let words = words.filter(|(_, level)| !level.is_empty());
        let words: Vec<String> = words
            .map(|(name, level)| format!("{name} {level}"))
            .collect();
        Some(Cell {
            contender: &first.contender,
            label: &first.label,
            levels: settings.iter().map(level).collect(),
            under: words.join(", "),
            mean: stats::mean(&figures)?,
            interval: stats::mean_interval(&figures, LEVEL),
            ratio: None,
            rank: (1, 1),
            outliers: stats::outliers(&figures),
            trials,
            under_meters: Vec::new(),
            values,
        })
    }

    fn with_examinations(mut self, records: &'a [Record]) -> Cell<'a> {
        let order = self.trials.first().map(|trial| trial.order);
        let of_cell = |record: &&Record| {
            Some(record.order) == order && matches!(record.outcome, Outcome::Examined { .. })
        };
        self.under_meters = records.iter().filter(of_cell).collect();
        self
    }

    /// The mean of what an intrusive meter read; of a share that no meter saw, nothing.
    pub fn examined(&self, name: &str) -> Option<f64> {
        let trials = self.under_meters.iter();
        let read = trials.filter_map(|trial| match &trial.outcome {
            Outcome::Examined { readings, .. } => readings.get(name).copied(),
            _ => None,
        });
        stats::mean(&read.collect::<Vec<f64>>())
    }

    /// All values of a figure of the measured trials, or of what only an intrusive meter read.
    pub fn values_of(&self, name: &str) -> Vec<f64> {
        match self.all(name) {
            measured if measured.is_empty() => self.examined(name).into_iter().collect(),
            measured => measured,
        }
    }

    /// The figures alone.
    pub fn figures(&self) -> Vec<f64> {
        self.values.iter().map(|(_, value)| *value).collect()
    }

    /// Another figure of the same trials.
    pub fn all(&self, name: &str) -> Vec<f64> {
        let trials = self.trials.iter();
        trials.filter_map(|trial| figure(trial, name)).collect()
    }

    /// The mean of it.
    pub fn other(&self, name: &str) -> Option<f64> {
        stats::mean(&self.all(name))
    }

    /// The mean of a reading of the same trials.
    pub fn reading(&self, name: &str) -> Option<f64> {
        let read = self.trials.iter().filter_map(|trial| match &trial.outcome {
            Outcome::Measured { readings, .. } => readings.get(name).copied(),
            _ => None,
        });
        stats::mean(&read.collect::<Vec<f64>>())
    }

    /// The contender and what distinguishes this cell from its other cells.
    pub fn name(&self) -> String {
        match self.under.is_empty() {
            true => self.label.to_owned(),
            false => format!("{} · {}", self.label, self.under),
        }
    }

    /// Whether two cells differ in nothing but this factor.
    pub fn shares_but(&self, other: &Cell, name: &str) -> bool {
        let (Some(here), Some(there)) = (self.trials.first(), other.trials.first()) else {
            return false;
        };
        let without = |record: &Record| {
            let mut factors = record.factors.clone();
            factors.remove(name);
            factors
        };
        without(here) == without(there)
    }

    /// Whether the others are compared to this one.
    pub fn is_reference(&self) -> bool {
        let reference = self.trials.first().map(|trial| &trial.reference);
        reference.is_some_and(|reference| reference == self.contender)
    }

    /// The share of the processors that it was held to. Who was held back is no worse for it, so ranks are among equals.
    fn share(&self) -> Option<&str> {
        factor(self.trials.first()?, SHARE)
    }

    /// Whether two cells were measured under the same settings, as far as these mean something to both.
    pub fn beside(&self, other: &Cell) -> bool {
        let mut pairs = self.levels.iter().zip(&other.levels);
        pairs.all(|(a, b)| a == b || a.is_empty() || b.is_empty())
    }
}

/// How `a` compares to `b`, by the rounds that both were measured in.
pub fn ratio(a: &Cell, b: &Cell) -> Option<Estimate> {
    let of_round = |round: usize| b.values.iter().find(|(other, _)| *other == round);
    let pairs: Vec<(f64, f64)> = a
        .values
        .iter()
        .filter_map(|(round, value)| Some((*value, of_round(*round)?.1)))
        .collect();
    stats::paired(&pairs, LEVEL, 1)
}

/// Ratios to the reference and ranks, each among the cells of the same settings.
fn compare(cells: &mut [Cell], figure: &str, floor: Option<f64>) {
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

fn rank(cells: &[Cell], place: usize, figure: &str, floor: Option<f64>) -> (usize, usize) {
    let rivals: Vec<&Cell> = cells
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
