//! The plan that drops whatever either of two plans drops: it is in force while one replaces the other.
//!
//! Each list of a plan is searched from its head until an entry matches; a packet that no entry matches passes. A
//! packet passes both lists only if each lets it pass. One list with exactly that effect is built by comparing the
//! heads:
//!
//! ```text
//!   both drop              the run of drops at each head, each once: their order does not matter
//!   equal heads            taken over
//!   one of them drops      that one first
//!   two different bypasses the other list's entries, narrowed to the first bypass's packets, then that bypass
//! ```
//!
//! So if policies are only added, or only removed, the result is the longer list, and the kernel is changed once.

use super::plan::{Entry, Plan};
use crate::routes::plan::WITH_PORTS;
use ipsec::policy::{Prefix, Selector, Upper};
use std::collections::HashSet;

/// If the merged list has more entries than this for each entry of the two lists, bypasses are left out: during the
/// change fewer packets pass.
const MAX_MERGED_POLICIES_PER_POLICY: usize = 2;

/// Drops what `one`, which is in force, or `other` drops; only for the firewall, not for routing.
pub(crate) fn combined_plan(one: &Plan, other: &Plan) -> Plan {
    Plan {
        planes: one.planes.replaced_by(other.planes),
        leaving: lists(&one.leaving, &other.leaving),
        arriving: lists(&one.arriving, &other.arriving),
        passing: lists(&one.passing, &other.passing),
        has_direction_devices: one.has_direction_devices || other.has_direction_devices,
        // A port at which protected packets arrive is an exception from the drops, so both plans must have it.
        udp_ports: &one.udp_ports & &other.udp_ports,
        // These identify the gateway's own packets, which no plan drops.
        outer: &one.outer | &other.outer,
        senders: one.senders.and(&other.senders),
        gateway_peers: &one.gateway_peers | &other.gateway_peers,
        exchanges_keys: one.exchanges_keys || other.exchanges_keys,
        // What enters a device of either is judged by the gateway; it leaves no other way.
        devices: &one.devices | &other.devices,
    }
}

fn lists(one: &[Entry], other: &[Entry]) -> Vec<Entry> {
    both_lists(one, other).unwrap_or_else(|| {
        let all = one.iter().chain(other);
        all.filter(|entry| entry.drops()).cloned().collect()
    })
}

/// The list that drops exactly what either of two lists drops; none if it would be much longer than the two.
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
        match (a.drops(), b.drops()) {
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
    list.iter().take_while(|entry| entry.drops()).count()
}

/// Merges two lists of which all entries drop, each selector once. If one list has all of them, returns that list.
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

/// The entries of a list, narrowed to the packets of one bypass.
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

/// The inner one of two masked prefixes; none if they do not overlap.
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

/// The common part of two selectors with ports; a protocol without ports has none in common with a selector by ports
/// alone.
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

/// The value that satisfies both conditions; none if they contradict each other.
fn agreed<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => (one == other).then_some(Some(one)),
        (one, other) => Some(one.or(other)),
    }
}

#[cfg(test)]
pub(super) mod tests;
