//! Plans one batch under one snapshot at one moment, item by item.
//!
//! ```text
//!   item ──► classify ──► fits its path? ──► assign ──► reservations, bursts
//!                │               └─ fragment first ──► assign, for each fragment
//!                │                                and compress, in front of it, where the policy says so
//!                └─ a fragment for transport mode ──► reassemble ──► assign, once whole
//! ```

use super::aggfrag::{Packers, Sealing};
use super::assign::Assigner;
use super::classify::Classifier;
use super::fragment::{copy_packet, reassemble};
use crate::buffers::append;
use crate::io::ReceiveBuffer;
use crate::outbound::OutboundBatch;
use crate::outbound::batch::TooBig;
use crate::outbound::compression::Compression;
use crate::outbound::item::{ClassifiedItem, EncapPlans, Item, PlanId};
use crate::syn;
use crate::train::segments::Segments;
use crate::train::{Offload, Segmentation};
use ipsec::Dropped;
use ipsec::database::MAX_PREFETCH_PACKETS;
use ipsec::fragment::{Cutter, Reassembler};
use ipsec::packet::{self, FragmentKind, Outline};
use ipsec::pmtu::{self, Fit, TcpChecksum};
use ipsec::sa::Sa;
use std::ops::Range;

/// Plans one batch.
pub(super) struct Planner<'a> {
    pub classifier: Classifier<'a>,
    pub assigner: Assigner<'a>,
    pub reassembler: &'a mut Reassembler,
    pub packers: &'a mut Packers,
    pub compression: &'a mut Option<Compression>,
    pub now: u64,
}

/// What an item is, and its plan.
struct Classification {
    segments: Segments,
    is_syn: bool,
    plan: PlanId,
}

impl<'a> Planner<'a> {
    /// Plans all items of `batch`.
    pub fn plan(&mut self, batch: &mut OutboundBatch) {
        let incomplete = self.reassembler.given_up();
        for index in 0..batch.intake.items.len() {
            if index % MAX_PREFETCH_PACKETS == 0 {
                self.prefetch(&batch.intake, index);
            }
            let (range, offload) = batch.intake.items[index].clone();
            let before = batch.counts.arrived;
            if let Err(reason) = self.plan_item(batch, range, offload) {
                // What was counted as arrived for this item is dropped: the item itself at least.
                batch.counts.arrived = batch.counts.arrived.max(before + 1);
                batch.counts.drop(reason, batch.counts.arrived - before);
            }
        }
        let incomplete = self.reassembler.given_up() - incomplete;
        batch.counts.miss(Dropped::Incomplete, incomplete);
        self.finish_payloads(batch);
    }

    /// Prefetches what the items from `index` on will need, so that they wait for memory together.
    fn prefetch(&self, intake: &ReceiveBuffer<Offload>, index: usize) {
        if self.classifier.interface == 0 {
            let items = intake.items[index..].iter();
            let hosts = items.filter_map(|(range, _)| packet::hosts(&intake.bytes[range.clone()]));
            self.classifier.snapshot.prefetch_outbound(hosts);
        }
    }

    fn plan_item(
        &mut self,
        batch: &mut OutboundBatch,
        range: Range<usize>,
        offload: Offload,
    ) -> Result<(), Dropped> {
        let packet = &batch.intake.bytes[range.clone()];
        let found = match self.classifier.recognize(packet) {
            Some(last) => {
                let segments = Segments::plan(packet, &last.outline, offload)?;
                batch.counts.arrived += u64::from(segments.count());
                Classification {
                    segments,
                    is_syn: syn::is_syn(packet, &last.outline),
                    plan: last.plan,
                }
            }
            None => match self.classify(batch, range.clone(), offload)? {
                Some(found) => found,
                None => return self.reassemble(batch, range),
            },
        };
        let plan = &batch.planned.plans[found.plan];
        if found.is_syn {
            let packet = &mut batch.intake.bytes[range.clone()];
            syn::clamp(packet, plan.inner_mtu, state_of_checksum(offload));
        }
        let classified = ClassifiedItem {
            item: Item {
                range,
                is_made: false,
                segments: found.segments,
            },
            plan: found.plan,
            sa: self.classifier.snapshot.sa(plan.sa),
        };
        if classified.item.segments.packet_len(0) > plan.inner_mtu {
            return self.shrink(batch, classified);
        }
        self.assign(batch, &classified);
        Ok(())
    }

