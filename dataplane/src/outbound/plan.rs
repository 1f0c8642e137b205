//! The first step outbound, in order: what becomes of each packet, decided before a byte of payload is touched.

mod packing;

pub(super) use packing::Packs;

use super::OutboundBatch;
use super::batch::{Parcel, Place, Refused, Train};
use super::hops::{self, Hop, HopRange};
use super::layers::{Refusal, Wanted};
use crate::iv::IvSource;
use crate::notice::Notice;
use crate::path::PathMtus;
use crate::syn;
use crate::train::cut::Cut;
use crate::train::{Offload, Segmentation};
use ipsec::Dropped;
use ipsec::database::{Decision, SaIndex, Snapshot};
use ipsec::esp::Stamp;
use ipsec::fragment::{Cutter, Offered, Reassembler};
use ipsec::packet::{Familiar, FragmentKind, Outline};
use ipsec::pmtu::{self, Fit, TcpChecksum};
use ipsec::sa::{Held, Mode, Protocol, Sa, SaConfig, SequenceNumber};
use ipsec::tunnel::Outer;
use ipsec::wire::ip::v4::allow_fragments;
use multibuffer::Iv;
use std::ops::Range;

/// Next header of a whole packet inside.
const IPV4_INSIDE: u8 = 4;
const IPV6_INSIDE: u8 = 41;

/// Plans one batch under one snapshot at one moment.
pub(super) struct Planner<'a> {
    pub snapshot: &'a Snapshot,
    pub ivs: &'a mut IvSource,
    pub paths: &'a mut PathMtus,
    pub hook: &'a (dyn Fn(Notice) + Send + Sync),
    /// Fragments of packets that go in transport mode, until they are whole.
    pub partial: &'a mut Reassembler,
    pub now: u64,
    /// The device that the batch was read from.
    pub interface: u32,
    /// What was decided for the packet before: most are followed by another one of their flow.
    pub last: Option<Last>,
    /// The numbers of the association that sealed last, held for a run of its packets.
    pub held: Option<(SaIndex, Held<'a>)>,
    /// The hops of all flows of the batch.
    pub hops: &'a mut Vec<Hop>,
    /// What is still to be packed.
    pub packs: &'a mut Packs,
}

/// A packet, what was decided for it, and what its flow is known by.
pub(super) struct Last {
    outline: Outline,
    road: Road,
    familiar: Option<Familiar>,
}

/// How packets of one flow are protected.
#[derive(Clone, Copy)]
pub(super) struct Road {
    index: SaIndex,
    outer: Outer,
    next_header: u8,
    /// Bytes at the start of each packet that stay outside.
    outside: usize,
    inner_mtu: usize,
    /// Empty for a single ESP association whose packets have no rare headers.
    hops: HopRange,
    /// Whether its packets share AGGFRAG payloads.
    packs: bool,
}

/// One item on its road.
struct Passage<'a> {
    item: Range<usize>,
    /// Whether the item lies among the fragments made here instead of in the intake.
    in_fragments: bool,
    cut: Cut,
    road: Road,
    sa: &'a Sa,
}

impl<'a> Planner<'a> {
    /// Plans all items of `batch`.
    pub fn plan(&mut self, batch: &mut OutboundBatch) {
        for place in 0..batch.intake.items.len() {
            let (range, offload) = batch.intake.items[place].clone();
            let before = batch.tally.arrived;
            if let Err(reason) = self.admit(batch, range, offload) {
                // Whatever was counted as arrived and not granted is dropped; at least the item itself.
                batch.tally.arrived = batch.tally.arrived.max(before + 1);
                batch.tally.drop(reason, batch.tally.arrived - before);
            }
        }
        self.finish_packs(batch);
    }

