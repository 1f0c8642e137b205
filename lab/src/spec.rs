//! The spec of an experiment: a TOML file. It names contenders, the settings of testbed and load, and lists of values
//! for any factor; the reader multiplies them out into [`Cell`]s. Every error has its place in the file.
//!
//! ```text
//! top level ─┬─► [testbed] [load] [factors] [[contender]]          one part, if the file has no [[part]]
//!            ├─► [testbed.hosts]                                   real machines; `kind = "guest"`: in QEMU
//!            ├─► [[part]] with the same tables, on top of those    several parts, measured in one interleaved run
//!            ├─► [measure]                                         intrusive meters, each in trials of its own
//!            ├─► [[bar]]                                           what must be reached
//!            └─► [smoke] [quick] [standard] [faithful]             rounds, seconds and levels of a preset
//! ```

mod bar;
mod build;
mod cell;
mod complaint;
mod diagnostic;
mod expand;
mod factor;
mod hosts;
mod imix;
mod kinds;
mod measure;
mod preset;
mod programs;
mod settings;
mod tree;

use std::time::Duration;

use toml::de::DeTable;

use crate::bars::Bar;
use crate::testbed::Hosts;
use diagnostic::Diagnostic;
use tree::Tree;

pub(crate) use cell::Cell;
pub(crate) use complaint::SpecError;
pub(crate) use hosts::joined;
pub(crate) use preset::Preset;
pub(crate) use programs::Programs;

/// An experiment as specified.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spec {
    /// The study's name.
    pub study: String,
    /// The study's title.
    pub title: String,
    /// How many rounds; each holds every cell once.
    pub rounds: usize,
    /// Load per trial, unless a part sets it.
    pub duration: Duration,
    /// Seed of the order; `None`: draw one.
    pub seed: Option<u64>,
    /// The id of the contender that ratios are taken to.
    pub reference: String,
    /// What is measured in each round.
    pub cells: Vec<Cell>,
    /// Combinations that were specified and are impossible, one sentence each.
    pub skipped: Vec<String>,
    /// What the preset leaves out, in the study's own words.
    pub leaves_out: Option<String>,
    /// What must be reached.
    pub bars: Vec<Bar>,
    /// The machines it runs on; `None`: namespaces of this one.
    pub hosts: Option<Hosts>,
    /// Whether it runs inside a guest.
    pub guest: bool,
}

/// Words of the top level.
const TOP_LEVEL_FIELDS: [&str; 19] = [
    "study",
    "title",
    "rounds",
    "duration",
    "seed",
    "reference",
    "testbed",
    "load",
    "measure",
    "factors",
    "cells",
    "contender",
    "part",
    "bar",
    "notes",
    "smoke",
    "quick",
    "standard",
    "faithful",
];

impl Spec {
    /// Reads a spec as it stands. `name` is what the file is called in errors.
    pub(crate) fn read(text: &str, name: &str) -> Result<Spec, SpecError> {
        Spec::read_as(text, name, None)
    }

    /// Reads a spec under one of its presets.
    pub(crate) fn read_as(
        text: &str,
        name: &str,
        preset: Option<Preset>,
    ) -> Result<Spec, SpecError> {
        Spec::read_text(text, name, preset, false)
    }

    /// Reads a spec that was not written for its hosts, as [`joined`] gives it: what these cannot do is left out of it,
    /// and named in `skipped`.
    pub(crate) fn read_for_hosts(
        text: &str,
        name: &str,
        preset: Option<Preset>,
    ) -> Result<Spec, SpecError> {
        Spec::read_text(text, name, preset, true)
    }

    fn read_text(
        text: &str,
        name: &str,
        preset: Option<Preset>,
        fits: bool,
    ) -> Result<Spec, SpecError> {
        let file = DeTable::parse(text).map_err(|error| complaint::of_toml(&error, text, name))?;
        parse(Tree::of(&file), preset, fits)
            .map_err(|wrong| SpecError::new(wrong.at, wrong.what, wrong.advice, text, name))
    }

