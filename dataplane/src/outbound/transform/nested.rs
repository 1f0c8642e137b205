//! Nested packets, stage after stage: ESP from one buffer into the other, AH in front of it where it lies.

use super::headers::protected_part;
use crate::buffers::{RangeSplitter, prefix_mut, recycle};
use crate::outbound::nested::{LayerHeader, NestedPacket, NestedPackets, PacketLayer};
use ipsec::ah;
use ipsec::database::Snapshot;
use multibuffer::SealJob;
use std::ops::Range;

/// Transforms all packets; `intake` and `made` hold their items.
pub(super) fn transform(
    nested: &mut NestedPackets,
    snapshot: &Snapshot,
    intake: &[u8],
    made: &[u8],
) {
    for (buffer, used) in nested.buffers.iter_mut().zip(nested.used) {
        prefix_mut(buffer, used);
    }
    prefix_mut(&mut nested.heads, nested.heads_len);
    prefix_mut(&mut nested.covered, nested.covered_len);
    let at_once = nested.jobs_at_once(snapshot);
    for start in (0..nested.packets.len()).step_by(at_once) {
        let chunk = start..(start + at_once).min(nested.packets.len());
        let stages = nested.packets[chunk.clone()]
            .iter()
            .map(|packet| nested.layers[packet.layers.end - 1].stage + 1);
        for stage in 0..stages.max().unwrap_or(0) {
            nested.seal(snapshot, intake, made, chunk.clone(), stage);
            let mut nth = 0;
            while nested.sign(snapshot, chunk.clone(), stage, nth) {
                nth += 1;
            }
        }
    }
}

impl NestedPackets {
    /// The first layer of a stage: ESP; or, in stage 0, the packet itself where AH comes first.
    fn seal(
        &mut self,
        snapshot: &Snapshot,
        intake: &[u8],
        made: &[u8],
        chunk: Range<usize>,
        stage: usize,
    ) {
        let mut jobs = recycle(std::mem::take(&mut self.seal_jobs));
        let [even, odd] = &mut self.buffers;
        let (from, to) = match stage % 2 {
            0 => (&*odd, even),
            _ => (&*even, odd),
        };
        let mut to = RangeSplitter::new(to);
        let mut heads = RangeSplitter::new(&mut self.heads);
        for packet in &self.packets[chunk] {
            let layers = &self.layers[packet.layers.clone()];
            let Some(index) = layers.iter().position(|layer| layer.stage == stage) else {
                continue;
            };
            let (head, payload) = match index.checked_sub(1) {
                Some(inside) => (&from[layers[inside].packet()], &[][..]),
                None => {
                    let items = if packet.item.is_made { made } else { intake };
                    let head = heads.take(packet.head.clone());
                    packet.write_head(&items[packet.item.range.clone()], head)
                }
            };
            jobs.extend(layers[index].seal(snapshot, head, payload, &mut to));
        }
        multibuffer::seal(&mut jobs);
        self.seal_jobs = recycle(jobs);
    }

    /// The `nth` AH of a stage in every packet; returns whether any packet had one.
    fn sign(&mut self, snapshot: &Snapshot, chunk: Range<usize>, stage: usize, nth: usize) -> bool {
        let mut jobs = recycle(std::mem::take(&mut self.sign_jobs));
        let mut to = RangeSplitter::new(&mut self.buffers[stage % 2]);
        let mut covered = RangeSplitter::new(&mut self.covered);
        for packet in &self.packets[chunk] {
            let layers = &self.layers[packet.layers.clone()];
            let of_stage = layers.iter().filter(|layer| layer.stage == stage);
            let mut ah_layers = of_stage.filter_map(|layer| match &layer.header {
                LayerHeader::Ah(header) => Some((layer, header)),
                LayerHeader::Esp(_) => None,
            });
            let Some((layer, header)) = ah_layers.nth(nth) else {
                continue;
            };
            let sa = snapshot.sa(layer.sa);
            let whole = to.take(layer.packet());
            let front = layer.headers + header.header_len();
            // The headers of the packet inside move in front of AH.
            let outside = layer.mode.outside();
            let inside_at = front - outside;
            whole.copy_within(inside_at..inside_at + outside, 0);
            let total_len = whole.len();
            layer.finish_headers(&mut whole[..layer.headers], total_len);
            header.write(&mut whole[layer.headers..front]);
            let (front, payload) = whole.split_at_mut(front);
            let covered = covered.take(layer.covered.clone());
            // INVARIANT: headers that the ICV cannot cover were refused when the SA chain was built.
            let result = ah::icv_input(&sa.config, front, header.header_len(), covered);
            debug_assert_eq!(result, Ok(()));
            let data = &mut front[layer.headers + ipsec::wire::ah::FIXED_LEN..];
            jobs.push(header.job(sa, covered, payload, data));
        }
        multibuffer::sign(&mut jobs);
        let any = !jobs.is_empty();
        self.sign_jobs = recycle(jobs);
        any
    }
}

impl NestedPacket {
    /// Writes the head; returns it with the payload behind it.
    fn write_head<'a>(&self, item: &'a [u8], head: &'a mut [u8]) -> (&'a [u8], &'a [u8]) {
        let segments = &self.item.segments;
        segments.write_head(item, self.number, head);
        (head, &item[segments.payload(self.number)])
    }
}

impl PacketLayer {
    /// The job that encrypts a packet into its place; none for AH, where the packet is copied there.
    fn seal<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        head: &'a [u8],
        payload: &'a [u8],
        to: &mut RangeSplitter<'a>,
    ) -> Option<SealJob<'a>> {
        match &self.header {
            LayerHeader::Esp(header) => {
                let (headers, body) = to.take(self.packet()).split_at_mut(self.headers);
                let sa = snapshot.sa(self.sa);
                self.write_headers(sa, if head.is_empty() { payload } else { head }, headers);
                let (head, payload) = protected_part(self.mode.outside(), head, payload);
                Some(header.job(sa, head, payload, body))
            }
            LayerHeader::Ah(_) => {
                let len = head.len() + payload.len();
                let room = to.take(self.body.end - len..self.body.end);
                let (head_room, payload_room) = room.split_at_mut(head.len());
                head_room.copy_from_slice(head);
                payload_room.copy_from_slice(payload);
                None
            }
        }
    }
}
