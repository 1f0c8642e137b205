//! Finding the first policy that matches among many: tuple-space search. Policies with the same pair of prefix lengths
//! share a hash table, so a look-up costs one probe for each *shape* of policy, not one for each policy.

use super::hash_index::HashIndex;
use crate::packet::{FragmentKind, Outline};
use crate::policy::{Selector, Upper, network};
use multibuffer::prefetch;
use std::net::IpAddr;

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
    /// The best rank in here: once something better is found, this shape is not searched.
    first_rank: u32,
    /// Of the first candidate for each pair of networks.
    places: HashIndex,
    candidates: Vec<Candidate>,
}

/// A selector. INVARIANT: fits into a cache line, so that one memory access finds it.
#[repr(align(64))]
struct Candidate {
    networks: Networks,
    rank: u32,
    /// The next one of the same pair of networks, by order of rank; 0 if there is none: position 0 is never a next one.
    next: u32,
    upper: Upper,
}

/// The network parts of source and destination.
type Networks = (u128, u128);

/// How a selector's upper layer fits a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    Yes,
    No,
    /// A later fragment, whose ports are unknown, against a selector with ports.
    Unclear,
}

impl Index {
    /// An index over selectors in order of precedence: the rank of each is its place.
    pub(super) fn new<'a>(selectors: impl Iterator<Item = &'a Selector> + Clone) -> Self {
        let ranked = selectors.zip(0..).filter(|(selector, _)| {
            selector.source.address.is_ipv6() == selector.destination.address.is_ipv6()
        });
        let mut counted: Vec<(Shape, usize)> = Vec::new();
        for (selector, rank) in ranked.clone() {
            match counted.iter_mut().find(|(shape, _)| shape.has(selector)) {
                Some((_, count)) => *count += 1,
                None => counted.push((Shape::of(selector, rank), 1)),
            }
        }
        let drafted = counted.into_iter();
        let mut drafts: Vec<_> = drafted
            .map(|(shape, count)| Drafted::new(shape, count))
            .collect();
        for (selector, rank) in ranked {
            let mut drafts = drafts.iter_mut();
            // INVARIANT: each selector has a shape since the first pass.
            if let Some(drafted) = drafts.find(|drafted| drafted.shape.has(selector)) {
                drafted.push(rank, selector);
            }
        }
        let shapes = drafts.into_iter().map(|drafted| drafted.shape);
        Self {
            shapes: shapes.collect(),
        }
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

    /// Prefetches the slots for packets between these hosts.
    pub(super) fn fetch(&self, hosts: Hosts) {
        for shape in self.probable(hosts) {
            shape.places.fetch(words(shape.networks(hosts)));
        }
    }

    /// The selector that most probably fits, for [`Index::rank`]; prefetches it.
    pub(super) fn guess(&self, hosts: Hosts) -> Option<Guess> {
        self.probable(hosts).zip(0..).find_map(|(shape, number)| {
            let place = shape.places.guess(words(shape.networks(hosts)))?;
            prefetch(&shape.candidates[place as usize]);
            Some(Guess {
                shape: number,
                place,
            })
        })
    }

    /// The rank of the guessed policy for packets between these hosts.
    pub(super) fn rank(&self, hosts: Hosts, guess: Guess) -> Option<u32> {
        let shape = self.probable(hosts).nth(guess.shape)?;
        Some(shape.candidates[guess.place as usize].rank)
    }

    fn probable(&self, (source, _): Hosts) -> impl Iterator<Item = &Shape> {
        /// Shapes beyond this number are not prefetched.
        const MAX_PREFETCHED_SHAPES: usize = 4;
        let is_v6 = source.is_ipv6();
        let shapes = self.shapes.iter();
        shapes
            .filter(move |shape| shape.is_v6 == is_v6)
            .take(MAX_PREFETCHED_SHAPES)
    }
}

/// Source and destination of a packet.
pub(super) type Hosts = (IpAddr, IpAddr);

/// A selector that most probably fits.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    shape: usize,
    place: u32,
}

/// A shape while its selectors are collected.
struct Drafted {
    shape: Shape,
    /// Of the first candidate of each pair of networks, the last one.
    last: Vec<u32>,
}

impl Drafted {
    fn new(mut shape: Shape, selectors: usize) -> Self {
        shape.places = HashIndex::with_room(selectors);
        shape.candidates = Vec::with_capacity(selectors);
        let last = Vec::with_capacity(selectors);
        Self { shape, last }
    }

    fn push(&mut self, rank: u32, selector: &Selector) {
        let Shape {
            places, candidates, ..
        } = &mut self.shape;
        let Selector {
            source,
            destination,
            upper,
        } = selector;
        let networks = (
            network(source.address, source.len),
            network(destination.address, destination.len),
        );
        let place = candidates.len() as u32;
        let is_it = |place: u32| candidates[place as usize].networks == networks;
        if let Some(first) = places.find_or_insert(words(networks), place, is_it) {
            let before = std::mem::replace(&mut self.last[first as usize], place);
            candidates[before as usize].next = place;
        }
        self.last.push(place);
        candidates.push(Candidate {
            networks,
            rank,
            next: 0,
            upper: *upper,
        });
    }
}

impl Shape {
    /// That of a selector, still empty.
    fn of(selector: &Selector, first_rank: u32) -> Self {
        Self {
            is_v6: selector.source.address.is_ipv6(),
            source_len: selector.source.len,
            destination_len: selector.destination.len,
            first_rank,
            places: HashIndex::default(),
            candidates: Vec::new(),
        }
    }

    fn has(&self, selector: &Selector) -> bool {
        (self.is_v6, self.source_len, self.destination_len)
            == (
                selector.source.address.is_ipv6(),
                selector.source.len,
                selector.destination.len,
            )
    }

    fn networks(&self, (source, destination): Hosts) -> Networks {
        (
            network(source, self.source_len),
            network(destination, self.destination_len),
        )
    }

    fn find(&self, packet: &Outline) -> Option<(u32, Fit)> {
        if packet.source.is_ipv6() != self.is_v6 {
            return None;
        }
        let networks = self.networks((packet.source, packet.destination));
        let is_it = |place: u32| self.candidates[place as usize].networks == networks;
        let mut place = self.places.find(words(networks), is_it)?;
        loop {
            let candidate = &self.candidates[place as usize];
            match fit(&candidate.upper, packet) {
                Fit::No if candidate.next == 0 => return None,
                Fit::No => place = candidate.next,
                fit => return Some((candidate.rank, fit)),
            }
        }
    }
}

fn words((source, destination): Networks) -> [u64; 4] {
    let halves = |network: u128| [(network >> 64) as u64, network as u64];
    let ([a, b], [c, d]) = (halves(source), halves(destination));
    [a, b, c, d]
}

/// Whether a selector matches a packet, by itself.
pub(super) fn matches(selector: &Selector, packet: &Outline) -> bool {
    selector.source.contains(packet.source)
        && selector.destination.contains(packet.destination)
        && fit(&selector.upper, packet) == Fit::Yes
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

/// TCP, UDP, DCCP, SCTP, UDP-Lite: those that a selector of ports without a protocol matches.
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
        // RFC 4301 7: a later fragment must not slip past a policy because its ports are not visible.
        None if packet.fragment == FragmentKind::Later => Fit::Unclear,
        None => Fit::No,
    }
}

#[cfg(test)]
mod tests;
