//! The papers that studies repeat. Their reported figures are data files, which hold only what a paper's text
//! reports. Each claim is a comparison that the records can confirm or refute.

mod claim;
mod comparison;
mod criterion;
mod machine;
mod speedup;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use claim::{ClaimCheck, Judgement};
pub(super) use comparison::section;
pub use machine::MachineClass;

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
    /// What no claim judges, each with the reason.
    #[serde(default)]
    pub out: Vec<LeftOut>,
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

/// A finding that records can confirm or refute. A number is repeated where today's lies within a fifth of it, or
/// within the rounding of a number that the paper gives in percent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Where in the paper, as `figure 3, 100 Mbit/s`.
    pub place: String,
    /// What the paper found, as a sentence.
    pub finding: String,
    /// A question of ours about something of which the paper's text has no outcome.
    #[serde(default)]
    pub ours: bool,
    /// The reported number in the reader's units, as text; empty where only words were reported.
    #[serde(default)]
    pub reported: String,
    /// The cells it is about.
    pub of: Levels,
    /// The cells it compares them to, each with the one of the same settings. Without it the figure itself is compared.
    #[serde(default)]
    pub to: Option<Levels>,
    /// Another pair of cells: what is compared is how much larger the first ratio or difference is than that of this
    /// pair.
    #[serde(default)]
    pub than: Option<Pair>,
    /// How a cell is compared to the other.
    #[serde(default)]
    pub by: Comparison,
    /// Which cells decide.
    #[serde(default)]
    pub decides: Deciding,
    /// The figure that is compared, where it is not the part's own; also a reading of an intrusive meter, or one that
    /// is computed from a record: `link_ratio`, `segments_pps`, `overtaken_count`, `spread_ratio`, and of the machine's
    /// time `machine.busy_ratio`, `machine.interrupts_ratio` and `machine.softirq_ratio`.
    #[serde(default)]
    pub figure: Option<String>,
    /// What is compared must be at least this.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// What is compared must be at most this.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The machines that can answer it.
    #[serde(default)]
    pub machine: MachineClass,
    /// Why it holds, if it does.
    #[serde(default)]
    pub if_it_holds: String,
    /// Why it does not hold, if it does not.
    #[serde(default)]
    pub if_not: String,
}

/// Factors and their levels. `contender` is compared with a contender's id. A level ending in `*` compares the
/// beginning, `a|b` is either of the two, and nothing means that a cell lacks the factor.
pub type Levels = BTreeMap<String, String>;

/// Two sets of cells, of which the first is compared to the second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The cells.
    pub of: Levels,
    /// What they are compared to.
    pub to: Levels,
}

/// How a cell is compared to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparison {
    /// The ratio of their figures.
    #[default]
    Ratio,
    /// The difference of their figures.
    Difference,
}

/// Which of the cells that a claim is about decide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deciding {
    /// All of them.
    #[default]
    Every,
    /// The one with the largest number: "up to", "tops out at".
    Largest,
    /// The one with the smallest number: "the worst case", "down to".
    Smallest,
}

/// Something that the paper says and that no claim judges.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Where in the paper.
    pub place: String,
    /// What it says.
    pub says: String,
    /// Where the project has it instead, or why it has not.
    pub reason: String,
}

/// Whether a level is one of `a|b*`.
fn is_one_of(found: &str, levels: &str) -> bool {
    let mut either = levels.split('|');
    either.any(|level| match level.strip_suffix('*') {
        Some(beginning) => found.starts_with(beginning),
        None => found == level,
    })
}

/// The papers that the lab repeats.
const PAPERS: [(&str, &str); 4] = [
    (
        "iatrou-2009",
        include_str!("../../studies/then/iatrou-2009.toml"),
    ),
    (
        "ronan-2004",
        include_str!("../../studies/then/ronan-2004.toml"),
    ),
    ("roy-2004", include_str!("../../studies/then/roy-2004.toml")),
    (
        "klassert-2010",
        include_str!("../../studies/then/klassert-2010.toml"),
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
