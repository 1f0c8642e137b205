//! Packets that go through several associations, or whose headers are written here: AH, bundles, options.
//!
//! All layers of a packet are numbered and laid out in order, before any is transformed. Then each *stage* is one call of
//! the ciphers for many packets: ESP goes from one buffer into the other, and the AH around it is put in
//! front of it where it lies.
//!
//! ```text
//!   stage 0   super-packet ──seal──► buffer 0   [ room │ AH │ IP │ ESP ............ ]   ◄─sign── one round for each AH
//!   stage 1   buffer 0 ─────seal──► buffer 1   [ room │ IP │ ESP ................. ]
//!   stage 2   buffer 1 ─────seal──► buffer 0   …
//! ```
//!
//! Memory is used again from batch to batch.

mod layer;

use super::hops::Hop;
use crate::buffers::{RangeSplitter, prefix_mut, recycle};
use crate::train::segments::Segments;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::sa::{Sa, SequenceNumber};
use ipsec::{Dropped, ah};
use layer::{Layer, Stamp};
use multibuffer::{Iv, SealJob, SignJob};
use std::ops::Range;

/// The most bytes of an IP packet.
const MAX_PACKET_LEN: usize = 65_535;

/// The layered packets of a batch.
#[derive(Default)]
pub(super) struct Layers {
    packets: Vec<Packet>,
    layers: Vec<Layer>,
    used: [usize; 2],
    heads_len: usize,
    covered_len: usize,
    buffers: [Vec<u8>; 2],
    heads: Vec<u8>,
    covered: Vec<u8>,
    seals: Vec<SealJob<'static>>,
    signs: Vec<SignJob<'static>>,
}

/// One packet as it comes from its item.
struct Packet {
    item: Range<usize>,
    in_fragments: bool,
    segments: Segments,
    number: u32,
    head: Range<usize>,
    layers: Range<usize>,
}

/// One packet that is to be wrapped.
#[derive(Clone)]
pub(super) struct Wanted {
    pub item: Range<usize>,
    pub in_fragments: bool,
    pub segments: Segments,
    pub number: u32,
    /// Whether the last layer's headers are written here.
    pub whole: bool,
}

/// Where a finished packet lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub buffer: usize,
    pub range: Range<usize>,
}

/// Takes what one layer needs from its association: sequence number and IV, or why there is none.
pub(super) type Grant<'a> = dyn FnMut(&Sa, u64) -> Result<(SequenceNumber, Iv), Dropped> + 'a;

impl Layers {
    pub fn clear(&mut self) {
        self.packets.clear();
        self.layers.clear();
        self.used = [0; 2];
        self.heads_len = 0;
        self.covered_len = 0;
    }

    pub fn buffer(&self, place: usize) -> &[u8] {
        &self.buffers[place]
    }

    /// Numbers and lays out all layers of one packet, innermost first. If one is refused nothing is left of the packet
    /// but the numbers that it took before.
    pub fn add(
        &mut self,
        snapshot: &Snapshot,
        hops: &[Hop],
        wanted: Wanted,
        grant: &mut Grant<'_>,
    ) -> Result<Finished, Refusal> {
        let start = self.layers.len();
        match self.number(snapshot, hops, &wanted, grant) {
            Ok(()) => Ok(self.place(start, wanted)),
            Err(refusal) => {
                self.layers.truncate(start);
                Err(refusal)
            }
        }
    }

    fn number(
        &mut self,
        snapshot: &Snapshot,
        hops: &[Hop],
        wanted: &Wanted,
        grant: &mut Grant<'_>,
    ) -> Result<(), Refusal> {
        let mut len = wanted.segments.packet_len(wanted.number);
        let mut stage = 0;
        for (place, hop) in hops.iter().enumerate() {
            let sa = snapshot.sa(hop.sa);
            let refused = |reason| Refusal { sa: hop.sa, reason };
            let (sequence, iv) = grant(sa, len as u64).map_err(refused)?;
            let inside = len - hop.wrap.outside();
            let (stamp, body) = Stamp::new(sa, sequence, iv, hop.wrap.next_header(), inside);
            stage += usize::from(place > 0 && matches!(stamp, Stamp::Esp(_)));
            let headers = hop.wrap.headers_len(&sa.config);
            len = headers + body;
            if len > MAX_PACKET_LEN {
                return Err(refused(Dropped::TooBig));
            }
            let is_last = place + 1 == hops.len();
            self.layers.push(Layer {
                sa: hop.sa,
                wrap: hop.wrap,
                stamp,
                identification: ah::identification(sequence),
                stage,
                headers: if is_last && !wanted.whole { 0 } else { headers },
                body: 0..body,
                covered: 0..0,
            });
        }
        Ok(())
    }

