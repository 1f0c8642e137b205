//! `[measure]`: meters that take something from what they measure, and so get trials of their own. Left out: none.

use std::collections::BTreeSet;

use super::diagnostic::Diagnostic;
use super::tree::{self, Tree};
use crate::meter::IntrusiveMeter;

/// Which intrusive meters are switched on or off; one that is not named stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Measure(Vec<(IntrusiveMeter, bool)>);

/// Reads the table of a spec, a part or a preset.
pub(super) fn read(tree: Tree<'_>) -> Result<Measure, Diagnostic> {
    let Some(table) = tree.table("measure")? else {
        return Ok(Measure::default());
    };
    table.only(&IntrusiveMeter::ALL.map(IntrusiveMeter::name))?;
    let mut switches = Vec::new();
    for intrusive in IntrusiveMeter::ALL {
        if let Some(value) = table.get(intrusive.name()) {
            let on = value.get_ref().as_bool();
            let on = on.ok_or_else(|| tree::wrong_type(value, "true or false is expected here"))?;
            switches.push((intrusive, on));
        }
    }
    Ok(Measure(switches))
}

impl Measure {
    /// This, overridden by `other`.
    pub(super) fn and(&self, other: &Measure) -> Measure {
        Measure([&self.0[..], &other.0[..]].concat())
    }

    /// Those that are on in the end.
    pub(super) fn asked(&self) -> Vec<IntrusiveMeter> {
        let mut on = BTreeSet::new();
        for (intrusive, wanted) in &self.0 {
            if *wanted {
                on.insert(*intrusive)
            } else {
                on.remove(intrusive)
            };
        }
        on.into_iter().collect()
    }
}