    fn admit(
        &mut self,
        batch: &mut OutboundBatch,
        item: Range<usize>,
        offload: Offload,
    ) -> Result<(), Dropped> {
        let packet = &batch.intake.bytes[item.clone()];
        let known = self.recognize(packet);
        let outline = match &known {
            Some((outline, _)) => *outline,
            None => Outline::read(packet)?,
        };
        let cut = Cut::plan(packet, &outline, offload)?;
        batch.tally.arrived += u64::from(cut.count());
        if outline.fragment != FragmentKind::Whole {
            self.held = None;
            if !self.is_for_tunnel(&outline)? {
                return self.join(batch, item);
            }
        }
        let road = match known {
            Some((_, road)) => road,
            None => self.road(packet, &outline)?,
        };
        if syn::is_syn(packet, &outline) {
            let packet = &mut batch.intake.bytes[item.clone()];
            syn::clamp(packet, road.inner_mtu, state_of_checksum(offload));
        }
        let passage = Passage {
            item,
            in_fragments: false,
            cut,
            road,
            sa: self.snapshot.sa(road.index),
        };
        self.fit(batch, passage, &outline)
    }

    fn is_for_tunnel(&self, outline: &Outline) -> Result<bool, Dropped> {
        let innermost = self.decide(outline)?.first().copied();
        let is_tunnel = |index| is_tunnel(&self.snapshot.sa(index).config, outline);
        Ok(innermost.is_some_and(is_tunnel))
    }

    /// RFC 4303 3.1.1, 3.3.4: transport mode is for whole packets. What the kernel has cut for the device is joined
    /// first; the protected packet is cut again on its way out. Rare, so it may allocate.
    fn join(&mut self, batch: &mut OutboundBatch, item: Range<usize>) -> Result<(), Dropped> {
        let whole = match self.partial.offer(&batch.intake.bytes[item], self.now)? {
            Offered::NotFragment => return Err(Dropped::Malformed),
            Offered::Held => {
                // It arrives with the last of its packet.
                batch.tally.arrived -= 1;
                return Ok(());
            }
            Offered::Joined(whole) => whole,
        };
        let mut whole = whole;
        // Whoever cut a packet wants it to arrive in pieces.
        allow_fragments(&mut whole);
        let outline = Outline::read(&whole)?;
        let mut road = self.road(&whole, &outline)?;
        road.outer.dont_fragment = false;
        road.hops = hops::allowing_fragments(self.hops, road.hops);
        let start = batch.fragments.len();
        batch.fragments.extend_from_slice(&whole);
        let passage = Passage {
            item: start..batch.fragments.len(),
            in_fragments: true,
            cut: Cut::whole(&outline),
            road,
            sa: self.snapshot.sa(road.index),
        };
        self.number(batch, passage);
        Ok(())
    }

    /// Outline and road of a packet that follows another one of its flow.
    fn recognize(&self, packet: &[u8]) -> Option<(Outline, Road)> {
        let last = self.last.as_ref()?;
        let total_len = last.familiar.as_ref()?.total_len_of(packet)?;
        let outline = Outline {
            total_len,
            ..last.outline
        };
        Some((outline, last.road))
    }