    /// Gives every layer its place: those of one stage end together, each in front of the one inside.
    fn place(&mut self, start: usize, wanted: Wanted) -> Finished {
        let mut end = self.layers.len();
        let mut finished = None;
        while end > start {
            let stage = self.layers[end - 1].stage;
            let outermost = &self.layers[end - 1];
            let used = &mut self.used[stage % 2];
            let region = *used..*used + outermost.headers + outermost.body.len();
            *used = region.end;
            finished.get_or_insert(Finished {
                buffer: stage % 2,
                range: region.clone(),
            });
            while end > start && self.layers[end - 1].stage == stage {
                end -= 1;
                let layer = &mut self.layers[end];
                layer.body = region.end - layer.body.len()..region.end;
                if let Stamp::Ah(stamp) = &layer.stamp {
                    let len = layer.headers + stamp.header_len();
                    layer.covered = self.covered_len..self.covered_len + len;
                    self.covered_len += len;
                }
            }
        }
        let head = self.heads_len..self.heads_len + wanted.segments.head_len();
        self.heads_len = head.end;
        self.packets.push(Packet {
            item: wanted.item,
            in_fragments: wanted.in_fragments,
            segments: wanted.segments,
            number: wanted.number,
            head,
            layers: start..self.layers.len(),
        });
        finished.unwrap_or(Finished {
            buffer: 0,
            range: 0..0,
        })
    }

    /// Transforms all packets; `intake` and `fragments` hold their items.
    pub fn transform(&mut self, snapshot: &Snapshot, intake: &[u8], fragments: &[u8]) {
        for (buffer, used) in self.buffers.iter_mut().zip(self.used) {
            prefix_mut(buffer, used);
        }
        prefix_mut(&mut self.heads, self.heads_len);
        prefix_mut(&mut self.covered, self.covered_len);
        let at_once = self.at_once(snapshot);
        for start in (0..self.packets.len()).step_by(at_once) {
            let chunk = start..(start + at_once).min(self.packets.len());
            let stages = self.packets[chunk.clone()]
                .iter()
                .map(|packet| self.layers[packet.layers.end - 1].stage + 1);
            for stage in 0..stages.max().unwrap_or(0) {
                self.seal(snapshot, intake, fragments, chunk.clone(), stage);
                let mut round = 0;
                while self.sign(snapshot, chunk.clone(), stage, round) {
                    round += 1;
                }
            }
        }
    }

    /// Packets that go through all their stages together, so that they stay in the cache from stage to stage: as many as
    /// their ciphers want.
    pub fn at_once(&self, snapshot: &Snapshot) -> usize {
        let wanted = self
            .layers
            .iter()
            .map(|layer| snapshot.sa(layer.sa).key.jobs_at_once());
        wanted.max().unwrap_or(1)
    }

