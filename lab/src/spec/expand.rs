//! Multiplies a spec out: every part, every contender, every value of every factor that means something to both contender
//! and load. What was asked for and cannot exist is left out and said; what two lists make twice is measured once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use super::Wrong;
use super::build::{Impossible, Kind};
use super::complaint::did_you_mean;
use super::factor::{self, CONTENDERS, LOADS, Settings};
use super::hosts;
use super::measure::{self, Measure};
use super::preset::Changes;
use super::tree::{self, Placed, Tree};
use crate::meter::Heavy;

/// One thing to measure in each round.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The contender's id.
    pub id: String,
    /// The part of the study, where it has parts.
    pub part: Option<String>,
    /// The load's name.
    pub load: String,
    /// The part's own seconds of load.
    pub duration: Option<Duration>,
    /// Meters that it gets a further trial for, each.
    pub heavy: Vec<Heavy>,
    pub(super) kind: Kind,
    pub(super) settings: Settings,
}

/// A value or a list of values for a factor, and where it stands.
type Varied = (&'static str, Vec<String>, Range<usize>);

/// What a part says.
struct Part<'t> {
    name: Option<String>,
    load: String,
    duration: Option<Duration>,
    measure: Measure,
    fixed: Settings,
    /// Where each of them stands.
    places: BTreeMap<&'static str, Range<usize>>,
    factors: Vec<Varied>,
    cells: Vec<Settings>,
    contenders: Vec<Tree<'t>>,
}

/// The cells of a spec, and what was skipped.
pub(super) fn cells(file: Tree<'_>, preset: &Changes) -> Result<(Vec<Cell>, Vec<String>), Wrong> {
    let mut all = Expansion {
        preset,
        cells: Vec::new(),
        skipped: Vec::new(),
        seen: BTreeSet::new(),
    };
    let base = part(file, None)?;
    let parts = file.tables("part")?;
    if parts.is_empty() {
        all.add(&base)?;
    }
    let mut names = BTreeSet::new();
    for tree in parts {
        let part = part(tree, Some(&base))?;
        if !names.insert(part.name.clone()) {
            return Err(nameless(tree, "each part needs a name of its own"));
        }
        all.add(&part)?;
    }
    Ok((all.cells, all.skipped))
}

fn nameless(tree: Tree<'_>, what: &str) -> Wrong {
    Wrong {
        at: tree.at.0..tree.at.1,
        what: what.into(),
        advice: "add `name = \"a-name\"`".into(),
    }
}

/// Reads a part, or the top level as one.
fn part<'t>(tree: Tree<'t>, base: Option<&Part<'t>>) -> Result<Part<'t>, Wrong> {
    let mut part = match base {
        Some(base) => {
            tree.only(&[
                "name",
                "duration",
                "testbed",
                "load",
                "measure",
                "factors",
                "cells",
                "contender",
                "about",
            ])?;
            let name = tree.text("name")?;
            Part {
                name: Some(
                    name.ok_or_else(|| nameless(tree, "this part has no name"))?
                        .into(),
                ),
                load: base.load.clone(),
                duration: seconds(tree)?,
                measure: base.measure.and(&measure::read(tree)?),
                fixed: base.fixed.clone(),
                places: base.places.clone(),
                factors: base.factors.clone(),
                cells: base.cells.clone(),
                contenders: base.contenders.clone(),
            }
        }
        None => Part {
            name: None,
            load: "iperf3".into(),
            duration: None,
            measure: measure::read(tree)?,
            fixed: Settings::new(),
            places: BTreeMap::new(),
            factors: Vec::new(),
            cells: Vec::new(),
            contenders: Vec::new(),
        },
    };
    part.read_settings(tree)?;
    let own = tree.tables("contender")?;
    if !own.is_empty() {
        part.contenders = own;
    }
    Ok(part)
}

fn seconds(tree: Tree<'_>) -> Result<Option<Duration>, Wrong> {
    let seconds = tree.number("duration", 1..=86_400)?;
    Ok(seconds.map(|seconds| Duration::from_secs(seconds.into())))
}

