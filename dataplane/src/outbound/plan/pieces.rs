//! Packets that come in pieces, and packets that must go in pieces. Rare, so all of this may allocate.

use super::{OutboundBatch, Passage, Planner};
use crate::outbound::hops;
use crate::train::segments::Segments;
use ipsec::Dropped;
use ipsec::fragment::{Cutter, Offered};
use ipsec::packet::Outline;
use ipsec::wire::ip::v4::allow_fragments;
use std::ops::Range;

impl<'a> Planner<'a> {
    /// RFC 4303 3.1.1, 3.3.4: transport mode is for whole packets. What the kernel has cut for the device is joined
    /// first; the protected packet is cut again on its way out.
    pub(super) fn join(
        &mut self,
        batch: &mut OutboundBatch,
        item: Range<usize>,
    ) -> Result<(), Dropped> {
        let whole = match self.partial.offer(&batch.intake.bytes[item], self.now)? {
            Offered::NotFragment => return Err(Dropped::Malformed),
            Offered::Held => {
                // It arrives with the last of its packet.
                batch.counts.arrived -= 1;
                return Ok(());
            }
            Offered::Joined(whole) => whole,
        };
        let mut whole = whole;
        // Whoever cut a packet wants it to arrive in pieces.
        allow_fragments(&mut whole);
        let outline = Outline::read(&whole)?;
        let road = self.road(&mut batch.roads, &whole, &outline)?;
        let mut road = batch.roads[road];
        road.outer.dont_fragment = false;
        road.hops = hops::allowing_fragments(self.hops, road.hops);
        let start = batch.fragments.len();
        batch.fragments.extend_from_slice(&whole);
        let passage = Passage {
            item: start..batch.fragments.len(),
            in_fragments: true,
            segments: Segments::whole(&outline),
            sa: self.snapshot.sa(road.index),
            road: batch.roads.push(road),
        };
        self.number(batch, passage);
        Ok(())
    }

    /// Cuts each packet of the item into fragments, each of which then goes its own way.
    pub(super) fn fragment(&mut self, batch: &mut OutboundBatch, passage: &Passage<'a>) {
        let mut whole = Vec::new();
        for number in 0..passage.segments.count() {
            let item = &batch.intake.bytes[passage.item.clone()];
            whole.clear();
            whole.resize(passage.segments.head_len(), 0);
            passage.segments.write_head(item, number, &mut whole);
            whole.extend_from_slice(&item[passage.segments.payload(number)]);
            match Cutter::new(&whole, batch.roads[passage.road].inner_mtu, 0) {
                Ok(cutter) => self.number_fragments(batch, passage, cutter),
                Err(reason) => batch.counts.drop(reason, 1),
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
        batch.counts.arrived -= 1;
        while let Some(len) = cutter.next_into(&mut batch.fragments) {
            batch.counts.arrived += 1;
            let item = batch.fragments.len() - len..batch.fragments.len();
            match Outline::read(&batch.fragments[item.clone()]) {
                Ok(outline) => {
                    let fragment = Passage {
                        item,
                        in_fragments: true,
                        segments: Segments::whole(&outline),
                        ..*passage
                    };
                    self.number(batch, fragment);
                }
                Err(reason) => batch.counts.drop(reason, 1),
            }
        }
    }
}