    /// Policy's answer for a packet; the answer before, if all that policy looks at is the same.
    fn road(&mut self, packet: &[u8], outline: &Outline) -> Result<Road, Dropped> {
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
                Road::packed(sa, index, self.paths.mtu(sa.config.id.destination))
            }
            &[index] if is_short(&self.snapshot.sa(index).config, outline) => {
                self.short_road(index, packet, outline)?
            }
            path => self.long_road(path, packet, outline)?,
        };
        // Rare headers may differ where all that policy looks at is the same.
        if road.outside == 0 || outline.header_len == plain_len(outline) {
            self.last = Some(Last {
                outline: *outline,
                road,
                familiar: Familiar::new(packet, outline),
            });
        }
        Ok(road)
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

    /// RFC 4301 8.2: what is too big for the path is cut before it is protected, or refused.
    fn fit(
        &mut self,
        batch: &mut OutboundBatch,
        passage: Passage<'a>,
        outline: &Outline,
    ) -> Result<(), Dropped> {
        let total_len = passage.cut.packet_len(0);
        if total_len <= passage.road.inner_mtu {
            self.number(batch, passage);
            return Ok(());
        }
        let longest = Outline {
            total_len,
            ..*outline
        };
        match pmtu::judge(&longest, passage.road.inner_mtu) {
            Fit::CutInside if passage.road.outside == 0 => {
                self.fragment(batch, &passage);
                Ok(())
            }
            Fit::Fits | Fit::CutInside | Fit::CutOutside => {
                self.number(batch, passage);
                Ok(())
            }
            Fit::Report(mtu) => {
                batch.refused.push(Refused {
                    item: passage.item,
                    reporter: outline.destination,
                    mtu,
                });
                Err(Dropped::TooBig)
            }
        }
    }

    /// Cuts each packet of the item into fragments, each of which then goes its own way. Rare, so it may allocate.
    fn fragment(&mut self, batch: &mut OutboundBatch, passage: &Passage<'a>) {
        let mut whole = Vec::new();
        for number in 0..passage.cut.count() {
            let item = &batch.intake.bytes[passage.item.clone()];
            whole.clear();
            whole.resize(passage.cut.head_len(), 0);
            passage.cut.write_head(item, number, &mut whole);
            whole.extend_from_slice(&item[passage.cut.payload(number)]);
            match Cutter::new(&whole, passage.road.inner_mtu, 0) {
                Ok(cutter) => self.number_fragments(batch, passage, cutter),
                Err(reason) => batch.tally.drop(reason, 1),
            }
        }
    }

    /// The fragments arrive in place of their packet.
    fn number_fragments(
        &mut self,
        batch: &mut OutboundBatch,
        passage: &Passage<'a>,
        mut cutter: Cutter<'_>,
    ) {
        batch.tally.arrived -= 1;
        while let Some(len) = cutter.next_into(&mut batch.fragments) {
            batch.tally.arrived += 1;
            let item = batch.fragments.len() - len..batch.fragments.len();
            match Outline::read(&batch.fragments[item.clone()]) {
                Ok(outline) => {
                    let fragment = Passage {
                        item,
                        in_fragments: true,
                        cut: Cut::whole(&outline),
                        ..*passage
                    };
                    self.number(batch, fragment);
                }
                Err(reason) => batch.tally.drop(reason, 1),
            }
        }
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

    /// Takes sequence numbers for all packets of the item, the shorter last one by itself so that lifetimes count
    /// what is carried.
    fn number(&mut self, batch: &mut OutboundBatch, passage: Passage<'a>) {
        if passage.road.packs {
            return self.pack(batch, &passage);
        }
        if !passage.road.hops.is_empty() {
            return self.wrap(batch, &passage);
        }
        self.seal(batch, passage);
    }

    /// The short road: one ESP header for each packet.
    fn seal(&mut self, batch: &mut OutboundBatch, passage: Passage<'a>) {
        let count = passage.cut.count();
        let last = count - 1;
        let len = |number| passage.cut.packet_len(number);
        let even = if len(last) == len(0) { count } else { last };
        let mut granted = self.grant(batch, &passage, 0..even);
        if granted == even {
            granted += self.grant(batch, &passage, even..count);
        }
        if granted > 0 {
            batch.trains.push(Train {
                item: passage.item,
                in_fragments: passage.in_fragments,
                cut: passage.cut,
                granted,
                outside: passage.road.outside,
                sa: passage.road.index,
            });
        }
    }

    /// Sends every packet of the item through all its hops.
    fn wrap(&mut self, batch: &mut OutboundBatch, passage: &Passage<'a>) {
        // INVARIANT: every hop takes its own association's numbers, and nobody holds two.
        self.held = None;
        let road = &passage.road;
        let hops = road.hops.of(self.hops);
        let (ivs, now) = (&mut *self.ivs, self.now);
        let mut grant = |sa: &Sa, bytes| {
            let (sequence, _) = sa.state.reserve(&sa.config, 1, bytes, now)?;
            let iv = match sa.config.id.protocol {
                Protocol::Esp => sa.iv_for(sequence, &mut |bytes| ivs.fill(bytes)),
                Protocol::Ah => Iv::default(),
            };
            Ok((sequence, iv))
        };
        for number in 0..passage.cut.count() {
            let wanted = Wanted {
                item: passage.item.clone(),
                in_fragments: passage.in_fragments,
                cut: passage.cut,
                number,
                whole: road.outer.written > 0,
            };
            match batch.layers.add(self.snapshot, hops, wanted, &mut grant) {
                Ok(finished) => {
                    let place = Place::Layered(finished.buffer);
                    batch.lay(road.outer, place, finished.range);
                    batch.tally.bytes += passage.cut.packet_len(number) as u64;
                }
                Err(Refusal { sa, reason }) => {
                    self.snapshot.sa(sa).state.count_drop(reason);
                    batch.tally.drop(reason, 1);
                }
            }
        }
    }

    /// Stamps packets of equal length; returns how many were granted a number. The rest is counted as dropped.
    fn grant(
        &mut self,
        batch: &mut OutboundBatch,
        passage: &Passage<'a>,
        numbers: Range<u32>,
    ) -> u32 {
        let (sa, mut next) = (passage.sa, numbers.start);
        let len = passage.cut.packet_len(next);
        while next < numbers.end {
            let wanted = numbers.end - next;
            match self.reserve(passage.road.index, sa, wanted, len) {
                Ok((first, granted)) => {
                    for step in 0..granted {
                        let sequence = SequenceNumber(first.0 + u64::from(step));
                        self.stamp(batch, passage, sequence, len);
                    }
                    next += granted;
                }
                Err(reason) => {
                    batch.tally.drop(reason, wanted.into());
                    (0..wanted).for_each(|_| sa.state.count_drop(reason));
                    break;
                }
            }
        }
        next - numbers.start
    }

    fn reserve(
        &mut self,
        index: SaIndex,
        sa: &'a Sa,
        wanted: u32,
        len: usize,
    ) -> Result<(SequenceNumber, u32), Dropped> {
        let held = match self.held.take() {
            Some((of, held)) if of == index => held,
            other => {
                drop(other);
                sa.state.hold()
            }
        };
        let (_, held) = self.held.insert((index, held));
        held.reserve(&sa.config, wanted, len as u64, self.now)
    }

    fn stamp(
        &mut self,
        batch: &mut OutboundBatch,
        passage: &Passage<'a>,
        sequence: SequenceNumber,
        len: usize,
    ) {
        let iv = passage
            .sa
            .iv_for(sequence, &mut |bytes| self.ivs.fill(bytes));
        let road = &passage.road;
        let plaintext_len = len - road.outside;
        let stamp = Stamp::new(passage.sa, sequence, iv, road.next_header, plaintext_len);
        let range = batch.sealed_len..batch.sealed_len + stamp.packet_len();
        batch.sealed_len = range.end;
        batch.lay(road.outer, Place::Sealed, range);
        batch.heads_len += passage.cut.head_len();
        batch.tally.bytes += len as u64;
        batch.stamps.push(stamp);
    }
}