impl Part<'_> {
    fn read_settings(&mut self, tree: Tree<'_>) -> Result<(), Wrong> {
        for (name, at, value) in tree.table("testbed")?.iter().flat_map(Tree::leaves) {
            // Machines are no factor: all cells share them, and `hosts` reads them.
            if name.starts_with("hosts.") {
                continue;
            }
            let name = if name == "kind" { "testbed" } else { &name };
            if name == "testbed" && value.get_ref().as_str() == Some(hosts::GUEST) {
                self.may_be_in_a_guest(value)?;
                continue;
            }
            self.fix(factor::find(name, at)?, value)?;
        }
        for (name, at, value) in tree.table("load")?.iter().flat_map(Tree::leaves) {
            if name == "kind" {
                self.load = known(value, &LOADS, "load")?;
                continue;
            }
            self.fix(factor::find(&name, at)?, value)?;
        }
        for (name, at, value) in tree.table("factors")?.iter().flat_map(Tree::leaves) {
            let factor = factor::find(&name, at.clone())?;
            self.factors.retain(|(earlier, ..)| *earlier != factor.name);
            self.factors.push((factor.name, values(factor, value)?, at));
        }
        let cells = tree.tables("cells")?;
        if !cells.is_empty() {
            self.cells = cells.into_iter().map(listed).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// A guest, too, is shared by all cells.
    fn may_be_in_a_guest(&self, value: Placed<'_>) -> Result<(), Wrong> {
        match self.name {
            None => Ok(()),
            Some(_) => Err(Wrong {
                at: value.span(),
                what:
                    "a part has no guest of its own: what is emulated is compared with nothing else"
                        .into(),
                advice: "write `kind = \"guest\"` once, in the [testbed] of the whole spec".into(),
            }),
        }
    }

    fn fix(&mut self, factor: &'static factor::Factor, value: Placed<'_>) -> Result<(), Wrong> {
        self.fixed.insert(factor.name, factor.value(value)?);
        self.places.insert(factor.name, value.span());
        Ok(())
    }
}

fn listed(tree: Tree<'_>) -> Result<Settings, Wrong> {
    let mut settings = Settings::new();
    for (name, at, value) in tree.leaves() {
        let factor = factor::find(&name, at)?;
        settings.insert(factor.name, factor.value(value)?);
    }
    Ok(settings)
}

fn values(factor: &factor::Factor, value: Placed<'_>) -> Result<Vec<String>, Wrong> {
    match value.get_ref().as_array() {
        Some(list) => list.iter().map(|value| factor.value(value)).collect(),
        None => Ok(vec![factor.value(value)?]),
    }
}

fn known(value: Placed<'_>, words: &[&'static str], what: &str) -> Result<String, Wrong> {
    let word = tree::text(value)?;
    match words.contains(&word) {
        true => Ok(word.into()),
        false => Err(Wrong {
            at: value.span(),
            what: format!("unknown {what} `{word}`"),
            advice: did_you_mean(word, words),
        }),
    }
}

struct Expansion<'p> {
    preset: &'p Changes,
    cells: Vec<Cell>,
    skipped: Vec<String>,
    seen: BTreeSet<(Option<String>, String, String)>,
}

impl Expansion<'_> {
    fn add(&mut self, part: &Part<'_>) -> Result<(), Wrong> {
        let mut entries = BTreeMap::new();
        for (place, tree) in part.contenders.iter().enumerate() {
            self.add_contender(part, *tree, place, &mut entries)?;
        }
        Ok(())
    }

    /// `entries` says which `[[contender]]` a cell came from: two that give the same cell are a mistake, while two values
    /// of a factor that mean nothing to a contender are not.
    fn add_contender(
        &mut self,
        part: &Part<'_>,
        tree: Tree<'_>,
        place: usize,
        entries: &mut BTreeMap<(String, String), usize>,
    ) -> Result<(), Wrong> {
        let contender = Entry::read(tree)?;
        for settings in self.combinations(part, &contender) {
            let kind = match Kind::new(&contender.kind, &settings, &part.load) {
                Ok(kind) => kind,
                Err(why) if contender.decides(part, why.factor) => {
                    return Err(contender.wrong(part, why));
                }
                Err(why) => {
                    self.skip(why.what);
                    continue;
                }
            };
            let cell = Cell {
                id: kind.id(&settings),
                part: part.name.clone(),
                load: part.load.clone(),
                duration: part.duration,
                heavy: part.measure.and(&self.preset.measure).asked(),
                kind,
                settings,
            };
            let key = (cell.id.clone(), format!("{:?}", cell.settings));
            let earlier = *entries.entry(key.clone()).or_insert(place);
            if earlier != place {
                return Err(contender.twice(&cell.id));
            }
            if self.seen.insert((part.name.clone(), key.0, key.1)) && self.keeps(&cell) {
                self.cells.push(cell);
            }
        }
        Ok(())
    }

    fn skip(&mut self, why: String) {
        if !self.skipped.contains(&why) {
            self.skipped.push(why);
        }
    }

    fn keeps(&self, cell: &Cell) -> bool {
        let parts = &self.preset.parts;
        let named = |part: &String| parts.contains(part);
        let of_part = parts.is_empty() || cell.part.as_ref().is_none_or(named);
        let only = &self.preset.only;
        of_part && (only.is_empty() || only.iter().any(|word| cell.id.contains(word.as_str())))
    }

    /// Every combination of the values that mean something here.
    fn combinations(&self, part: &Part<'_>, contender: &Entry) -> Vec<Settings> {
        let means = |name: &str| {
            let factor = factor::FACTORS.iter().find(|factor| factor.name == name);
            factor.is_some_and(|factor| factor.means_something_to(&contender.kind, &part.load))
        };
        let mut fixed = part.fixed.clone();
        for (name, value) in &self.preset.settings {
            fixed.insert(name, value.clone());
        }
        let mut all = match part.cells.is_empty() {
            true => vec![fixed],
            false => part.cells.iter().map(|cell| merged(&fixed, cell)).collect(),
        };
        let lists = part.factors.iter().chain(&contender.settings);
        let mut by_name: Vec<(&'static str, &Vec<String>)> = Vec::new();
        for (name, values, _) in lists {
            by_name.retain(|(earlier, _)| earlier != name);
            by_name.push((name, values));
        }
        for (name, values) in by_name {
            let fewer = self
                .preset
                .factors
                .iter()
                .find(|(factor, _)| *factor == name);
            let values = match fewer {
                Some((_, fewer)) if values.len() > 1 => fewer,
                _ => values,
            };
            all = all
                .iter()
                .flat_map(|settings| varied(settings, name, values))
                .collect();
        }
        for settings in &mut all {
            settings.retain(|name, _| means(name));
        }
        all
    }
}

