//! A `[[contender]]` of a spec, and whose mistake it is where it cannot exist.

use std::collections::BTreeMap;
use std::ops::Range;

use super::part::{Part, Varied, known, values};
use crate::spec::build::Impossible;
use crate::spec::diagnostic::Diagnostic;
use crate::spec::factor;
use crate::spec::kinds::{ContenderKind, Named};
use crate::spec::tree::{Placed, Tree};

/// A `[[contender]]` as it is written.
pub(super) struct Entry {
    pub kind: ContenderKind,
    at: Range<usize>,
    pub settings: Vec<Varied>,
    places: BTreeMap<&'static str, Range<usize>>,
}

impl Entry {
    /// Reads the table.
    pub(super) fn read(tree: Tree<'_>) -> Result<Entry, Diagnostic> {
        let Some(written) = tree.get("kind") else {
            return Err(Diagnostic {
                at: tree.at.0..tree.at.1,
                what: "this contender has no kind".into(),
                advice: format!("add `kind`, one of {}", ContenderKind::names().join(", ")),
            });
        };
        let mut entry = Entry {
            kind: known(written, "contender")?,
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

    /// A factor stated for a contender by name must apply to it.
    fn setting(
        &mut self,
        name: &str,
        at: Range<usize>,
        value: Placed<'_>,
    ) -> Result<(), Diagnostic> {
        let factor = factor::find(name, at.clone())?;
        if matches!(factor.scope, factor::Scope::Contenders(kinds) if !kinds.contains(&self.kind)) {
            return Err(Diagnostic {
                at: value.span(),
                what: format!(
                    "`{name}` does not apply to the contender `{}`",
                    self.kind.name()
                ),
                advice: format!("remove `{name}`"),
            });
        }
        self.places.insert(factor.name, value.span());
        self.settings
            .push((factor.name, values(factor, value)?, at));
        Ok(())
    }

    /// Whether the table of the contender alone decides about the factor: then what cannot exist is a mistake of that
    /// table and not a corner of a product of lists.
    pub(super) fn decides(&self, part: &Part<'_>, factor: &str) -> bool {
        let one = |varied: &Varied| varied.1.len() == 1;
        let own = self.settings.iter().find(|(name, ..)| *name == factor);
        own.map_or_else(
            || !part.factors.iter().any(|(name, ..)| *name == factor),
            one,
        ) && self.settings.iter().all(one)
    }

    /// At the place of the factor: in the table of the contender, else where the part sets it.
    pub(super) fn wrong(&self, part: &Part<'_>, why: Impossible) -> Diagnostic {
        let own = self.places.get(why.factor);
        let at = own.or_else(|| part.places.get(why.factor)).cloned();
        Diagnostic {
            at: at.unwrap_or_else(|| self.at.clone()),
            what: why.what,
            advice: why.advice,
        }
    }

    /// Two tables that give the same cell.
    pub(super) fn twice(&self, id: &str) -> Diagnostic {
        Diagnostic {
            at: self.at.clone(),
            what: format!("`{id}` is listed twice"),
            advice: "each contender is measured once in every round: raise `rounds` to measure more often".into(),
        }
    }
}