    /// The ids of its contenders, each once, in their order.
    pub(crate) fn contenders(&self) -> Vec<&str> {
        let mut ids: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !ids.contains(&cell.id.as_str()) {
                ids.push(&cell.id);
            }
        }
        ids
    }

    /// About how long it will take.
    pub(crate) fn estimate(&self) -> Duration {
        self.round() * self.rounds as u32 + self.intrusive()
    }

    fn round(&self) -> Duration {
        self.cells.iter().map(|cell| self.trial(cell)).sum()
    }

    /// Trials under intrusive meters.
    fn intrusive(&self) -> Duration {
        let cells = self.cells.iter();
        let each = |cell: &Cell| {
            let meters = cell.intrusive.iter().map(|intrusive| intrusive.takes());
            meters.map(|more| self.trial(cell) + more).sum::<Duration>()
        };
        cells.map(each).sum()
    }

    fn trial(&self, cell: &Cell) -> Duration {
        let asked = cell.duration.unwrap_or(self.duration);
        cell.takes(asked) + crate::plan::TRIAL_OVERHEAD
    }
}

fn parse(file: Tree<'_>, preset: Option<Preset>, fits: bool) -> Result<Spec, Diagnostic> {
    file.only(&TOP_LEVEL_FIELDS)?;
    let study = file.text("study")?.ok_or_else(|| Diagnostic {
        at: 0..0,
        what: "this spec has no name".into(),
        advice: "begin it with `study = \"a-name\"`".into(),
    })?;
    let preset = preset::read(file, preset)?;
    let machines = if fits { hosts::machines(file)? } else { None };
    let (cells, skipped) = expand::cells(file, &preset, machines)?;
    if machines.is_some() && cells.is_empty() {
        return Err(Diagnostic {
            at: 0..0,
            what: "nothing of this spec can be measured on real machines".into(),
            advice: format!("use namespaces. {}", skipped.join(". ")),
        });
    }
    let hosts = hosts::read(file, &cells, machines.is_none())?;
    let rounds = file.number("rounds", 1..=10_000)?.unwrap_or(3);
    let seconds = file.number("duration", 1..=86_400)?.unwrap_or(5);
    let mut spec = Spec {
        study: study.into(),
        title: file.text("title")?.unwrap_or(study).into(),
        rounds: preset.rounds.unwrap_or(rounds) as usize,
        duration: Duration::from_secs(preset.duration.unwrap_or(seconds).into()),
        seed: file.number("seed", 0..=u32::MAX)?.map(u64::from),
        reference: String::new(),
        cells,
        skipped,
        leaves_out: preset.leaves_out.clone(),
        bars: bar::read(file)?,
        guest: hosts::is_guest(file)?,
        hosts,
    };
    spec.reference = reference(file, &spec, machines.is_some())?;
    Ok(spec)
}

/// Of a spec that was made to fit other hosts, what it compares with may be left out: then the first.
fn reference(file: Tree<'_>, spec: &Spec, fits: bool) -> Result<String, Diagnostic> {
    let ids = spec.contenders();
    let first = ids.first().ok_or_else(|| Diagnostic {
        at: 0..0,
        what: "this spec names no contender".into(),
        advice: "add at least one: [[contender]] with `kind = \"plain\"`".into(),
    })?;
    let Some(written) = file.get("reference") else {
        return Ok((*first).into());
    };
    let word = tree::text(written)?;
    if ids.contains(&word) {
        return Ok(word.into());
    }
    if fits {
        // Two hosts alone are in transport mode, which is part of an id.
        let transport = format!("{word}-transport");
        let known = ids.iter().find(|id| **id == transport);
        return Ok((*known.unwrap_or(first)).into());
    }
    let of_it = format!("`{word}`");
    let left_out = spec.skipped.iter().find(|why| why.starts_with(&of_it));
    Err(Diagnostic {
        at: written.span(),
        what: match left_out {
            Some(why) => format!("the reference is left out of this spec: {why}"),
            None => format!("unknown reference `{word}`"),
        },
        advice: complaint::did_you_mean(word, &ids),
    })
}

#[cfg(test)]
mod tests;