impl OutboundBatch {
    /// Adds a protected packet to the parcel before, if it lies behind it, is equal and for the same peer.
    fn lay(&mut self, outer: Outer, place: Place, range: Range<usize>) {
        match self.parcels.last_mut() {
            Some(parcel) if parcel.takes(&outer, place, &range) => {
                parcel.range.end = range.end;
                parcel.packets += 1;
            }
            _ => self.parcels.push(Parcel {
                outer,
                place,
                stride: range.len(),
                range,
                packets: 1,
            }),
        }
    }
}

impl Parcel {
    fn takes(&self, outer: &Outer, place: Place, range: &Range<usize>) -> bool {
        let is_even = (self.range.end - self.range.start).is_multiple_of(self.stride);
        let follows = self.place == place && self.range.end == range.start;
        is_even && follows && range.len() <= self.stride && self.outer == *outer
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
pub(super) fn is_tunnel(config: &SaConfig, outline: &Outline) -> bool {
    let ends = (config.source, config.id.destination);
    match config.mode {
        Mode::Tunnel => true,
        Mode::Transport => false,
        Mode::Any => ends != (outline.source, outline.destination),
    }
}

fn state_of_checksum(offload: Offload) -> TcpChecksum {
    match (offload.checksum, offload.segmentation) {
        (None, Segmentation::None) => TcpChecksum::Finished,
        _ => TcpChecksum::Unfinished,
    }
}
