//! The first step outbound, in order: what becomes of each packet, decided before a byte of payload is touched.
//!
//! ```text
//!   item ──► road ──► fits? ──► numbers ──► stamps, parcels
//!             │         └─ cut inside ──► pieces ──► numbers
//!             └─ a fragment for transport mode ──► pieces ──► numbers, once whole
//!   numbers ──► packing, where packets share payloads
//! ```

mod numbers;
mod packing;
mod pieces;
mod road;

pub(super) use packing::Packs;
pub(super) use road::is_tunnel;

use self::road::{Last, Road};
use super::OutboundBatch;
use super::batch::Refused;
use super::hops::Hop;
use crate::iv::IvSource;
use crate::notice::Notice;
use crate::path::PathMtus;
use crate::syn;
use crate::train::cut::Cut;
use crate::train::{Offload, Segmentation};
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::fragment::Reassembler;
use ipsec::packet::{FragmentKind, Outline};
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
}

fn state_of_checksum(offload: Offload) -> TcpChecksum {
    match (offload.checksum, offload.segmentation) {
        (None, Segmentation::None) => TcpChecksum::Finished,
        _ => TcpChecksum::Unfinished,
    }
}
