//! A cell: one contender under one setting of the factors, with all its rounds.

use super::factors::{SHARE, Setting, factor, figure};
use crate::record::{Outcome, Record};
use crate::report::quantity::Scale;
use crate::stats::{self, Estimate, Interval};

/// The level of every interval.
pub const LEVEL: f64 = 0.95;

/// All rounds of one contender under one setting of the factors.
pub struct MeasuredCell<'a> {
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

impl<'a> MeasuredCell<'a> {
    pub(super) fn of(
        trials: Vec<&'a Record>,
        name: &str,
        settings: &[Setting],
    ) -> Option<MeasuredCell<'a>> {
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
        Some(MeasuredCell {
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

    pub(super) fn with_examinations(mut self, records: &'a [Record]) -> MeasuredCell<'a> {
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
        if self.under.is_empty() {
            self.label.to_owned()
        } else {
            format!("{} · {}", self.label, self.under)
        }
    }

    /// Whether two cells differ in nothing but this factor.
    pub fn shares_but(&self, other: &MeasuredCell, name: &str) -> bool {
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

    /// The mean with its interval, on the scale of its part.
    pub fn mean_on(&self, scale: &Scale) -> String {
        scale.mean(self.mean, self.interval)
    }

    /// Whether the others are compared to this one.
    pub fn is_reference(&self) -> bool {
        let reference = self.trials.first().map(|trial| &trial.reference);
        reference.is_some_and(|reference| reference == self.contender)
    }

    /// The processor share that limited this cell. Cells are ranked only among those of the same share, because a
    /// limited contender is expected to be slower.
    pub(super) fn share(&self) -> Option<&str> {
        factor(self.trials.first()?, SHARE)
    }

    /// Whether two cells were measured under the same settings, as far as these mean something to both.
    pub fn beside(&self, other: &MeasuredCell) -> bool {
        let mut pairs = self.levels.iter().zip(&other.levels);
        pairs.all(|(a, b)| a == b || a.is_empty() || b.is_empty())
    }
}

/// How `a` compares to `b`, by the rounds that both were measured in.
pub fn ratio(a: &MeasuredCell, b: &MeasuredCell) -> Option<Estimate> {
    let of_round = |round: usize| b.values.iter().find(|(other, _)| *other == round);
    let pairs: Vec<(f64, f64)> = a
        .values
        .iter()
        .filter_map(|(round, value)| Some((*value, of_round(*round)?.1)))
        .collect();
    stats::paired(&pairs, LEVEL, 1)
}