fn merged(one: &Settings, other: &Settings) -> Settings {
    let mut both = one.clone();
    both.extend(other.iter().map(|(name, value)| (*name, value.clone())));
    both
}

fn varied(settings: &Settings, name: &'static str, values: &[String]) -> Vec<Settings> {
    let with = |value: &String| {
        let mut settings = settings.clone();
        settings.insert(name, value.clone());
        settings
    };
    values.iter().map(with).collect()
}

/// A `[[contender]]` as it is written.
struct Entry {
    kind: String,
    at: Range<usize>,
    settings: Vec<Varied>,
    places: BTreeMap<&'static str, Range<usize>>,
}

impl Entry {
    fn read(tree: Tree<'_>) -> Result<Entry, Wrong> {
        let Some(written) = tree.get("kind") else {
            return Err(Wrong {
                at: tree.at.0..tree.at.1,
                what: "this contender has no kind".into(),
                advice: format!("add `kind`, one of {}", CONTENDERS.join(", ")),
            });
        };
        let mut entry = Entry {
            kind: known(written, &CONTENDERS, "contender")?,
            at: tree.at.0..tree.at.1,
            settings: Vec::new(),
            places: BTreeMap::new(),
        };
        for (name, at, value) in tree.leaves() {
            if name != "kind" {
                entry.setting(&name, at, value)?;
            }
        }
        Ok(entry)
    }

    /// A factor stated for a contender by name must mean something to it.
    fn setting(&mut self, name: &str, at: Range<usize>, value: Placed<'_>) -> Result<(), Wrong> {
        let factor = factor::find(name, at.clone())?;
        if matches!(factor.whom, factor::Whom::Contenders(kinds) if !kinds.contains(&self.kind.as_str()))
        {
            return Err(Wrong {
                at: value.span(),
                what: format!("`{name}` means nothing to the contender `{}`", self.kind),
                advice: format!("remove `{name}`"),
            });
        }
        self.places.insert(factor.name, value.span());
        self.settings
            .push((factor.name, values(factor, value)?, at));
        Ok(())
    }

    /// Whether the table of the contender alone decides about the factor: then what cannot exist is a mistake of that table
    /// and not a corner of a product of lists.
    fn decides(&self, part: &Part<'_>, factor: &str) -> bool {
        let one = |varied: &Varied| varied.1.len() == 1;
        let own = self.settings.iter().find(|(name, ..)| *name == factor);
        own.map_or_else(
            || !part.factors.iter().any(|(name, ..)| *name == factor),
            one,
        ) && self.settings.iter().all(one)
    }

    /// At the place of the factor: in the table of the contender, else where the part sets it.
    fn wrong(&self, part: &Part<'_>, why: Impossible) -> Wrong {
        let own = self.places.get(why.factor);
        let at = own.or_else(|| part.places.get(why.factor)).cloned();
        Wrong {
            at: at.unwrap_or_else(|| self.at.clone()),
            what: why.what,
            advice: why.advice,
        }
    }

    fn twice(&self, id: &str) -> Wrong {
        Wrong {
            at: self.at.clone(),
            what: format!("`{id}` is named twice"),
            advice: "each contender is measured once in every round: raise `rounds` to measure more often".into(),
        }
    }
}
