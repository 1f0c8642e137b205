//! Called by a fuzzer: any bytes as the kernel's lists of nf_tables objects.

use super::connection::{attributes_of, count_in};
use super::present::values;
use super::{Present, Ruleset, TableFamily};
use crate::netlink_socket::message::messages;

const TABLE: &str = "esplanade";
const COUNTERS: [&str; 2] = ["in", "out"];

/// Reads `data` as a datagram of answers: the first describes a table, the following ones its chains, rules, counters
/// and elements of sets.
///
/// # Panics
///
/// If a table differs from itself, or a deleted table is not reported.
pub fn answers(data: &[u8]) {
    for answer in messages(data) {
        let _ = answer.outcome();
    }
    let bodies: Vec<_> = messages(data)
        .map(|answer| attributes_of(&answer).to_vec())
        .collect();
    for body in &bodies {
        let count = count_in(body, TABLE, &COUNTERS);
        assert!(count.is_none_or(|(name, ..)| COUNTERS.contains(&name)));
        values(body);
    }
    let Some((found, others)) = bodies.split_first() else {
        return;
    };
    let present = Present::of(TABLE, found, others, others);
    assert!(present.differences(Some(&present.clone())).is_empty());
    assert!(!present.differences(None).is_empty());
    let empty = Present::of(TABLE, found, &[], &[]);
    empty.differences(Some(&present));
    let ruleset = Ruleset {
        family: TableFamily::Inet,
        table: TABLE.to_owned(),
        counters: Vec::new(),
        sets: Vec::new(),
        chains: Vec::new(),
    };
    assert!(empty.has_shape_of(&ruleset));
    assert!(!present.has_shape_of(&ruleset) || present == empty);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;

    #[test]
    fn what_the_kernel_lists_of_nftables_is_read_without_a_panic() {
        replay("nftables_answers", answers);
    }
}
