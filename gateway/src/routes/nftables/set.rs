//! Sets of values, as a transaction makes them.

use super::NamedSet;
use super::rule::Field;
use crate::routes::plan::Family;
use std::collections::BTreeSet;

/// A set, in which the kernel looks a field's value up.
pub(super) struct Set {
    /// A name; or [`NAME_OF_ANY_SET`] for the values of a term that has several, which belong to that term alone.
    pub name: &'static str,
    /// Identifies the set within the transaction.
    pub id: u32,
    /// The type as which `nft` shows the values.
    pub data_type: u32,
    /// Whether the values are in host byte order; only for `nft` too.
    pub is_in_host_order: bool,
    /// The length of each value, in bytes.
    pub key_len: u32,
    /// The elements.
    pub content: SetContent,
}

/// The elements of a set.
pub(super) enum SetContent {
    /// Single values.
    Values(BTreeSet<Vec<u8>>),
    /// Ranges.
    Ranges(Vec<RangeEnds>),
}

/// The first value of a range and the first one after it; without a second value the range extends to the largest one.
pub(super) type RangeEnds = (Vec<u8>, Option<Vec<u8>>);

impl Set {
    /// A set of the table.
    pub(super) fn named(set: &NamedSet, id: u32) -> Self {
        Self::of_values(set.name, id, set.field, set.values.clone())
    }

    /// The values of one term.
    pub(super) fn of_term(id: u32, field: Field, values: BTreeSet<Vec<u8>>) -> Self {
        Self::of_values(NAME_OF_ANY_SET, id, field, values)
    }

    /// The ranges of one term, and the length of their ends in bytes.
    pub(super) fn of_ranges(id: u32, field: Field, key_len: u32, ranges: Vec<RangeEnds>) -> Self {
        Self {
            name: NAME_OF_ANY_SET,
            id,
            data_type: data_type(field),
            is_in_host_order: false,
            key_len,
            content: SetContent::Ranges(ranges),
        }
    }

    fn of_values(name: &'static str, id: u32, field: Field, values: BTreeSet<Vec<u8>>) -> Self {
        Self {
            name,
            id,
            data_type: data_type(field),
            is_in_host_order: is_in_host_order(field),
            key_len: key_len(field, values.first()),
            content: SetContent::Values(values),
        }
    }
}

/// The length of a field's values, in bytes; `first` is one of them, if there are any.
fn key_len(field: Field, first: Option<&Vec<u8>>) -> u32 {
    match field {
        Field::Ends(Family::V4) => 8,
        Field::Ends(Family::V6) => 32,
        _ => first.map_or(0, Vec::len) as u32,
    }
}

/// The name for which the kernel chooses a free number.
pub(super) const NAME_OF_ANY_SET: &str = "__set%d";

/// The type numbers by which `nft` shows the elements of sets; the kernel only stores them.
fn data_type(field: Field) -> u32 {
    match field {
        Field::Source(Family::V4) | Field::Destination(Family::V4) => 7,
        Field::Source(Family::V6) | Field::Destination(Family::V6) => 8,
        // Two addresses: six bits for each type.
        Field::Ends(Family::V4) => 7 << 6 | 7,
        Field::Ends(Family::V6) => 8 << 6 | 8,
        Field::Protocol | Field::FragmentNextHeader => 12,
        Field::SourcePort | Field::DestinationPort => 13,
        Field::Mark => 19,
        Field::SocketUser => 24,
        Field::IcmpType => 29,
        Field::DestinationKind => 38,
        Field::InDevice | Field::OutDevice => 41,
        // An integer.
        _ => 4,
    }
}

fn is_in_host_order(field: Field) -> bool {
    matches!(
        field,
        Field::Mark
            | Field::DestinationKind
            | Field::InDevice
            | Field::OutDevice
            | Field::SocketUser
    )
}
