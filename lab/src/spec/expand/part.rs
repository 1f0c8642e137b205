//! A part of a study, or a whole study without parts: its settings, factors and contenders.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::spec::complaint::did_you_mean;
use crate::spec::diagnostic::Diagnostic;
use crate::spec::factor;
use crate::spec::hosts;
use crate::spec::kinds::{LoadKind, Named};
use crate::spec::measure::{self, Measure};
use crate::spec::settings::Settings;
use crate::spec::tree::{self, Placed, Tree};

/// A value or a list of values for a factor, and where it stands.
pub(super) type Varied = (&'static str, Vec<String>, Range<usize>);

/// A part of a study.
pub(super) struct Part<'t> {
    pub name: Option<String>,
    pub load: LoadKind,
    pub duration: Option<Duration>,
    pub measure: Measure,
    pub fixed: Settings,
    /// Where each of them stands.
    pub places: BTreeMap<&'static str, Range<usize>>,
    pub factors: Vec<Varied>,
    pub cells: Vec<Settings>,
    pub contenders: Vec<Tree<'t>>,
}

/// Reads a part, or the top level as one.
pub(super) fn part<'t>(tree: Tree<'t>, base: Option<&Part<'t>>) -> Result<Part<'t>, Diagnostic> {
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
                    name.ok_or_else(|| missing_name(tree, "this part has no name"))?
                        .into(),
                ),
                load: base.load,
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
            load: LoadKind::Iperf3,
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

/// A part needs a name of its own.
pub(super) fn missing_name(tree: Tree<'_>, what: &str) -> Diagnostic {
    Diagnostic {
        at: tree.at.0..tree.at.1,
        what: what.into(),
        advice: "add `name = \"a-name\"`".into(),
    }
}

fn seconds(tree: Tree<'_>) -> Result<Option<Duration>, Diagnostic> {
    let seconds = tree.number("duration", 1..=86_400)?;
    Ok(seconds.map(|seconds| Duration::from_secs(seconds.into())))
}

impl Part<'_> {
    fn read_settings(&mut self, tree: Tree<'_>) -> Result<(), Diagnostic> {
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
                self.load = known(value, "load")?;
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
    fn may_be_in_a_guest(&self, value: Placed<'_>) -> Result<(), Diagnostic> {
        match self.name {
            None => Ok(()),
            Some(_) => Err(Diagnostic {
                at: value.span(),
                what:
                    "a part cannot have its own guest: emulated results are not compared with others"
                        .into(),
                advice: "write `kind = \"guest\"` in the top-level [testbed]".into(),
            }),
        }
    }

    fn fix(
        &mut self,
        factor: &'static factor::Factor,
        value: Placed<'_>,
    ) -> Result<(), Diagnostic> {
        self.fixed.insert(factor.name, factor.value(value)?);
        self.places.insert(factor.name, value.span());
        Ok(())
    }
}

fn listed(tree: Tree<'_>) -> Result<Settings, Diagnostic> {
    let mut settings = Settings::new();
    for (name, at, value) in tree.leaves() {
        let factor = factor::find(&name, at)?;
        settings.insert(factor.name, factor.value(value)?);
    }
    Ok(settings)
}

/// One value, or each of a list.
pub(super) fn values(
    factor: &factor::Factor,
    value: Placed<'_>,
) -> Result<Vec<String>, Diagnostic> {
    match value.get_ref().as_array() {
        Some(list) => list.iter().map(|value| factor.value(value)).collect(),
        None => Ok(vec![factor.value(value)?]),
    }
}

/// The kind for a word.
pub(super) fn known<T: Named>(value: Placed<'_>, what: &str) -> Result<T, Diagnostic> {
    let word = tree::text(value)?;
    T::named(word).ok_or_else(|| Diagnostic {
        at: value.span(),
        what: format!("unknown {what} `{word}`"),
        advice: did_you_mean(word, &T::names()),
    })
}
