//! Which way packets of one flow go: policy's answer, and what the association makes of it.

use super::Planner;
use crate::notice::Notice;
use crate::outbound::hops::{self, HopRange};
use ipsec::Dropped;
use ipsec::database::{Decision, SaIndex};
use ipsec::packet::{Familiar, FragmentKind, Outline};
use ipsec::pmtu;
use ipsec::sa::{Mode, Protocol, Sa, SaConfig};
use ipsec::tunnel::Outer;
use std::ops::Index;

/// Next header of a whole packet inside.
const IPV4_INSIDE: u8 = 4;
const IPV6_INSIDE: u8 = 41;

/// A packet, what was decided for it, and what its flow is known by.
pub(in crate::outbound) struct Last {
    pub(super) outline: Outline,
    pub(super) road: RoadNumber,
    familiar: Option<Familiar>,
}

/// How packets of one flow are protected.
#[derive(Clone, Copy)]
pub(in crate::outbound) struct Road {
    pub index: SaIndex,
    pub outer: Outer,
    pub next_header: u8,
    /// Bytes at the start of each packet that stay outside.
    pub outside: usize,
    pub(super) inner_mtu: usize,
    /// Empty for a single ESP association whose packets have no rare headers.
    pub(super) hops: HopRange,
    /// Whether its packets share AGGFRAG payloads.
    pub(super) packs: bool,
}

/// The roads of one batch. They are large, so packets and parcels name theirs by number.
#[derive(Default)]
pub(in crate::outbound) struct Roads(Vec<Road>);

/// A road's place among those of its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::outbound) struct RoadNumber(u32);

