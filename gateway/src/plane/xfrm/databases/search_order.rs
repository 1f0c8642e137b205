//! The order in which policies are searched.

use super::super::policy::PolicyName;
use ipsec::database::Snapshot;
use ipsec::policy::Direction;
use std::collections::HashMap;

/// Policies in the order in which they are removed: of two that select the same packet the one that applies goes last,
/// and first of all those that are in the snapshot no more.
pub(super) fn last_of_the_search_first(
    mut names: Vec<PolicyName>,
    snapshot: &Snapshot,
) -> Vec<PolicyName> {
    let mut places = HashMap::new();
    for direction in [Direction::Out, Direction::In, Direction::Fwd] {
        for (place, (_, policy)) in snapshot.policies(direction).enumerate() {
            places.insert((direction, policy.selector), place);
        }
    }
    names.sort_by_key(|name| {
        let place = places.get(&(name.direction, name.selector));
        std::cmp::Reverse(place.copied().unwrap_or(usize::MAX))
    });
    names
}
