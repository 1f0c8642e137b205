//! The first step outbound, in order: what becomes of each packet, decided before a byte of payload is touched.
//!
//! ```text
//!   item ──► road ──► fits? ──► numbers ──► tickets, parcels
//!             │         └─ cut inside ──► pieces ──► numbers
//!             └─ a fragment for transport mode ──► pieces ──► numbers, once whole
//!   numbers ──► packing, where packets share payloads
//! ```

mod numbers;
mod packing;
mod pieces;
mod road;

pub(super) use packing::Packs;
pub(super) use road::{RoadNumber, Roads, is_tunnel};

use self::road::{Last, Road};
use super::OutboundBatch;
use super::batch::Refused;
use super::hops::Hop;
use crate::io::ReceiveBuffer;
use crate::iv::IvSource;
use crate::notice::Notice;
use crate::path_mtu::PathMtus;
use crate::syn;
use crate::train::segments::Segments;
use crate::train::{Offload, Segmentation};
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot, TOGETHER};
use ipsec::fragment::Reassembler;
use ipsec::packet::{self, FragmentKind, Outline};
use ipsec::pmtu::{self, Fit, TcpChecksum};
use ipsec::sa::{Held, Sa};
use std::ops::Range;

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

/// One item on its road.
struct Passage<'a> {
    item: Range<usize>,
    /// Whether the item lies among the fragments made here instead of in the intake.
    in_fragments: bool,
    segments: Segments,
    road: RoadNumber,
    sa: &'a Sa,
}

/// What an item is, and its road.
struct Met {
    segments: Segments,
    is_syn: bool,
    road: RoadNumber,
}

impl<'a> Planner<'a> {
    /// Plans all items of `batch`.
    pub fn plan(&mut self, batch: &mut OutboundBatch) {
        let given_up = self.partial.given_up();
        for place in 0..batch.intake.items.len() {
            if place % TOGETHER == 0 {
                self.fetch(&batch.intake, place);
            }
            let (range, offload) = batch.intake.items[place].clone();
            let before = batch.counts.arrived;
            if let Err(reason) = self.admit(batch, range, offload) {
                // Whatever was counted as arrived and not granted is dropped; at least the item itself.
                batch.counts.arrived = batch.counts.arrived.max(before + 1);
                batch.counts.drop(reason, batch.counts.arrived - before);
            }
        }
        let given_up = self.partial.given_up() - given_up;
        batch.counts.miss(Dropped::Incomplete, given_up);
        self.finish_packs(batch);
    }

    /// Asks for all that the items from `place` on will need, so that they wait for memory together.
    fn fetch(&self, intake: &ReceiveBuffer<Offload>, place: usize) {
        if self.interface == 0 {
            let items = intake.items[place..].iter();
            let hosts = items.filter_map(|(range, _)| packet::hosts(&intake.bytes[range.clone()]));
            self.snapshot.fetch_ways_out(hosts);
        }
    }

    fn admit(
        &mut self,
        batch: &mut OutboundBatch,
        item: Range<usize>,
        offload: Offload,
    ) -> Result<(), Dropped> {
        let packet = &batch.intake.bytes[item.clone()];
        let met = match self.recognize(packet) {
            Some(last) => {
                let segments = Segments::plan(packet, &last.outline, offload)?;
                batch.counts.arrived += u64::from(segments.count());
                Met {
                    segments,
                    is_syn: syn::is_syn(packet, &last.outline),
                    road: last.road,
                }
            }
            None => match self.meet(batch, item.clone(), offload)? {
                Some(met) => met,
                None => return self.join(batch, item),
            },
        };
        let road = &batch.roads[met.road];
        if met.is_syn {
            let packet = &mut batch.intake.bytes[item.clone()];
            syn::clamp(packet, road.inner_mtu, state_of_checksum(offload));
        }
        let passage = Passage {
            item,
            in_fragments: false,
            segments: met.segments,
            road: met.road,
            sa: self.snapshot.sa(road.index),
        };
        self.fit(batch, passage)
    }

    /// An item of another flow than the one before; none if it must be joined with others first.
    fn meet(
        &mut self,
        batch: &mut OutboundBatch,
        item: Range<usize>,
        offload: Offload,
    ) -> Result<Option<Met>, Dropped> {
        let packet = &batch.intake.bytes[item];
        let outline = Outline::read(packet)?;
        let segments = Segments::plan(packet, &outline, offload)?;
        batch.counts.arrived += u64::from(segments.count());
        if outline.fragment != FragmentKind::Whole {
            self.held = None;
            if !self.is_for_tunnel(&outline)? {
                return Ok(None);
            }
        }
        Ok(Some(Met {
            segments,
            is_syn: syn::is_syn(packet, &outline),
            road: self.road(&mut batch.roads, packet, &outline)?,
        }))
    }

    /// RFC 4301 8.2: what is too big for the path is cut before it is protected, or refused.
    fn fit(&mut self, batch: &mut OutboundBatch, passage: Passage<'a>) -> Result<(), Dropped> {
        let road = &batch.roads[passage.road];
        if passage.segments.packet_len(0) > road.inner_mtu {
            return self.shrink(batch, passage);
        }
        self.number(batch, passage);
        Ok(())
    }

    fn shrink(&mut self, batch: &mut OutboundBatch, passage: Passage<'a>) -> Result<(), Dropped> {
        let outline = Outline {
            total_len: passage.segments.packet_len(0),
            ..Outline::read(&batch.intake.bytes[passage.item.clone()])?
        };
        let road = &batch.roads[passage.road];
        match pmtu::judge(&outline, road.inner_mtu) {
            Fit::CutInside if road.outside == 0 => {
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
}

fn state_of_checksum(offload: Offload) -> TcpChecksum {
    match (offload.checksum, offload.segmentation) {
        (None, Segmentation::None) => TcpChecksum::Finished,
        _ => TcpChecksum::Unfinished,
    }
}
