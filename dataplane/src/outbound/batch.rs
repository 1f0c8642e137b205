//! What moves outbound: the packets as they were read, what was planned for each, and where the sealed ones will lie.

use super::layers::{Layers, inside};
use super::plan::{RoadNumber, Roads};
use crate::buffers::{BatchSize, prefix_mut, recycle};
use crate::counters::PacketCounts;
use crate::io::{MAX_ITEM_BYTES, ReceiveBuffer};
use crate::pipeline::lane::Transform;
use crate::train::Offload;
use crate::train::segments::Segments;
use ipsec::database::Snapshot;
use ipsec::esp::Stamp;
use ipsec::sa::{Sa, SequenceNumber};
use multibuffer::{Iv, SealJob};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// Jobs per call of most ciphers. MEASURED: enough for every multi-buffer kernel but one, and heads, payloads and output
/// of so many packets stay in a 512 KiB L2 cache between checksum and cipher. Where a key wants more, that call is so slow
/// that caches do not matter.
const JOBS_PER_CALL: usize = 64;

/// Packets that a batch makes room for when more waits than it holds and its cipher takes as long for a few packets as for
/// hundreds. A little more would cost another pass for a few.
const LARGE_BATCH_PACKETS: usize = 256;
/// The bytes it makes room for then, at least: so many packets of full size on an Ethernet.
const MIN_LARGE_BATCH_BYTES: usize = LARGE_BATCH_PACKETS * 1440;
/// And at most: so many jumbo frames. MEASURED: of datagrams of 8800 bytes 3DES carries 0.85 Gbit/s so, and 0.4 to 0.5 with
/// the room of an Ethernet's, where most of each pass is idle.
const MAX_LARGE_BATCH_BYTES: usize = LARGE_BATCH_PACKETS * 9216;

/// A batch of outbound packets. Its memory is used again and again.
pub struct OutboundBatch {
    pub(super) intake: ReceiveBuffer<Offload>,
    /// The device that all of it was read from.
    pub(super) interface: u32,
    /// Absent while the batch rests in its pool: a snapshot in a pool would keep deleted keys alive.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// Fragments of packets that were too big for their path.
    pub(super) fragments: Vec<u8>,
    pub(super) roads: Roads,
    pub(super) trains: Vec<Train>,
    /// Of all packets of all trains, in order.
    pub(super) tickets: Vec<Ticket>,
    stamps: Vec<Stamp>,
    /// Packets that need more than one ESP header.
    pub(super) layers: Layers,
    pub(super) parcels: Vec<Parcel>,
    /// Packets whose senders are to be told of a smaller MTU.
    pub(super) refused: Vec<Refused>,
    pub(super) counts: PacketCounts,
    pub(super) heads_len: usize,
    pub(super) sealed_len: usize,
    heads: Vec<u8>,
    sealed: Vec<u8>,
    jobs: Vec<SealJob<'static>>,
}

/// One item of the source and what becomes of it.
pub(super) struct Train {
    pub item: Range<usize>,
    /// Whether the item lies in the batch's fragments instead of its intake.
    pub in_fragments: bool,
    pub segments: Segments,
    /// How many of its packets were granted a sequence number.
    pub granted: u32,
    pub road: RoadNumber,
}

/// What a packet took from its association, in order. The rest of its header is left to any thread.
pub(super) struct Ticket {
    pub sequence: SequenceNumber,
    /// Of suites that draw them.
    pub iv: Iv,
    pub plaintext_len: usize,
}

/// Equal packets for one peer, end to end in the sealed bytes; the last may be shorter.
pub(super) struct Parcel {
    pub road: RoadNumber,
    pub place: Place,
    pub range: Range<usize>,
    pub stride: usize,
    pub packets: u64,
}

/// Where the bytes of a parcel lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Among those with one ESP header.
    Sealed,
    /// In this buffer of the layered ones.
    Layered(usize),
}

/// A packet that is too big for its path.
pub(super) struct Refused {
    pub item: Range<usize>,
    /// Who tells the sender: the host it wanted to reach. A message from an address of our own would come in on a
    /// device behind which that address does not live, and the kernel would not believe it.
    pub reporter: IpAddr,
    pub mtu: usize,
}

impl OutboundBatch {
    /// An empty batch with room for what one read of the source brings.
    pub fn new(size: BatchSize) -> Self {
        Self {
            intake: ReceiveBuffer::with_capacity(size.bytes, size.items),
            interface: 0,
            snapshot: None,
            fragments: Vec::new(),
            roads: Roads::default(),
            trains: Vec::with_capacity(size.items),
            tickets: Vec::with_capacity(size.items),
            stamps: Vec::with_capacity(size.items),
            layers: Layers::default(),
            parcels: Vec::with_capacity(size.items),
            refused: Vec::new(),
            counts: PacketCounts::default(),
            heads_len: 0,
            sealed_len: 0,
            heads: Vec::new(),
            sealed: Vec::new(),
            jobs: Vec::with_capacity(JOBS_PER_CALL),
        }
    }

