//! The plan that drops whatever either of two plans drops: what stands while one gives way to the other.
//!
//! Each list of a plan is asked from its head until an entry fits, and what no entry fits passes. A packet passes both
//! lists only if each lets it pass, and one list can say so exactly:
//!
//! ```text
//!   both drop              all that drop in a row there, each once: among them the order says nothing
//!   equal heads            as they are
//!   one of them drops      that one first
//!   two different bypasses whatever the other list says of the first one's packets, then the bypass
//! ```
//!
//! So where policies only come, or only go, the longer list is what both drop, and there is one change in the kernel.

use super::plan::{Disposition, Entry, Plan};
use crate::routes::plan::WITH_PORTS;
use ipsec::policy::{Prefix, Selector, Upper};
use std::collections::HashSet;

/// More than this for each entry of the two lists together, and bypasses are left out: for a moment less passes.
const MAX_MERGED_POLICIES_PER_POLICY: usize = 2;

/// Drops what `one` or `other` drops; steers nothing by itself.
pub(crate) fn combined_plan(one: &Plan, other: &Plan) -> Plan {
    Plan {
        leaving: lists(&one.leaving, &other.leaving),
        arriving: lists(&one.arriving, &other.arriving),
        passing: lists(&one.passing, &other.passing),
        has_doors: one.has_doors || other.has_doors,
        // A port at which protected packets arrive is an exception from the drops, so both must make it.
        udp_ports: &one.udp_ports & &other.udp_ports,
        // These say which packets are our own, which no plan drops.
        outer: &one.outer | &other.outer,
        senders: one.senders.and(&other.senders),
        gateway_peers: &one.gateway_peers | &other.gateway_peers,
    }
}

fn lists(one: &[Entry], other: &[Entry]) -> Vec<Entry> {
    both_lists(one, other).unwrap_or_else(|| {
        let all = one.iter().chain(other);
        all.filter(|entry| drops(entry)).cloned().collect()
    })
}

/// The list that drops what either of two lists drops, and nothing else; none where it would be much longer than these.
pub(crate) fn both_lists(one: &[Entry], other: &[Entry]) -> Option<Vec<Entry>> {
    let exact = merged(one, other);
    (exact.len() <= MAX_MERGED_POLICIES_PER_POLICY * (one.len() + other.len())).then_some(exact)
}

fn merged(mut one: &[Entry], mut other: &[Entry]) -> Vec<Entry> {
    let mut all = Vec::new();
    loop {
        let (Some((a, one_behind)), Some((b, other_behind))) =
            (one.split_first(), other.split_first())
        else {
            all.extend(one.iter().chain(other).cloned());
            return all;
        };
        match (drops(a), drops(b)) {
            (true, true) => {
                let (first, one_rest) = one.split_at(drops_in_a_row(one));
                let (second, other_rest) = other.split_at(drops_in_a_row(other));
                all.extend(either(first, second));
                (one, other) = (one_rest, other_rest);
            }
            (false, false) if a.selector == b.selector => {
                all.push(a.clone());
                (one, other) = (one_behind, other_behind);
            }
            (false, true) => {
                all.push(b.clone());
                other = other_behind;
            }
            (true, false) => {
                all.push(a.clone());
                one = one_behind;
            }
            (false, false) => {
                all.extend(within(a, other));
                one = one_behind;
            }
        }
    }
}

fn drops_in_a_row(list: &[Entry]) -> usize {
    list.iter().take_while(|entry| drops(entry)).count()
}

/// Entries of two lists that all drop, each selector once. Where one list has all of them, it is that list.
fn either(one: &[Entry], other: &[Entry]) -> Vec<Entry> {
    let (long, short) = if one.len() > other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let known: HashSet<_> = long.iter().map(|entry| entry.selector).collect();
    let lacking = short
        .iter()
        .filter(|entry| !known.contains(&entry.selector));
    long.iter().chain(lacking).cloned().collect()
}

fn drops(entry: &Entry) -> bool {
    entry.verdict != Disposition::Bypass
}

/// What a list says of the packets of one bypass alone.
fn within(bypass: &Entry, list: &[Entry]) -> Vec<Entry> {
    let mut said = Vec::new();
    for entry in list {
        let Some(selector) = common(&bypass.selector, &entry.selector) else {
            continue;
        };
        said.push(Entry {
            selector,
            ..entry.clone()
        });
        if selector == bypass.selector {
            return said;
        }
    }
    said.push(bypass.clone());
    said
}

/// The packets that two selectors have in common.
fn common(one: &Selector, other: &Selector) -> Option<Selector> {
    Some(Selector {
        source: narrower(one.source, other.source)?,
        destination: narrower(one.destination, other.destination)?,
        upper: common_upper(one.upper, other.upper)?,
    })
}

/// Of two masked prefixes the one inside the other.
fn narrower(one: Prefix, other: Prefix) -> Option<Prefix> {
    let (narrow, wide) = if one.len >= other.len {
        (one, other)
    } else {
        (other, one)
    };
    wide.contains(narrow.address).then_some(narrow)
}

fn common_upper(one: Upper, other: Upper) -> Option<Upper> {
    use Upper::{Any, Icmp, Protocol};
    match (one, other) {
        (Any, upper) | (upper, Any) => Some(upper),
        (
            Icmp { number, kind, code },
            Icmp {
                number: second,
                kind: k,
                code: c,
            },
        ) if number == second => Some(Icmp {
            number,
            kind: agreed(kind, k)?,
            code: agreed(code, c)?,
        }),
        (
            icmp @ Icmp { number, .. },
            Protocol {
                number: second,
                source_port: None,
                destination_port: None,
            },
        )
        | (
            Protocol {
                number: second,
                source_port: None,
                destination_port: None,
            },
            icmp @ Icmp { number, .. },
        ) if number == second => Some(icmp),
        _ => common_ports(one, other),
    }
}

/// Of two selectors that ask for ports; a protocol that has none shares nothing with one that asks for ports alone.
fn common_ports(one: Upper, other: Upper) -> Option<Upper> {
    let (first, s, d) = ports(one)?;
    let (second, source_port, destination_port) = ports(other)?;
    let (source_port, destination_port) = (agreed(s, source_port)?, agreed(d, destination_port)?);
    match agreed(first, second)? {
        Some(number) => {
            let has_ports = first == second || WITH_PORTS.contains(&number);
            has_ports.then_some(Upper::Protocol {
                number,
                source_port,
                destination_port,
            })
        }
        None => Some(Upper::Ports {
            source_port,
            destination_port,
        }),
    }
}

/// The protocol if one is named, and both ports.
fn ports(upper: Upper) -> Option<(Option<u8>, Option<u16>, Option<u16>)> {
    match upper {
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => Some((Some(number), source_port, destination_port)),
        Upper::Ports {
            source_port,
            destination_port,
        } => Some((None, source_port, destination_port)),
        Upper::Any | Upper::Icmp { .. } => None,
    }
}

/// What satisfies both wishes; none if nothing does.
fn agreed<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => (one == other).then_some(Some(one)),
        (one, other) => Some(one.or(other)),
    }
}

#[cfg(test)]
pub(super) mod tests;
