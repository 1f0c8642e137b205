//! What moves inbound: the packets as they came, what was found out about each, and the few that were rebuilt.

use super::deeper::{Rounds, Walk};
use crate::buffers::BatchSize;
use crate::counters::PacketCounts;
use crate::io::{Arrival, ReceiveBuffer};
use crate::train::TrainKinds;
use crate::train::merge::GroCandidate;
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::sa::{Held, Protocol, Sa, SequenceNumber};
use ipsec::{ah, esp};
use multibuffer::OpenJob;
use std::ops::Range;
use std::sync::Arc;

/// A batch of inbound packets. Its memory is used again and again.
pub struct InboundBatch {
    pub(super) intake: ReceiveBuffer<Arrival>,
    /// Absent while the batch rests in its pool: a snapshot in a pool would keep deleted keys alive.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) packets: Vec<Incoming>,
    /// Transport mode: packets with a header that was outside before, each whole.
    pub(super) rebuilt: Vec<u8>,
    pub(super) train_kinds: TrainKinds,
    /// Whether the sink only forwards.
    pub(super) forwards: bool,
    pub(super) now: u64,
    pub(super) counts: PacketCounts,
    pub(super) jobs: Vec<OpenJob<'static>>,
    /// Of the packets with more than one ESP header.
    pub(super) walks: Vec<Walk>,
    pub(super) rounds: Rounds,
}

/// One packet from SPI to ICV, on its way.
pub(super) struct Incoming {
    /// Where it lies in the intake: ascending from packet to packet, never overlapping.
    pub range: Range<usize>,
    /// Which item of the intake it came in.
    pub item: u32,
    pub sa: SaIndex,
    /// Bytes of its headers directly before it; 0 if they are not there.
    pub headers: u16,
    /// Its place among the batch's walks, counted from 1; 0 for a single ESP header.
    pub walk: u32,
    /// The largest packet that the way back takes.
    pub inner_mtu: usize,
    pub received: Header,
    pub outcome: Outcome,
}

/// One layer's header, looked at but not believed.
#[derive(Clone, Debug)]
pub(super) enum Header {
    Esp(esp::Received),
    Ah(ah::Received),
    /// None of its own: the packet came in another one's AGGFRAG payload.
    Inside,
}

impl Header {
    /// Looks at a packet from its ESP or AH header on.
    pub fn look(sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        match sa.config.id.protocol {
            Protocol::Esp => esp::Received::look(sa, packet).map(Self::Esp),
            Protocol::Ah => ah::Received::look(sa, packet).map(Self::Ah),
        }
    }

    /// The same for a packet of a run, whose association's numbers are held.
    #[inline]
    pub fn look_by(held: &Held<'_>, sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        match sa.config.id.protocol {
            Protocol::Esp => esp::Received::look_by(held, sa, packet).map(Self::Esp),
            Protocol::Ah => ah::Received::look_by(held, sa, packet).map(Self::Ah),
        }
    }

    /// The full sequence number.
    pub fn sequence(&self) -> SequenceNumber {
        match self {
            Self::Esp(received) => received.sequence(),
            Self::Ah(received) => received.sequence(),
            Self::Inside => SequenceNumber::default(),
        }
    }
}

/// Where a packet from inside lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub rebuilt: bool,
    pub start: usize,
    pub len: usize,
    /// Whether it came out of a tunnel, as a packet of its own.
    pub in_tunnel: bool,
}

/// What transforming a packet has found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// Not looked at.
    Pending,
    /// Its ICV is wrong: nothing else about it is true.
    Forged,
    /// It is authentic, and here lies an AGGFRAG payload, to be taken apart in order.
    Packed(Place),
    /// It is authentic, and either fit to be delivered or not.
    Genuine(Result<Inner, Dropped>),
}

/// A packet from inside, whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner {
    pub rebuilt: bool,
    pub start: usize,
    pub len: usize,
    pub candidate: GroCandidate,
    /// The number of the device by which it goes to the kernel.
    pub exit: u32,
}

impl InboundBatch {
    /// An empty batch with room for what one read of the source brings.
    pub fn new(size: BatchSize, train_kinds: TrainKinds, forwards: bool) -> Self {
        Self {
            intake: ReceiveBuffer::with_capacity(size.bytes, size.items),
            snapshot: None,
            packets: Vec::with_capacity(size.items),
            rebuilt: Vec::new(),
            train_kinds,
            forwards,
            now: 0,
            counts: PacketCounts::default(),
            jobs: Vec::new(),
            walks: Vec::new(),
            rounds: Rounds::default(),
        }
    }

    /// The bytes of a delivered packet.
    pub(super) fn bytes_of(&self, inner: &Inner) -> &[u8] {
        let buffer = if inner.rebuilt {
            &self.rebuilt
        } else {
            &self.intake.bytes
        };
        &buffer[inner.start..inner.start + inner.len]
    }

    /// What was counted so far.
    pub fn counts(&self) -> &PacketCounts {
        &self.counts
    }

    /// Ready for the next read; lets go of the snapshot.
    pub(super) fn clear(&mut self) {
        self.intake.clear();
        self.snapshot = None;
        self.packets.clear();
        self.rebuilt.clear();
        self.walks.clear();
        self.counts = PacketCounts::default();
    }
}