impl Roads {
    pub(super) fn push(&mut self, road: Road) -> RoadNumber {
        self.0.push(road);
        RoadNumber(self.0.len() as u32 - 1)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Index<RoadNumber> for Roads {
    type Output = Road;

    fn index(&self, number: RoadNumber) -> &Road {
        &self.0[number.0 as usize]
    }
}

impl<'a> Planner<'a> {
    pub(super) fn is_for_tunnel(&self, outline: &Outline) -> Result<bool, Dropped> {
        let innermost = self.decide(outline)?.first().copied();
        let is_tunnel = |index| is_tunnel(&self.snapshot.sa(index).config, outline);
        Ok(innermost.is_some_and(is_tunnel))
    }

    /// Outline and road of a packet that follows another one of its flow.
    #[inline]
    pub(super) fn recognize(&mut self, packet: &[u8]) -> Option<&Last> {
        let last = self.last.as_mut()?;
        last.outline.total_len = last.familiar.as_ref()?.total_len_of(packet)?;
        Some(last)
    }

    /// Policy's answer for a packet; the answer before, if all that policy looks at is the same.
    pub(super) fn road(
        &mut self,
        roads: &mut Roads,
        packet: &[u8],
        outline: &Outline,
    ) -> Result<RoadNumber, Dropped> {
        if let Some(last) = &mut self.last {
            last.outline.total_len = outline.total_len;
            if last.outline == *outline {
                return Ok(last.road);
            }
        }
        // Policy and path MTU may take their time.
        self.held = None;
        let road = match self.decide(outline)? {
            &[index] if self.snapshot.sa(index).config.aggfrag.is_some() => {
                let sa = self.snapshot.sa(index);
                Road::packed(sa, index, self.paths.choice(sa.config.id.destination))
            }
            &[index] if is_short(&self.snapshot.sa(index).config, outline) => {
                self.short_road(index, packet, outline)?
            }
            path => self.long_road(path, packet, outline)?,
        };
        let number = roads.push(road);
        // Rare headers may differ where all that policy looks at is the same.
        if road.outside == 0 || outline.header_len == plain_len(outline) {
            self.last = Some(Last {
                outline: *outline,
                road: number,
                familiar: Familiar::new(packet, outline),
            });
        }
        Ok(number)
    }

    /// One ESP association, whose outer header any socket can write.
    fn short_road(
        &mut self,
        index: SaIndex,
        packet: &[u8],
        outline: &Outline,
    ) -> Result<Road, Dropped> {
        let sa = self.snapshot.sa(index);
        let (outer, next_header, outside) = envelope(sa, packet, outline)?;
        let path_mtu = self.paths.mtu(outer.destination);
        Ok(Road {
            index,
            outer,
            next_header,
            outside,
            // In transport mode the packet's own IP header is the outer one.
            inner_mtu: outside + pmtu::inner_mtu(&sa.config, path_mtu),
            hops: HopRange::default(),
            packs: false,
        })
    }

    /// AH, several associations, or headers that only we can write.
    fn long_road(
        &mut self,
        path: &[SaIndex],
        packet: &[u8],
        outline: &Outline,
    ) -> Result<Road, Dropped> {
        let packs = |index: &SaIndex| self.snapshot.sa(*index).config.aggfrag.is_some();
        if path.iter().any(packs) {
            return Err(Dropped::Unsupported);
        }
        let start = self.hops.len();
        let path_mtu = |peer| self.paths.mtu(peer);
        let bundle = hops::lay(self.snapshot, path, packet, outline, self.hops, path_mtu)?;
        let innermost = self.hops[start];
        Ok(Road {
            index: innermost.sa,
            outer: bundle.outer,
            next_header: innermost.wrap.next_header(),
            outside: innermost.wrap.outside(),
            inner_mtu: bundle.inner_mtu,
            hops: HopRange::new(start..self.hops.len()),
            packs: false,
        })
    }

    fn decide(&self, outline: &Outline) -> Result<&'a [SaIndex], Dropped> {
        match self.snapshot.outbound_by(self.interface, outline) {
            Decision::Protect(path) => Ok(path),
            // It should never have been led here, and nothing here sends in clear.
            Decision::Bypass => Err(Dropped::NoPolicy),
            Decision::Drop(Dropped::Acquire) => Err(self.ask_for_association(0, outline)),
            Decision::Drop(reason) => Err(reason),
            Decision::Acquire { policy } => Err(self.ask_for_association(policy, outline)),
        }
    }

    fn ask_for_association(&self, policy: u32, outline: &Outline) -> Dropped {
        (self.hook)(Notice::Acquire {
            policy,
            interface: self.interface,
            outline: *outline,
        });
        Dropped::Acquire
    }
}

/// Whether packets of one association need nothing but an ESP header and an outer header that any socket can write.
fn is_short(config: &SaConfig, outline: &Outline) -> bool {
    let has_rare_headers = outline.transport_offset != plain_len(outline);
    config.id.protocol == Protocol::Esp && (!has_rare_headers || is_tunnel(config, outline))
}

/// Bytes of an IP header without options.
fn plain_len(outline: &Outline) -> usize {
    if outline.source.is_ipv4() { 20 } else { 40 }
}

/// The outer header, the next header inside, and how much of the packet stays outside.
fn envelope(sa: &Sa, packet: &[u8], outline: &Outline) -> Result<(Outer, u8, usize), Dropped> {
    if is_tunnel(&sa.config, outline) {
        let inside = if outline.source.is_ipv4() {
            IPV4_INSIDE
        } else {
            IPV6_INSIDE
        };
        return Ok((Outer::around(&sa.config, outline), inside, 0));
    }
    // RFC 4301 4.1: transport mode is for whole packets.
    let plain = plain_len(outline);
    if outline.fragment != FragmentKind::Whole {
        return Err(Dropped::Fragment);
    }
    let next_header = packet.get(if plain == 20 { 9 } else { 6 });
    let outer = Outer {
        source: outline.source,
        destination: outline.destination,
        traffic_class: outline.traffic_class,
        dont_fragment: outline.dont_fragment,
        hop_limit: outline.hop_limit,
        ..Outer::around(&sa.config, outline)
    };
    Ok((outer, *next_header.ok_or(Dropped::Malformed)?, plain))
}

/// An association of setkey's mode `any` carries either: a packet between its own two ends goes in transport mode.
pub(in crate::outbound) fn is_tunnel(config: &SaConfig, outline: &Outline) -> bool {
    let ends = (config.source, config.id.destination);
    match config.mode {
        Mode::Tunnel => true,
        Mode::Transport => false,
        Mode::Any => ends != (outline.source, outline.destination),
    }
}