    /// What opens a stage: ESP, or at the very start the packet itself, when AH comes first.
    fn seal(
        &mut self,
        snapshot: &Snapshot,
        intake: &[u8],
        fragments: &[u8],
        chunk: Range<usize>,
        stage: usize,
    ) {
        let mut jobs = recycle(std::mem::take(&mut self.seals));
        let [even, odd] = &mut self.buffers;
        let (from, to) = match stage % 2 {
            0 => (&*odd, even),
            _ => (&*even, odd),
        };
        let mut to = RangeSplitter::new(to);
        let mut heads = RangeSplitter::new(&mut self.heads);
        for packet in &self.packets[chunk] {
            let layers = &self.layers[packet.layers.clone()];
            let Some(place) = layers.iter().position(|layer| layer.stage == stage) else {
                continue;
            };
            let layer = &layers[place];
            let (head, payload) = match place.checked_sub(1) {
                Some(inside) => (&from[layers[inside].packet()], &[][..]),
                None => {
                    let items = if packet.in_fragments {
                        fragments
                    } else {
                        intake
                    };
                    packet.parts(&items[packet.item.clone()], heads.take(packet.head.clone()))
                }
            };
            match &layer.stamp {
                Stamp::Esp(stamp) => {
                    let (headers, body) = to.take(layer.packet()).split_at_mut(layer.headers);
                    let sa = snapshot.sa(layer.sa);
                    layer.write_headers(sa, if head.is_empty() { payload } else { head }, headers);
                    let (head, payload) = inside(layer.wrap.outside(), head, payload);
                    jobs.push(stamp.job(sa, head, payload, body));
                }
                Stamp::Ah(_) => {
                    let len = head.len() + payload.len();
                    let room = to.take(layer.body.end - len..layer.body.end);
                    let (head_room, payload_room) = room.split_at_mut(head.len());
                    head_room.copy_from_slice(head);
                    payload_room.copy_from_slice(payload);
                }
            }
        }
        multibuffer::seal(&mut jobs);
        self.seals = recycle(jobs);
    }

    /// The AH number `round` of a stage; says whether any packet had one.
    fn sign(
        &mut self,
        snapshot: &Snapshot,
        chunk: Range<usize>,
        stage: usize,
        round: usize,
    ) -> bool {
        let mut jobs = recycle(std::mem::take(&mut self.signs));
        let mut to = RangeSplitter::new(&mut self.buffers[stage % 2]);
        let mut covered = RangeSplitter::new(&mut self.covered);
        for packet in &self.packets[chunk] {
            let layers = &self.layers[packet.layers.clone()];
            let of_stage = layers.iter().filter(|layer| layer.stage == stage);
            let mut signing = of_stage.filter_map(|layer| match &layer.stamp {
                Stamp::Ah(stamp) => Some((layer, stamp)),
                Stamp::Esp(_) => None,
            });
            let Some((layer, stamp)) = signing.nth(round) else {
                continue;
            };
            let sa = snapshot.sa(layer.sa);
            let whole = to.take(layer.packet());
            let front = layer.headers + stamp.header_len();
            // The headers of the packet inside move in front of AH.
            let outside = layer.wrap.outside();
            let inside_at = front - outside;
            whole.copy_within(inside_at..inside_at + outside, 0);
            let total_len = whole.len();
            layer.finish_headers(&mut whole[..layer.headers], total_len);
            stamp.write(&mut whole[layer.headers..front]);
            let (front, payload) = whole.split_at_mut(front);
            let covered = covered.take(layer.covered.clone());
            // INVARIANT: headers that cannot be covered were refused when the hops were laid.
            let told = ah::cover(&sa.config, front, stamp.header_len(), covered);
            debug_assert_eq!(told, Ok(()));
            let icv = &mut front[layer.headers + ipsec::wire::ah::FIXED_LEN..];
            jobs.push(stamp.job(sa, covered, payload, icv));
        }
        multibuffer::sign(&mut jobs);
        let any = !jobs.is_empty();
        self.signs = recycle(jobs);
        any
    }
}

/// Why a packet does not go through all its layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub sa: SaIndex,
    pub reason: Dropped,
}

impl Packet {
    /// Writes the head; returns it with the payload behind it.
    fn parts<'a>(&self, item: &'a [u8], head: &'a mut [u8]) -> (&'a [u8], &'a [u8]) {
        self.segments.write_head(item, self.number, head);
        (head, &item[self.segments.payload(self.number)])
    }
}

/// What of head and payload is protected.
pub(super) fn inside<'a>(
    outside: usize,
    head: &'a [u8],
    payload: &'a [u8],
) -> (&'a [u8], &'a [u8]) {
    match head.get(outside..) {
        Some(head) => (head, payload),
        None => (&[], payload.get(outside - head.len()..).unwrap_or_default()),
    }
}
