//! Finding the first policy that matches among many: tuple-space search. Policies with the same pair of prefix lengths
//! share a hash table, so a look-up costs one probe for each *shape* of policy, not one for each policy.

use crate::packet::{FragmentKind, Outline};
use crate::policy::{Selector, Upper, network};
use std::collections::HashMap;

/// Selectors in order of precedence, ready to be searched.
#[derive(Default)]
pub(super) struct Index {
    shapes: Vec<Shape>,
}

/// All selectors whose prefixes have these lengths.
struct Shape {
    is_v6: bool,
    source_len: u8,
    destination_len: u8,
    /// The best rank in here: once something better is found, this shape need not be asked.
    first_rank: u32,
    ranks: HashMap<(u128, u128), Vec<(u32, Upper)>>,
}

/// How a selector's upper layer fits a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    Yes,
    No,
    /// A later fragment, whose ports nobody knows, against a selector that asks for ports.
    Unclear,
}

impl Index {
    /// An index over selectors in order of precedence: the rank of each is its place.
    pub(super) fn new<'a>(selectors: impl Iterator<Item = &'a Selector>) -> Self {
        let mut index = Self::default();
        for (rank, selector) in selectors.enumerate() {
            index.insert(rank as u32, selector);
        }
        index.shapes.sort_by_key(|shape| shape.first_rank);
        index
    }

    fn insert(&mut self, rank: u32, selector: &Selector) {
        let Selector {
            source,
            destination,
            upper,
        } = selector;
        let is_v6 = source.address.is_ipv6();
        if is_v6 != destination.address.is_ipv6() {
            return;
        }
        let key = (
            network(source.address, source.len),
            network(destination.address, destination.len),
        );
        let same = |shape: &&mut Shape| {
            (shape.is_v6, shape.source_len, shape.destination_len)
                == (is_v6, source.len, destination.len)
        };
        if let Some(shape) = self.shapes.iter_mut().find(same) {
            shape.ranks.entry(key).or_default().push((rank, *upper));
            return;
        }
        self.shapes.push(Shape {
            is_v6,
            source_len: source.len,
            destination_len: destination.len,
            first_rank: rank,
            ranks: HashMap::from([(key, vec![(rank, *upper)])]),
        });
    }

    /// The rank of the first selector that fits, or may fit.
    pub(super) fn find(&self, packet: &Outline) -> Option<(u32, Fit)> {
        let mut best: Option<(u32, Fit)> = None;
        for shape in &self.shapes {
            if best.is_some_and(|(rank, _)| rank < shape.first_rank) {
                break;
            }
            let found = shape.find(packet);
            best = match (best, found) {
                (Some(old), Some(new)) if old.0 < new.0 => Some(old),
                (_, Some(new)) => Some(new),
                (old, None) => old,
            };
        }
        best
    }
}

impl Shape {
    fn find(&self, packet: &Outline) -> Option<(u32, Fit)> {
        if packet.source.is_ipv6() != self.is_v6 {
            return None;
        }
        let key = (
            network(packet.source, self.source_len),
            network(packet.destination, self.destination_len),
        );
        let candidates = self.ranks.get(&key)?;
        let fits = candidates
            .iter()
            .map(|(rank, upper)| (*rank, fit(upper, packet)));
        fits.into_iter().find(|(_, fit)| *fit != Fit::No)
    }
}

fn fit(upper: &Upper, packet: &Outline) -> Fit {
    match *upper {
        Upper::Any => Fit::Yes,
        Upper::Protocol { number, .. } if number != packet.protocol => Fit::No,
        Upper::Protocol {
            source_port,
            destination_port,
            ..
        } => fit_pair(packet, source_port, destination_port),
        Upper::Icmp { number, .. } if number != packet.protocol => Fit::No,
        Upper::Icmp { kind, code, .. } => {
            fit_pair(packet, kind.map(u16::from), code.map(u16::from))
        }
        Upper::Ports { .. } if !has_ports(packet.protocol) => Fit::No,
        Upper::Ports {
            source_port,
            destination_port,
        } => fit_pair(packet, source_port, destination_port),
    }
}

/// TCP, UDP, DCCP, SCTP, UDP-Lite: what a selector of ports alone is about.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

fn fit_pair(packet: &Outline, first: Option<u16>, second: Option<u16>) -> Fit {
    if first.is_none() && second.is_none() {
        return Fit::Yes;
    }
    match packet.ports {
        Some((a, b))
            if first.is_none_or(|port| port == a) && second.is_none_or(|port| port == b) =>
        {
            Fit::Yes
        }
        Some(_) => Fit::No,
        // RFC 4301 7: a later fragment must not slip past a policy because nobody can see its ports.
        None if packet.fragment == FragmentKind::Later => Fit::Unclear,
        None => Fit::No,
    }
}