    /// Classifies an item of another flow than the one before; none if it must be reassembled with others first.
    fn classify(
        &mut self,
        batch: &mut OutboundBatch,
        range: Range<usize>,
        offload: Offload,
    ) -> Result<Option<Classification>, Dropped> {
        let packet = &batch.intake.bytes[range];
        let outline = Outline::read(packet)?;
        let segments = Segments::plan(packet, &outline, offload)?;
        batch.counts.arrived += u64::from(segments.count());
        if outline.fragment != FragmentKind::Whole {
            self.assigner.release();
            if !self.classifier.is_for_tunnel(&outline)? {
                return Ok(None);
            }
        }
        Ok(Some(Classification {
            segments,
            is_syn: syn::is_syn(packet, &outline),
            plan: self.plan_for(&mut batch.planned.plans, packet, &outline)?,
        }))
    }

    fn plan_for(
        &mut self,
        plans: &mut EncapPlans,
        packet: &[u8],
        outline: &Outline,
    ) -> Result<PlanId, Dropped> {
        if let Some(plan) = self.classifier.plan_before(outline) {
            return Ok(plan);
        }
        self.assigner.release();
        self.classifier.classify(plans, packet, outline)
    }

    /// RFC 4301 8.2: a packet that is too big for its path is fragmented before it is protected, or refused.
    fn shrink(
        &mut self,
        batch: &mut OutboundBatch,
        classified: ClassifiedItem<'a>,
    ) -> Result<(), Dropped> {
        let outline = Outline {
            total_len: classified.item.segments.packet_len(0),
            ..Outline::read(&batch.intake.bytes[classified.item.range.clone()])?
        };
        let plan = &batch.planned.plans[classified.plan];
        match pmtu::fit(&outline, plan.inner_mtu) {
            Fit::FragmentInner if plan.outside == 0 => {
                self.fragment(batch, &classified);
                Ok(())
            }
            Fit::Fits | Fit::FragmentInner | Fit::FragmentOuter => {
                self.assign(batch, &classified);
                Ok(())
            }
            Fit::TooBig(mtu) => {
                batch.too_big.push(TooBig {
                    item: classified.item.range,
                    reporter: outline.destination,
                    mtu,
                });
                Err(Dropped::TooBig)
            }
        }
    }

    /// Assigns sequence numbers to the packets of an item, or packs them into payloads whose turn comes later.
    #[inline]
    pub(super) fn assign(&mut self, batch: &mut OutboundBatch, classified: &ClassifiedItem<'a>) {
        let plan = &batch.planned.plans[classified.plan];
        if let Some(compression) = plan.compression {
            return self.compress(batch, classified, &compression);
        }
        let (is_aggfrag, has_chain) = (plan.is_aggfrag, !plan.chain.is_empty());
        let (planned, counts) = (&mut batch.planned, &mut batch.counts);
        if is_aggfrag {
            self.pack(batch, classified);
        } else if has_chain {
            let chains = &*self.classifier.chains;
            self.assigner
                .assign_nested(planned, counts, chains, classified);
        } else {
            self.assigner.assign(planned, counts, classified);
        }
    }

