//! The last step inbound, in order: window, lifetimes, trains, one call of the sink.

mod admit;
mod aggfrag;

use super::InboundBatch;
use super::deadline::Deadline;
use super::packet::{InboundPacket, Outcome};
use crate::buffers::{Pool, recycle};
use crate::counters::Counters;
use crate::io::{Delivery, PlaintextSink, Sent};
use crate::pipeline::lane::Commit;
use crate::pipeline::migration::MigrationGuard;
use crate::train::Offload;
use crate::train::merge::{Group, Merger};
use aggfrag::Unpacker;
use ipsec::database::Snapshot;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

/// Admits packets and hands them to the sink, one call for each batch.
pub struct InboundCommit {
    sink: Box<dyn PlaintextSink>,
    counters: Arc<Counters>,
    pool: Arc<Pool<InboundBatch>>,
    merger: Merger,
    unpacker: Unpacker,
    /// Heads of trains.
    heads: Vec<u8>,
    /// Where each group's head lies; empty if it needs none of its own.
    head_ranges: Vec<Range<usize>>,
    pieces: Vec<IoSlice<'static>>,
    /// The pieces of each group.
    piece_ranges: Vec<(Offload, Range<usize>)>,
    deliveries: Vec<Delivery<'static>>,
    /// The device of each group.
    interfaces: Vec<u32>,
    migration: MigrationGuard,
}

impl InboundCommit {
    pub(super) fn new(
        sink: Box<dyn PlaintextSink>,
        counters: Arc<Counters>,
        pool: Arc<Pool<InboundBatch>>,
        deadline: Deadline,
    ) -> Self {
        Self {
            sink,
            counters,
            pool,
            merger: Merger::default(),
            unpacker: Unpacker::new(deadline),
            heads: Vec::new(),
            head_ranges: Vec::new(),
            pieces: Vec::new(),
            piece_ranges: Vec::new(),
            deliveries: Vec::new(),
            interfaces: Vec::new(),
            migration: MigrationGuard::open(),
        }
    }

    /// Admits packets in order and merges them to trains.
    fn admit(&mut self, batch: &mut InboundBatch) {
        let Some(snapshot) = batch.snapshot.take() else {
            return;
        };
        admit::admit_all(&snapshot, batch);
        self.merger.begin(batch.packets.len());
        self.unpacker.begin();
        // Packets of one item came from one address.
        let mut noted = None;
        for number in 0..batch.packets.len() {
            let packet = &batch.packets[number];
            match &packet.outcome {
                Outcome::Genuine(Ok(inner)) => {
                    if noted.replace((packet.sa, packet.item)) != Some((packet.sa, packet.item)) {
                        note_origin(&snapshot, batch, packet);
                    }
                    let head = |number| batch.head(number);
                    self.merger.push(number as u32, &inner.candidate, head);
                    batch.counts.bytes += inner.len as u64;
                }
                &Outcome::Aggfrag(payload) => {
                    let merger = &mut self.merger;
                    self.unpacker
                        .unpack(batch, &snapshot, number, payload, merger);
                }
                _ => {}
            }
        }
        self.unpacker.finish(batch, &snapshot, &mut self.merger);
        let device = |group: &Group| match &batch.packets[group.first() as usize].outcome {
            Outcome::Genuine(Ok(inner)) => inner.interface,
            // INVARIANT: only what is delivered is in a group.
            _ => 0,
        };
        self.interfaces.clear();
        self.interfaces
            .extend(self.merger.groups().iter().map(device));
    }

    /// Makes one head for each train, out of its first packet's.
    fn write_heads(&mut self, batch: &InboundBatch) {
        self.heads.clear();
        self.head_ranges.clear();
        for group in self.merger.groups() {
            let start = self.heads.len();
            if group.count() > 1 {
                self.heads.extend_from_slice(batch.head(group.first()));
                group.rewrite_head(&mut self.heads[start..]);
            }
            self.head_ranges.push(start..self.heads.len());
        }
    }

    fn deliver(&mut self, batch: &InboundBatch) -> Sent {
        self.write_heads(batch);
        let mut pieces = recycle(std::mem::take(&mut self.pieces));
        self.piece_ranges.clear();
        for (group, head) in self.merger.groups().iter().zip(&self.head_ranges) {
            let start = pieces.len();
            gather(
                batch,
                &self.merger,
                group,
                &self.heads[head.clone()],
                &mut pieces,
            );
            self.piece_ranges
                .push((group.offload(), start..pieces.len()));
        }
        let mut deliveries = recycle(std::mem::take(&mut self.deliveries));
        let delivery = |(offload, range): &(Offload, Range<usize>)| Delivery {
            offload: *offload,
            pieces: &pieces[range.clone()],
        };
        deliveries.extend(self.piece_ranges.iter().map(delivery));
        let deliver = || deliver_runs(&mut *self.sink, &self.interfaces, &deliveries);
        let sent = self.migration.send(deliver);
        self.deliveries = recycle(deliveries);
        self.pieces = recycle(pieces);
        sent
    }
}

impl Commit<InboundBatch> for InboundCommit {
    fn commit(&mut self, mut batch: Box<InboundBatch>) {
        self.admit(&mut batch);
        let trains = self.merger.groups().len();
        if trains > 0 {
            let sent = self.deliver(&batch);
            batch.counts.sent(sent);
        }
        batch.counts.trains = trains as u64;
        batch.counts.batches = 1;
        self.counters.add(&batch.counts);
        batch.clear();
        self.pool.give_back(batch);
    }
}

/// One call of the sink for each run of deliveries to one device: in most batches there is one run.
fn deliver_runs(
    sink: &mut dyn PlaintextSink,
    interfaces: &[u32],
    deliveries: &[Delivery<'_>],
) -> Sent {
    let (mut sent, mut start) = (Sent::default(), 0);
    for run in interfaces.chunk_by(|one, next| one == next) {
        let run_of = &deliveries[start..start + run.len()];
        start += run.len();
        // A sink that returns an error is taken to have sent nothing.
        sent += sink.deliver_by(run[0], run_of).unwrap_or_else(|_| Sent {
            failed: run_of.iter().map(Delivery::packets).sum(),
            ..Sent::default()
        });
    }
    sent
}

/// RFC 7296 2.23: the peer's address and port are taken from authentic and new packets only.
fn note_origin(snapshot: &Snapshot, batch: &InboundBatch, packet: &InboundPacket) {
    let (_, arrival) = &batch.intake.items[packet.item as usize];
    if let Some((port, _)) = arrival.outer.ports {
        let sa = snapshot.sa(packet.sa);
        let from = SocketAddr::new(arrival.outer.source, port);
        sa.state.record_peer_endpoint(&sa.config, from);
    }
}

/// Appends the pieces of a group: a packet as it lies, or the train's head and every payload.
fn gather<'a>(
    batch: &'a InboundBatch,
    merger: &Merger,
    group: &Group,
    train_head: &'a [u8],
    pieces: &mut Vec<IoSlice<'a>>,
) {
    if !train_head.is_empty() {
        pieces.push(IoSlice::new(train_head));
    }
    for number in merger.members(group) {
        if let Outcome::Genuine(Ok(inner)) = &batch.packets[number as usize].outcome {
            let skip = if train_head.is_empty() {
                0
            } else {
                train_head.len()
            };
            pieces.push(IoSlice::new(&batch.bytes_of(inner)[skip..]));
        }
    }
}
