//! Where the canary, a known text that is sent through each tunnel before it is measured, was seen.

use crate::contender::Protection;
use crate::record::{Outcome, Record};

/// How often the canary was seen at each place, over all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CanaryCounts {
    /// Frames on the client's side per canary (the fewest of any trial).
    pub client_side: Option<usize>,
    /// Frames on a plain wire per canary (the fewest of any trial).
    pub plain_wire: Option<usize>,
    /// Frames on protected wires, all trials together: anything but 0 is a leak.
    pub protected_wire: Option<usize>,
}

/// Counts the canaries of all trials.
pub(super) fn canary_counts(records: &[Record]) -> CanaryCounts {
    let mut all = CanaryCounts::default();
    for record in records {
        let check = match &record.outcome {
            Outcome::Measured { check, .. } | Outcome::Examined { check, .. } => Some(check),
            Outcome::Failed { check, .. } => check.as_ref(),
            _ => None,
        };
        for canary in check.iter().flat_map(|check| &check.canaries) {
            fewest(&mut all.client_side, canary.client_side);
            match record.protection {
                Protection::Clear => fewest(&mut all.plain_wire, canary.wire),
                Protection::Secret => *all.protected_wire.get_or_insert(0) += canary.wire,
                Protection::Readable => {}
            }
        }
    }
    all
}

fn fewest(so_far: &mut Option<usize>, seen: usize) {
    *so_far = Some(so_far.map_or(seen, |fewest| fewest.min(seen)));
}