    /// Holds a fragment; assigns sequence numbers once the packet is whole.
    fn reassemble(
        &mut self,
        batch: &mut OutboundBatch,
        range: Range<usize>,
    ) -> Result<(), Dropped> {
        let fragment = &batch.intake.bytes[range];
        let Some((whole, outline)) = reassemble(self.reassembler, fragment, self.now)? else {
            // It arrives with the last fragment of its packet.
            batch.counts.arrived -= 1;
            return Ok(());
        };
        let plans = &mut batch.planned.plans;
        let plan = self.plan_for(plans, &whole, &outline)?;
        let plan = self.classifier.allow_fragments(plans, plan);
        let classified = ClassifiedItem {
            item: Item {
                range: append(&mut batch.made, &whole),
                is_made: true,
                segments: Segments::whole(&outline),
            },
            sa: self.classifier.snapshot.sa(plans[plan].sa),
            plan,
        };
        self.assign(batch, &classified);
        Ok(())
    }

    /// Fragments each packet of the item; each fragment is then protected by itself.
    fn fragment(&mut self, batch: &mut OutboundBatch, classified: &ClassifiedItem<'a>) {
        let mut whole = Vec::new();
        for number in 0..classified.item.segments.count() {
            let bytes = &batch.intake.bytes[classified.item.range.clone()];
            copy_packet(&classified.item.segments, bytes, number, &mut whole);
            match Cutter::new(&whole, batch.planned.plans[classified.plan].inner_mtu, 0) {
                Ok(cutter) => self.assign_fragments(batch, classified, cutter),
                Err(reason) => batch.counts.drop(reason, 1),
            }
        }
    }

    /// The fragments count as arrived in place of their packet.
    fn assign_fragments(
        &mut self,
        batch: &mut OutboundBatch,
        classified: &ClassifiedItem<'a>,
        mut cutter: Cutter<'_>,
    ) {
        batch.counts.arrived -= 1;
        while let Some(len) = cutter.next_into(&mut batch.made) {
            batch.counts.arrived += 1;
            let range = batch.made.len() - len..batch.made.len();
            match Outline::read(&batch.made[range.clone()]) {
                Ok(outline) => {
                    let fragment = ClassifiedItem {
                        item: Item {
                            range,
                            is_made: true,
                            segments: Segments::whole(&outline),
                        },
                        ..*classified
                    };
                    self.assign(batch, &fragment);
                }
                Err(reason) => batch.counts.drop(reason, 1),
            }
        }
    }

    /// Packs every packet of the item into AGGFRAG payloads.
    fn pack(&mut self, batch: &mut OutboundBatch, classified: &ClassifiedItem<'a>) {
        let room = self.payload_room(classified.sa);
        let mut sealing = Sealing {
            assigner: &mut self.assigner,
            planned: &mut batch.planned,
            counts: &mut batch.counts,
            payloads: &mut batch.made,
        };
        self.packers
            .pack(&batch.intake.bytes, classified, room, &mut sealing);
    }

    /// At the end of the batch: without a rate no payload waits for the next batch, and with a rate what is due leaves.
    fn finish_payloads(&mut self, batch: &mut OutboundBatch) {
        let mut sealing = Sealing {
            assigner: &mut self.assigner,
            planned: &mut batch.planned,
            counts: &mut batch.counts,
            payloads: &mut batch.made,
        };
        self.packers.flush(&mut sealing);
        let orphans = self.packers.take_orphans();
        batch.counts.miss(Dropped::NoSa, orphans);
        for index in 0..self.packers.paced_count() {
            let Some(due) = self.packers.due_sa(index, self.classifier.snapshot) else {
                continue;
            };
            let room = self.payload_room(self.classifier.snapshot.sa(due.sa));
            let mut sealing = Sealing {
                assigner: &mut self.assigner,
                planned: &mut batch.planned,
                counts: &mut batch.counts,
                payloads: &mut batch.made,
            };
            self.packers.send_due(index, &due, room, &mut sealing);
        }
    }

    fn payload_room(&mut self, sa: &Sa) -> usize {
        // The path MTU may take long.
        self.assigner.release();
        self.classifier.payload_room(sa)
    }
}

fn state_of_checksum(offload: Offload) -> TcpChecksum {
    match (offload.checksum, offload.segmentation) {
        (None, Segmentation::None) => TcpChecksum::Finished,
        _ => TcpChecksum::Unfinished,
    }
}
