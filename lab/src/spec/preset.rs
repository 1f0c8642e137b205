//! Presets: how much of a study is run. Each may lower rounds and seconds, narrow the lists of factors, and name the
//! parts and contenders it keeps.

use super::diagnostic::Diagnostic;
use super::factor;
use super::measure::{self, Measure};
use super::settings::Settings;
use super::tree::Tree;

/// How much of a study is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preset {
    /// At most 30 seconds: does it run at all.
    Smoke,
    /// About two minutes.
    Quick,
    /// At most 100 minutes.
    Standard,
    /// The study's own durations and levels.
    Faithful,
}

impl Preset {
    /// Its name in a spec and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Preset::Smoke => "smoke",
            Preset::Quick => "quick",
            Preset::Standard => "standard",
            Preset::Faithful => "faithful",
        }
    }
}

/// What a preset changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    pub rounds: Option<u32>,
    pub duration: Option<u32>,
    pub leaves_out: Option<String>,
    /// Parts that are run; empty: all.
    pub parts: Vec<String>,
    /// Words of contender ids that are run; empty: all.
    pub only: Vec<String>,
    /// Lists that replace those of the same factor wherever it is varied.
    pub factors: Vec<(&'static str, Vec<String>)>,
    /// Intrusive meters that it switches on or off everywhere.
    pub measure: Measure,
    /// Settings that replace those of the same factor wherever it is fixed.
    pub settings: Settings,
}

/// Reads all presets, so that an error in any of them is found; returns the changes of `wanted`. A
/// preset that a spec does not describe gets usual values.
pub(super) fn read(file: Tree<'_>, wanted: Option<Preset>) -> Result<Changes, Diagnostic> {
    let mut asked = Changes::default();
    for preset in [
        Preset::Smoke,
        Preset::Quick,
        Preset::Standard,
        Preset::Faithful,
    ] {
        let changes = match file.table(preset.name())? {
            Some(tree) => changes(tree)?,
            None => usual(preset),
        };
        if wanted == Some(preset) {
            asked = changes;
        }
    }
    Ok(asked)
}

fn usual(preset: Preset) -> Changes {
    let (rounds, duration) = match preset {
        Preset::Smoke => (Some(1), Some(1)),
        Preset::Quick => (Some(3), Some(2)),
        Preset::Standard | Preset::Faithful => (None, None),
    };
    Changes {
        rounds,
        duration,
        ..Changes::default()
    }
}

fn changes(tree: Tree<'_>) -> Result<Changes, Diagnostic> {
    tree.only(&[
        "rounds",
        "duration",
        "leaves_out",
        "parts",
        "only",
        "measure",
        "factors",
    ])?;
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
    let mut changes = Changes {
        rounds: tree.number("rounds", 1..=10_000)?,
        duration: tree.number("duration", 1..=86_400)?,
        leaves_out: tree.text("leaves_out")?.map(str::to_owned),
        parts: owned(tree.texts("parts")?),
        only: owned(tree.texts("only")?),
        measure: measure::read(tree)?,
        ..Changes::default()
    };
    for (name, at, value) in tree.table("factors")?.iter().flat_map(Tree::leaves) {
        let factor = factor::find(&name, at)?;
        match value.get_ref().as_array() {
            Some(list) => {
                let values = list.iter().map(|value| factor.value(value));
                changes
                    .factors
                    .push((factor.name, values.collect::<Result<_, _>>()?));
            }
            None => {
                changes.settings.insert(factor.name, factor.value(value)?);
            }
        }
    }
    Ok(changes)
}
