//! Expands a spec: every part, every contender, every value of every factor that applies to both contender and load.
//! Combinations that cannot exist are skipped and reported; duplicates are measured once.

mod entry;
mod on_machines;
mod part;

use std::collections::{BTreeMap, BTreeSet};

use super::build::Kind;
use super::cell::Cell;
use super::diagnostic::Diagnostic;
use super::factor;
use super::hosts::{HostCount, in_namespaces_only, is_measured_on_machines};
use super::preset::Changes;
use super::settings::Settings;
use super::tree::Tree;
use entry::Entry;
use part::{Part, missing_name, part};

/// The cells of a spec, and what was skipped: on machines that the spec was not written for, also what only namespaces
/// can do.
pub(super) fn cells(
    file: Tree<'_>,
    preset: &Changes,
    machines: Option<HostCount>,
) -> Result<(Vec<Cell>, Vec<String>), Diagnostic> {
    let mut all = Expansion {
        preset,
        machines,
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
            return Err(missing_name(tree, "each part needs a name of its own"));
        }
        all.add(&part)?;
    }
    Ok((all.cells, all.skipped))
}

struct Expansion<'p> {
    preset: &'p Changes,
    machines: Option<HostCount>,
    cells: Vec<Cell>,
    skipped: Vec<String>,
    seen: BTreeSet<(Option<String>, String, String)>,
}

impl Expansion<'_> {
    fn add(&mut self, part: &Part<'_>) -> Result<(), Diagnostic> {
        let mut entries = BTreeMap::new();
        for (place, tree) in part.contenders.iter().enumerate() {
            self.add_contender(part, *tree, place, &mut entries)?;
        }
        Ok(())
    }

    /// `entries` maps a cell to its `[[contender]]`: two entries with the same cell are an error, but two values of a
    /// factor that does not apply are not.
    fn add_contender(
        &mut self,
        part: &Part<'_>,
        tree: Tree<'_>,
        place: usize,
        entries: &mut BTreeMap<(String, String), usize>,
    ) -> Result<(), Diagnostic> {
        let contender = Entry::read(tree)?;
        for settings in self.possible_here(part, &contender) {
            let kind = match Kind::new(contender.kind, &settings, part.load) {
                Ok(kind) => kind,
                Err(why) if self.machines.is_none() && contender.decides(part, why.factor) => {
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
                load: part.load,
                duration: part.duration,
                intrusive: part.measure.and(&self.preset.measure).asked(),
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

    /// Every combination; on machines that the spec was not written for, what is left of them.
    fn possible_here(&mut self, part: &Part<'_>, contender: &Entry) -> Vec<Settings> {
        let all = self.combinations(part, contender);
        let Some(machines) = self.machines else {
            return all;
        };
        if !is_measured_on_machines(contender.kind) {
            self.skip(in_namespaces_only(contender.kind));
            return Vec::new();
        }
        let (left, said) = on_machines::fit(all, machines, part.name.as_deref());
        said.into_iter().for_each(|why| self.skip(why));
        left
    }

    /// Every combination of the values that mean something here.
    fn combinations(&self, part: &Part<'_>, contender: &Entry) -> Vec<Settings> {
        let means = |name: &str| {
            let factor = factor::FACTORS.iter().find(|factor| factor.name == name);
            factor.is_some_and(|factor| factor.applies_to(contender.kind, part.load))
        };
        let mut fixed = part.fixed.clone();
        for (name, value) in &self.preset.settings {
            fixed.insert(name, value.clone());
        }
        let mut all = if part.cells.is_empty() {
            vec![fixed]
        } else {
            part.cells.iter().map(|cell| merged(&fixed, cell)).collect()
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
