//! Narrowing of traffic selectors (RFC 7296 2.9): the packets that both ends let pass.

use crate::message::payload::{AddressRange, Ports, TrafficSelector};
use std::cmp::{max, min};

/// How many selectors a payload can have: their number travels in 8 bits.
const MAX_SELECTORS: usize = 255;

/// What both sides agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Narrowed {
    /// Traffic on the initiator's side: at least one.
    pub initiator: Vec<TrafficSelector<'static>>,
    /// Traffic on the responder's side: at least one.
    pub responder: Vec<TrafficSelector<'static>>,
}

/// The part of `(TSi, TSr)` that `ours` lets pass, `ours` in the same order of sides. `None` if one side has no part:
/// answered by TS_UNACCEPTABLE. The order of the peer's selectors is kept: its first one is that of the packet that
/// triggered the request.
pub fn narrow(
    theirs: (&[TrafficSelector<'_>], &[TrafficSelector<'_>]),
    ours: (&[TrafficSelector<'_>], &[TrafficSelector<'_>]),
) -> Option<Narrowed> {
    let initiator = common(theirs.0, ours.0);
    let responder = common(theirs.1, ours.1);
    let is_acceptable = !initiator.is_empty() && !responder.is_empty();
    is_acceptable.then_some(Narrowed {
        initiator,
        responder,
    })
}

impl Narrowed {
    /// The first selector of each side alone, for peers that take one pair (SINGLE_PAIR_REQUIRED, RFC 7296 2.9).
    pub fn first_pair(mut self) -> Self {
        self.initiator.truncate(1);
        self.responder.truncate(1);
        self
    }
}

/// Whether every selector of an answer lies within one that was sent, and there is one: the responder may narrow, never
/// widen.
pub fn is_within(answer: &[TrafficSelector<'_>], sent: &[TrafficSelector<'_>]) -> bool {
    let is_covered = |selector| sent.iter().any(|wider| covers(wider, selector));
    !answer.is_empty() && answer.iter().all(is_covered)
}

/// The intersections of every selector of one with every one of the other, without those that lie within another. More
/// than a payload can have are left out, which is narrowing too.
fn common(
    theirs: &[TrafficSelector<'_>],
    ours: &[TrafficSelector<'_>],
) -> Vec<TrafficSelector<'static>> {
    let mut kept: Vec<TrafficSelector<'static>> = Vec::new();
    for (theirs, ours) in theirs
        .iter()
        .flat_map(|theirs| ours.iter().map(move |ours| (theirs, ours)))
    {
        let Some(both) = intersection(theirs, ours) else {
            continue;
        };
        if kept.iter().any(|wider| covers(wider, &both)) {
            continue;
        }
        // The first stays where it is, if need be wider than it was.
        match kept.iter().position(|narrower| covers(&both, narrower)) {
            Some(place) => {
                kept[place] = both;
                let mut index = 0;
                kept.retain(|narrower| {
                    index += 1;
                    index <= place + 1 || !covers(&both, narrower)
                });
            }
            None if kept.len() < MAX_SELECTORS => kept.push(both),
            None => return kept,
        }
    }
    kept
}

/// The packets that both select. Selectors of types that are not known have none.
fn intersection(
    a: &TrafficSelector<'_>,
    b: &TrafficSelector<'_>,
) -> Option<TrafficSelector<'static>> {
    let (
        TrafficSelector::Range {
            protocol: p,
            ports: q,
            addresses: r,
        },
        TrafficSelector::Range {
            protocol: s,
            ports: t,
            addresses: u,
        },
    ) = (a, b)
    else {
        return None;
    };
    Some(TrafficSelector::Range {
        protocol: common_protocol(*p, *s)?,
        ports: common_ports(*q, *t)?,
        addresses: common_addresses(*r, *u)?,
    })
}

fn common_protocol(a: u8, b: u8) -> Option<u8> {
    match (a, b) {
        (0, other) | (other, 0) => Some(other),
        (a, b) => (a == b).then_some(a),
    }
}

/// RFC 4301 4.4.1.1: "any" takes in packets whose ports cannot be seen, a range does not.
fn common_ports(a: Ports, b: Ports) -> Option<Ports> {
    match (a, b) {
        (Ports::Range { first: a, last: b }, Ports::Range { first: c, last: d }) => {
            let (first, last) = (max(a, c), min(b, d));
            // Not by `Ports::new`, which would read 65535 to 0 as OPAQUE.
            (first <= last).then_some(Ports::Range { first, last })
        }
        (Ports::Opaque, Ports::Opaque | Ports::ANY) | (Ports::ANY, Ports::Opaque) => {
            Some(Ports::Opaque)
        }
        _ => None,
    }
}

fn common_addresses(a: AddressRange, b: AddressRange) -> Option<AddressRange> {
    let ((a, b), (c, d)) = (a.bounds(), b.bounds());
    // Of two families: one end would be IPv4, the other IPv6.
    if a.is_ipv4() != c.is_ipv4() {
        return None;
    }
    AddressRange::new(max(a, c), min(b, d))
}

fn covers(wider: &TrafficSelector<'_>, narrower: &TrafficSelector<'_>) -> bool {
    intersection(wider, narrower).is_some_and(|both| both == *narrower)
}

#[cfg(test)]
mod tests;
