//! What moves outbound: the packets as they were read, what prepare planned for each, and the protected packets.

use super::item::{EncapPlans, Item, PlanId};
use super::nested::NestedPackets;
use crate::buffers::BatchSize;
use crate::counters::PacketCounts;
use crate::io::{MAX_ITEM_BYTES, ReceiveBuffer};
use crate::train::Offload;
use ipsec::database::Snapshot;
use ipsec::esp::OutboundEsp;
use ipsec::sa::SequenceNumber;
use multibuffer::{Iv, SealJob};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// Jobs per call of most ciphers. MEASURED: enough for every multi-buffer kernel but one, and heads, payloads and
/// output of so many packets stay in a 512 KiB L2 cache between checksum and cipher. Where a key needs more jobs, that
/// call is so slow that caches do not matter.
pub(super) const JOBS_PER_CALL: usize = 64;

/// Packets that a batch makes room for when more waits than it holds and its cipher takes as long for a few packets as
/// for hundreds. A little more would cost another pass for a few.
const LARGE_BATCH_PACKETS: usize = 256;
/// The least bytes of such a batch: that many packets of full size on an Ethernet.
const MIN_LARGE_BATCH_BYTES: usize = LARGE_BATCH_PACKETS * 1440;
/// The most bytes of such a batch: that many jumbo frames. MEASURED: of datagrams of 8800 bytes 3DES carries 0.85
/// Gbit/s with it, and 0.4 to 0.5 with room for an Ethernet's, where most of each pass is idle.
const MAX_LARGE_BATCH_BYTES: usize = LARGE_BATCH_PACKETS * 9216;

/// A batch of outbound packets. Its memory is reused.
pub struct OutboundBatch {
    pub(super) intake: ReceiveBuffer<Offload>,
    /// The device that all of it was read from.
    pub(super) interface: u32,
    /// Absent while the batch rests in its pool: a snapshot in a pool would keep deleted keys alive.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// Bytes of items that were made here: fragments, reassembled packets and AGGFRAG payloads.
    pub(super) made: Vec<u8>,
    pub(super) planned: Planned,
    /// Packets whose senders get an ICMP error with a smaller MTU.
    pub(super) too_big: Vec<TooBig>,
    pub(super) counts: PacketCounts,
    pub(super) esp_headers: Vec<OutboundEsp>,
    pub(super) heads: Vec<u8>,
    pub(super) sealed: Vec<u8>,
    pub(super) jobs: Vec<SealJob<'static>>,
}

/// What prepare decided for the packets of a batch.
#[derive(Default)]
pub(super) struct Planned {
    pub plans: EncapPlans,
    /// Items whose packets get one ESP header each.
    pub items: Vec<EspItem>,
    /// Of all packets of these items, in order.
    pub reservations: Vec<SequenceReservation>,
    pub nested: NestedPackets,
    pub bursts: Vec<PlannedBurst>,
    pub heads_len: usize,
    pub sealed_len: usize,
}

/// An item whose packets get one ESP header each.
pub(super) struct EspItem {
    pub item: Item,
    /// How many of its packets were assigned a sequence number.
    pub assigned: u32,
    pub plan: PlanId,
}

/// What a packet took from its SA, in order. The rest of its header can be written on any thread.
pub(super) struct SequenceReservation {
    pub sequence: SequenceNumber,
    /// Set for suites whose IVs are random.
    pub iv: Iv,
    pub plaintext_len: usize,
}

/// Where equal packets for one peer will lie, end to end; the last may be shorter.
pub(super) struct PlannedBurst {
    pub plan: PlanId,
    pub buffer: OutputBuffer,
    pub range: Range<usize>,
    pub stride: usize,
    pub packets: u64,
}

/// The buffer that a burst lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutputBuffer {
    /// The batch's sealed bytes: packets with one ESP header.
    Sealed,
    /// One of the buffers of the nested packets.
    Nested(usize),
}

/// A packet that is too big for its path.
pub(super) struct TooBig {
    pub item: Range<usize>,
    /// Source address of the ICMP error: the host that the sender wanted to reach. A message from an address of this
    /// host would arrive from a device with a local source address, and the kernel would drop it as a martian.
    pub reporter: IpAddr,
    pub mtu: usize,
}

