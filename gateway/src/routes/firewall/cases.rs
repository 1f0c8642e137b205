//! The entries of a list as few cases: a gateway with thousands of peers compares a packet with ranges of addresses,
//! not with each peer.
//!
//! ```text
//!   10.1.0.0/24 -> 10.2.0.0/24   protect  ┐
//!   10.1.0.0/24 -> 10.3.0.0/24   protect  ├──► 10.1.0.0/24 -> any of { 10.2.0.0/24, 10.3.0.0/24, … }
//!   …                                     ┘
//! ```

use super::condition::{conditions, when};
use crate::routes::nftables::rule::{Field, Rule};
use crate::routes::plan::{Entry, Family};
use crate::routes::range::{Range, joined};
use ipsec::policy::{Prefix, Upper};
use std::collections::BTreeMap;

/// With fewer entries, their own rules are as fast as a search among ranges.
const MIN_ENTRIES_TO_JOIN: usize = 8;

/// Entries in a row whose packets are treated alike.
pub(super) struct Case<'a> {
    /// One of them: its verdict, and whether it has a device, are those of all.
    pub entry: &'a Entry,
    /// Rules without verdict: a packet that matches any of them matches one of the entries.
    pub conditions: Vec<Rule>,
}

/// The cases of a list, in its order.
pub(super) fn cases(entries: &[Entry]) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for run in entries.chunk_by(are_alike) {
        match (run, run[0].family()) {
            ([entry, ..], Some(family)) if run.len() >= MIN_ENTRIES_TO_JOIN => cases.push(Case {
                entry,
                conditions: joined_conditions(run, family),
            }),
            _ => cases.extend(run.iter().map(|entry| Case {
                entry,
                conditions: conditions(entry),
            })),
        }
    }
    cases
}

/// Whether both entries have the same verdict and differ in their addresses alone. A bypass is never joined: whether
/// its packets are marked depends on which protected destinations its own one overlaps with.
fn are_alike(one: &Entry, other: &Entry) -> bool {
    let kind = |entry: &Entry| (entry.verdict, entry.family(), entry.device.is_some());
    kind(one) == kind(other)
        && one.drops()
        && [one, other].map(|entry| entry.selector.upper) == [Upper::Any; 2]
}

/// One rule for each source, or for each destination, whichever are fewer.
fn joined_conditions(run: &[Entry], family: Family) -> Vec<Rule> {
    let (source, destination) = (Field::Source(family), Field::Destination(family));
    let ends = run
        .iter()
        .map(|entry| (entry.selector.source, entry.selector.destination));
    let by_source = grouped(ends.clone());
    let by_destination = grouped(ends.map(|(source, destination)| (destination, source)));
    let (groups, one, other) = if by_source.len() <= by_destination.len() {
        (by_source, source, destination)
    } else {
        (by_destination, destination, source)
    };
    let rule = |(prefix, ranges): (Prefix, Vec<Range>)| {
        let rule = when().family(family).within(one, prefix);
        let ranges = joined(ranges);
        if ranges == [Range::all(family)] {
            rule
        } else {
            rule.inside(other, ranges)
        }
    };
    groups.into_iter().map(rule).collect()
}

/// The ranges that go with each prefix.
fn grouped(pairs: impl Iterator<Item = (Prefix, Prefix)>) -> Vec<(Prefix, Vec<Range>)> {
    let mut groups = BTreeMap::new();
    for (prefix, other) in pairs {
        let (_, ranges) = groups
            .entry((prefix.address, prefix.len))
            .or_insert_with(|| (prefix, Vec::new()));
        ranges.push(Range::of(other));
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests;