    /// The protected packets of a parcel.
    pub(super) fn bytes_of(&self, parcel: &Parcel) -> &[u8] {
        let buffer = match parcel.place {
            Place::Sealed => &self.sealed[..],
            Place::Layered(buffer) => self.layers.buffer(buffer),
        };
        &buffer[parcel.range.clone()]
    }

    /// Whether more of it at once would take no longer, and there may have been more.
    fn is_too_small(&self, snapshot: &Snapshot) -> bool {
        let is_full = self.intake.free_items() == 0
            || self.intake.bytes.len() - self.intake.used_bytes() < MAX_ITEM_BYTES;
        let of_train = |train: &Train| {
            let sa = snapshot.sa(self.roads[train.road].index);
            sa.key.jobs_at_once()
        };
        let wants_more = |at_once| at_once > JOBS_PER_CALL;
        is_full
            && (self.trains.iter().map(of_train).any(wants_more)
                || wants_more(self.layers.at_once(snapshot)))
    }

    /// For packets as long as those that it holds.
    fn large_size(&self) -> BatchSize {
        let each = self.intake.used_bytes() / self.tickets.len().max(1);
        BatchSize {
            items: LARGE_BATCH_PACKETS,
            bytes: (LARGE_BATCH_PACKETS * each).clamp(MIN_LARGE_BATCH_BYTES, MAX_LARGE_BATCH_BYTES),
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> &PacketCounts {
        &self.counts
    }

    /// Ready for the next read; lets go of the snapshot.
    pub(super) fn clear(&mut self) {
        let snapshot = self.snapshot.take();
        if snapshot.is_some_and(|snapshot| self.is_too_small(&snapshot)) {
            self.intake.grow(self.large_size());
        }
        self.intake.clear();
        self.fragments.clear();
        self.roads.clear();
        self.trains.clear();
        self.tickets.clear();
        self.layers.clear();
        self.parcels.clear();
        self.refused.clear();
        self.counts = PacketCounts::default();
        self.heads_len = 0;
        self.sealed_len = 0;
    }
}

impl Ticket {
    fn stamp(&self, sa: &Sa, next_header: u8) -> Stamp {
        let iv = match sa.draws_ivs() {
            true => self.iv,
            false => sa.iv_of(self.sequence),
        };
        Stamp::new(sa, self.sequence, iv, next_header, self.plaintext_len)
    }
}

impl Transform for OutboundBatch {
    fn arrived(&self) -> u64 {
        self.counts.arrived
    }

    fn transform(&mut self) {
        let Some(snapshot) = &self.snapshot else {
            return;
        };
        for trains in self.trains.chunks(JOBS_PER_CALL) {
            let sas = trains.iter().map(|train| self.roads[train.road].index);
            snapshot.fetch_sas_of(sas);
        }
        let mut at_once = JOBS_PER_CALL;
        self.stamps.clear();
        let mut tickets = self.tickets.iter();
        for train in &self.trains {
            let road = &self.roads[train.road];
            let sa = snapshot.sa(road.index);
            let of_train = tickets.by_ref().take(train.granted as usize);
            self.stamps
                .extend(of_train.map(|ticket| ticket.stamp(sa, road.next_header)));
        }
        let mut jobs = recycle(std::mem::take(&mut self.jobs));
        let mut heads = prefix_mut(&mut self.heads, self.heads_len);
        let mut sealed = prefix_mut(&mut self.sealed, self.sealed_len);
        let mut stamps = self.stamps.iter();
        for train in &self.trains {
            let road = &self.roads[train.road];
            let sa = snapshot.sa(road.index);
            let item = match train.in_fragments {
                true => &self.fragments[train.item.clone()],
                false => &self.intake.bytes[train.item.clone()],
            };
            at_once = at_once.max(sa.key.jobs_at_once());
            for (number, stamp) in (0..train.granted).zip(&mut stamps) {
                let (head, out);
                (head, heads) = heads.split_at_mut(train.segments.head_len());
                (out, sealed) = sealed.split_at_mut(stamp.packet_len());
                train.segments.write_head(item, number, head);
                let payload = &item[train.segments.payload(number)];
                let (head, payload) = inside(road.outside, head, payload);
                jobs.push(stamp.job(sa, head, payload, out));
                if jobs.len() >= at_once {
                    multibuffer::seal(&mut jobs);
                    jobs.clear();
                }
            }
        }
        multibuffer::seal(&mut jobs);
        self.jobs = recycle(jobs);
        self.layers
            .transform(snapshot, &self.intake.bytes, &self.fragments);
    }
}