impl OutboundBatch {
    /// An empty batch with room for one read of the source.
    pub fn new(size: BatchSize) -> Self {
        Self {
            intake: ReceiveBuffer::with_capacity(size.bytes, size.items),
            interface: 0,
            snapshot: None,
            made: Vec::new(),
            planned: Planned::with_room(size.items),
            too_big: Vec::new(),
            counts: PacketCounts::default(),
            esp_headers: Vec::with_capacity(size.items),
            heads: Vec::new(),
            sealed: Vec::new(),
            jobs: Vec::with_capacity(JOBS_PER_CALL),
        }
    }

    /// The protected packets of a burst.
    pub(super) fn bytes_of(&self, burst: &PlannedBurst) -> &[u8] {
        let buffer = match burst.buffer {
            OutputBuffer::Sealed => &self.sealed[..],
            OutputBuffer::Nested(index) => self.planned.nested.buffer(index),
        };
        &buffer[burst.range.clone()]
    }

    /// Whether a larger batch would take no longer, and there may have been more to read.
    fn is_too_small(&self, snapshot: &Snapshot) -> bool {
        let is_full = self.intake.free_items() == 0
            || self.intake.bytes.len() - self.intake.used_bytes() < MAX_ITEM_BYTES;
        let planned = &self.planned;
        let of_item = |item: &EspItem| {
            let sa = snapshot.sa(planned.plans[item.plan].sa);
            sa.key.jobs_at_once()
        };
        let wants_more = |jobs| jobs > JOBS_PER_CALL;
        is_full
            && (planned.items.iter().map(of_item).any(wants_more)
                || wants_more(planned.nested.jobs_at_once(snapshot)))
    }

    /// For packets as long as those that it holds.
    fn large_size(&self) -> BatchSize {
        let each = self.intake.used_bytes() / self.planned.reservations.len().max(1);
        BatchSize {
            items: LARGE_BATCH_PACKETS,
            bytes: (LARGE_BATCH_PACKETS * each).clamp(MIN_LARGE_BATCH_BYTES, MAX_LARGE_BATCH_BYTES),
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> &PacketCounts {
        &self.counts
    }

    /// Ready for the next read; drops the snapshot.
    pub(super) fn clear(&mut self) {
        let snapshot = self.snapshot.take();
        if snapshot.is_some_and(|snapshot| self.is_too_small(&snapshot)) {
            self.intake.grow(self.large_size());
        }
        self.intake.clear();
        self.made.clear();
        self.planned.clear();
        self.too_big.clear();
        self.counts = PacketCounts::default();
    }
}

impl Planned {
    fn with_room(items: usize) -> Self {
        Self {
            items: Vec::with_capacity(items),
            reservations: Vec::with_capacity(items),
            bursts: Vec::with_capacity(items),
            ..Self::default()
        }
    }

    fn clear(&mut self) {
        self.plans.clear();
        self.items.clear();
        self.reservations.clear();
        self.nested.clear();
        self.bursts.clear();
        self.heads_len = 0;
        self.sealed_len = 0;
    }

    /// Appends a packet with one ESP header, which will have `len` bytes, behind those planned before.
    #[inline]
    pub fn append_sealed(&mut self, plan: PlanId, reservation: SequenceReservation, len: usize) {
        let range = self.sealed_len..self.sealed_len + len;
        self.sealed_len = range.end;
        self.append(plan, OutputBuffer::Sealed, range);
        self.reservations.push(reservation);
    }

    /// Appends a protected packet to the last burst if it lies directly behind it, is no longer, and has the same outer
    /// header; begins a new burst otherwise.
    pub fn append(&mut self, plan: PlanId, buffer: OutputBuffer, range: Range<usize>) {
        let plans = &self.plans;
        let same = |burst: &PlannedBurst| {
            burst.plan == plan || plans[burst.plan].outer == plans[plan].outer
        };
        match self.bursts.last_mut() {
            Some(burst) if burst.has_room_for(buffer, &range) && same(burst) => {
                burst.range.end = range.end;
                burst.packets += 1;
            }
            _ => self.bursts.push(PlannedBurst {
                plan,
                buffer,
                stride: range.len(),
                range,
                packets: 1,
            }),
        }
    }
}

impl PlannedBurst {
    /// Whether a packet lies directly behind full ones, and is no longer than they are.
    fn has_room_for(&self, buffer: OutputBuffer, range: &Range<usize>) -> bool {
        let is_even = self.range.len() == self.packets as usize * self.stride;
        let follows = self.buffer == buffer && self.range.end == range.start;
        is_even && follows && range.len() <= self.stride
    }
}
