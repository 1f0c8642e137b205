//! What moves inbound: the packets as they came, what was found about each, and the few that were rebuilt.

use super::chain::SaChain;
use super::layer::NestedLayers;
use super::packet::{InboundPacket, Inner, Outcome};
use crate::buffers::BatchSize;
use crate::counters::PacketCounts;
use crate::io::{Arrival, ReceiveBuffer};
use crate::train::TrainKinds;
use ipsec::database::Snapshot;
use ipsec::ipcomp::Decompressor;
use multibuffer::OpenJob;
use std::sync::Arc;

/// A batch of inbound packets. Its memory is reused.
pub struct InboundBatch {
    pub(super) intake: ReceiveBuffer<Arrival>,
    /// Absent while the batch rests in its pool: a snapshot in a pool would keep deleted keys alive.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) packets: Vec<InboundPacket>,
    /// Whole packets that had to be copied: transport mode in UDP, whose header was written anew, packets out of
    /// AGGFRAG payloads, and packets that came compressed.
    pub(super) rebuilt: Vec<u8>,
    pub(super) train_kinds: TrainKinds,
    /// Whether the sink only forwards.
    pub(super) forwards: bool,
    pub(super) now: u64,
    pub(super) counts: PacketCounts,
    pub(super) jobs: Vec<OpenJob<'static>>,
    /// The SA chains of packets with more than one ESP header.
    pub(super) chains: Vec<SaChain>,
    pub(super) nested: NestedLayers,
    /// Absent until the first packet that is compressed.
    pub(super) decompressor: Option<Decompressor>,
}

impl InboundBatch {
    /// An empty batch with room for one read of the source.
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
            chains: Vec::new(),
            nested: NestedLayers::default(),
            decompressor: None,
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

    /// The header bytes of an admitted packet, as far as merging looks.
    pub(super) fn head(&self, number: u32) -> &[u8] {
        match &self.packets[number as usize].outcome {
            Outcome::Genuine(Ok(inner)) => {
                let len = inner.candidate.head_len().unwrap_or(inner.len);
                &self.bytes_of(inner)[..len]
            }
            _ => &[],
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> &PacketCounts {
        &self.counts
    }

    /// Ready for the next read; drops the snapshot.
    pub(super) fn clear(&mut self) {
        self.intake.clear();
        self.snapshot = None;
        self.packets.clear();
        self.rebuilt.clear();
        self.chains.clear();
        self.counts = PacketCounts::default();
    }
}
