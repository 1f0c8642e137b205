//! The papers that studies repeat. Their reported figures are data files, which hold only what a paper's text
//! reports. Each claim is a comparison that the records can confirm or refute.

mod claim;
mod comparison;
mod speedup;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use claim::{ClaimCheck, Judgement};
pub(super) use comparison::section;

/// What a paper reported.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The study that repeats it.
    pub study: String,
    /// Authors, title, year.
    pub source: String,
    /// Machines, system and method, in a sentence or two.
    pub testbed: String,
    /// Tables as printed.
    #[serde(default)]
    pub table: Vec<PrintedTable>,
    /// Reported curves over a factor that the study varies.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Its findings, as comparisons.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A table of the paper.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrintedTable {
    /// What it shows.
    pub title: String,
    /// Its columns.
    pub head: Vec<String>,
    /// Its rows, as printed.
    pub rows: Vec<Vec<String>>,
}

/// A curve that the paper's text gives point by point.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The name of the curve.
    pub name: String,
    /// The figure, as records name it.
    pub figure: String,
    /// The factor, as records name it.
    pub factor: String,
    /// Level and figure of each point.
    pub points: Vec<(f64, f64)>,
}

/// A finding that records can confirm or refute.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What the paper found, as a sentence.
    pub finding: String,
    /// The reported number in the reader's units, as text; empty where only words were reported.
    #[serde(default)]
    pub reported: String,
    /// The cells it is about: factors and their levels; `contender` compares the beginning of the id.
    pub of: BTreeMap<String, String>,
    /// The cells it compares them to, each with the one of the same settings. Without it the figure itself is compared.
    #[serde(default)]
    pub to: Option<BTreeMap<String, String>>,
    /// The figure that is compared, where it is not the part's own; also a reading of an intrusive meter.
    #[serde(default)]
    pub figure: Option<String>,
    /// The ratio, or the figure, at or above which it still holds.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// The ratio, or the figure, at or below which it still holds.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// Why it holds, if it does.
    #[serde(default)]
    pub if_it_holds: String,
    /// Why it no longer holds, if it does not.
    #[serde(default)]
    pub if_not: String,
}

/// The papers that the lab repeats.
const PAPERS: [(&str, &str); 4] = [
    (
        "iatrou-2009",
        include_str!("../../studies/papers/iatrou-2009.toml"),
    ),
    (
        "ronan-2004",
        include_str!("../../studies/papers/ronan-2004.toml"),
    ),
    (
        "roy-2004",
        include_str!("../../studies/papers/roy-2004.toml"),
    ),
    (
        "klassert-2010",
        include_str!("../../studies/papers/klassert-2010.toml"),
    ),
];

impl Paper {
    /// The paper that a study repeats, if it repeats one.
    pub fn of(study: &str) -> Option<Paper> {
        let (_, text) = PAPERS.iter().find(|(name, _)| *name == study)?;
        // The texts are compiled in and a test reads each of them.
        toml::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests;
