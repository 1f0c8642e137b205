//! The last step inbound, in order: window, lifetimes, trains, one call of the sink.

use super::InboundBatch;
use super::batch::{Incoming, Outcome};
use super::deeper::Walk;
use super::unpack::{Deadline, Unpacker};
use crate::buffers::{Pool, recycle};
use crate::counters::Counters;
use crate::io::{Delivery, PlaintextSink, Sent};
use crate::pipeline::lane::Commit;
use crate::pipeline::migration::MigrationGuard;
use crate::train::Offload;
use crate::train::merge::{Group, Merger};
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::sa::Held;
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
    /// Of each group, where its head lies; empty if it needs none of its own.
    head_ranges: Vec<Range<usize>>,
    pieces: Vec<IoSlice<'static>>,
    /// Of each group, its pieces.
    piece_ranges: Vec<(Offload, Range<usize>)>,
    deliveries: Vec<Delivery<'static>>,
    /// Of each group, the device that it leaves by.
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

    /// Admits what may pass, in order, and groups it.
    fn admit(&mut self, batch: &mut InboundBatch) {
        let Some(snapshot) = batch.snapshot.take() else {
            return;
        };
        admit_run(&snapshot, batch);
        self.merger.begin(batch.packets.len());
        self.unpacker.begin();
        // Packets of one item came from one place.
        let mut noted = None;
        for number in 0..batch.packets.len() {
            let packet = &batch.packets[number];
            match &packet.outcome {
                Outcome::Genuine(Ok(inner)) => {
                    if noted.replace((packet.sa, packet.item)) != Some((packet.sa, packet.item)) {
                        note_origin(&snapshot, batch, packet);
                    }
                    let head = |number| head(batch, number);
                    self.merger.push(number as u32, &inner.candidate, head);
                    batch.counts.bytes += inner.len as u64;
                }
                &Outcome::Packed(place) => {
                    let merger = &mut self.merger;
                    self.unpacker
                        .unpack(batch, &snapshot, number, place, merger);
                }
                _ => {}
            }
        }
        self.unpacker.finish(batch, &snapshot, &mut self.merger);
        let device = |group: &Group| match &batch.packets[group.first() as usize].outcome {
            Outcome::Genuine(Ok(inner)) => inner.exit,
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
                self.heads.extend_from_slice(head(batch, group.first()));
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
        self.migration.wait_for_backlog();
        let sent = hand_over(&mut *self.sink, &self.interfaces, &deliveries);
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
fn hand_over(
    sink: &mut dyn PlaintextSink,
    interfaces: &[u32],
    deliveries: &[Delivery<'_>],
) -> Sent {
    let (mut sent, mut start) = (Sent::default(), 0);
    for run in interfaces.chunk_by(|one, next| one == next) {
        let run_of = &deliveries[start..start + run.len()];
        start += run.len();
        // A sink that fails altogether has taken nothing that anybody knows of.
        sent += sink.deliver_by(run[0], run_of).unwrap_or_else(|_| Sent {
            failed: run_of.iter().map(Delivery::packets).sum(),
            ..Sent::default()
        });
    }
    sent
}

/// Admits all packets of the batch, in order. What is not admitted is counted and has no inner packet any more. The
/// numbers of an association are held for a run of its packets, and for nothing else.
fn admit_run(snapshot: &Snapshot, batch: &mut InboundBatch) {
    let mut run: Option<(SaIndex, Held<'_>)> = None;
    for packet in &mut batch.packets {
        let sa = packet.sa;
        let inner = match (&packet.outcome, (packet.walk as usize).checked_sub(1)) {
            (Outcome::Genuine(inner), Some(walk)) => {
                run = None;
                let inner = inner.as_ref().map(drop).map_err(|reason| *reason);
                admit_all(snapshot, &batch.walks[walk], inner, batch.now)
            }
            (Outcome::Genuine(_) | Outcome::Packed(_), None) => {
                run.take_if(|(of, _)| *of != sa);
                let (_, held) = run.get_or_insert_with(|| (sa, snapshot.sa(sa).state.hold()));
                admit(snapshot, held, packet, batch.now)
            }
            // INVARIANT: what is deeper than one layer is never packed.
            (Outcome::Pending | Outcome::Forged | Outcome::Packed(_), _) => {
                Err((packet.sa, Dropped::BadIcv))
            }
        };
        if let Err((sa, reason)) = inner {
            snapshot.sa(sa).state.count_drop(reason);
            batch.counts.drop(reason, 1);
            packet.outcome = Outcome::Genuine(Err(reason));
        }
    }
}

/// RFC 4303 3.4.3: the window is checked again and moved only for an authentic packet, and before anything else is
/// said about it.
fn admit(
    snapshot: &Snapshot,
    held: &mut Held<'_>,
    packet: &Incoming,
    now: u64,
) -> Result<(), (SaIndex, Dropped)> {
    let charged = |reason| (packet.sa, reason);
    let config = &snapshot.sa(packet.sa).config;
    let (inner, len) = match &packet.outcome {
        Outcome::Genuine(Ok(inner)) => (Ok(()), inner.len),
        Outcome::Packed(place) => (Ok(()), place.len),
        Outcome::Genuine(Err(reason)) => (Err(*reason), packet.range.len()),
        Outcome::Pending | Outcome::Forged => (Err(Dropped::BadIcv), packet.range.len()),
    };
    let sequence = packet.received.sequence();
    held.admit(config, sequence, len as u64, now)
        .map_err(charged)?;
    inner.map_err(charged)
}

/// The same for every association that the packet was proven to come through, outermost first.
fn admit_all(
    snapshot: &Snapshot,
    walk: &Walk,
    inner: Result<(), Dropped>,
    now: u64,
) -> Result<(), (SaIndex, Dropped)> {
    for step in walk.steps() {
        let sa = snapshot.sa(step.sa);
        sa.state
            .admit(&sa.config, step.sequence, step.bytes, now)
            .map_err(|reason| (step.sa, reason))?;
    }
    inner.map_err(|reason| (walk.blame, reason))
}

/// RFC 7296 2.23: only a packet that was authentic and new says where its sender is.
fn note_origin(snapshot: &Snapshot, batch: &InboundBatch, packet: &Incoming) {
    let (_, arrival) = &batch.intake.items[packet.item as usize];
    if let Some((port, _)) = arrival.outer.ports {
        let sa = snapshot.sa(packet.sa);
        let from = SocketAddr::new(arrival.outer.source, port);
        sa.state.hear_from(&sa.config, from);
    }
}

/// The header bytes of an admitted packet, as far as merging looks.
pub(super) fn head(batch: &InboundBatch, number: u32) -> &[u8] {
    match &batch.packets[number as usize].outcome {
        Outcome::Genuine(Ok(inner)) => {
            let len = inner.candidate.head_len().unwrap_or(inner.len);
            &batch.bytes_of(inner)[..len]
        }
        _ => &[],
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
