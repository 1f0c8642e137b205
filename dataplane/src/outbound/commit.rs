//! The last step outbound, in order: parcels to the sink, complaints to senders, numbers to the counters.

use super::OutboundBatch;
use crate::buffers::{Pool, recycle};
use crate::counters::Counters;
use crate::io::{Burst, Delivery, PlaintextSink, ProtectedSink, Sent};
use crate::pipeline::lane::Commit;
use crate::pipeline::migration::MigrationGuard;
use crate::train::Offload;
use ipsec::pmtu;
use std::io::IoSlice;
use std::sync::Arc;

/// Hands batches to the sink, one call each.
pub struct OutboundCommit {
    sink: Box<dyn ProtectedSink>,
    replies: Option<Box<dyn PlaintextSink>>,
    counters: Arc<Counters>,
    pool: Arc<Pool<OutboundBatch>>,
    parcels: Vec<Burst<'static>>,
    report: Vec<u8>,
    migration: MigrationGuard,
}

impl OutboundCommit {
    pub(super) fn new(
        sink: Box<dyn ProtectedSink>,
        replies: Option<Box<dyn PlaintextSink>>,
        counters: Arc<Counters>,
        pool: Arc<Pool<OutboundBatch>>,
    ) -> Self {
        Self {
            sink,
            replies,
            counters,
            pool,
            parcels: Vec::new(),
            report: Vec::new(),
            migration: MigrationGuard::open(),
        }
    }

    fn send(&mut self, batch: &OutboundBatch) -> Sent {
        let mut parcels = recycle(std::mem::take(&mut self.parcels));
        parcels.extend(batch.parcels.iter().map(|parcel| Burst {
            outer: batch.roads[parcel.road].outer,
            bytes: batch.bytes_of(parcel),
            stride: parcel.stride,
        }));
        self.migration.wait_for_backlog();
        // A sink that fails altogether has sent nothing that anybody knows of.
        let sent = self.sink.deliver(&parcels).unwrap_or_else(|_| Sent {
            failed: batch.parcels.iter().map(|parcel| parcel.packets).sum(),
            ..Sent::default()
        });
        self.parcels = recycle(parcels);
        sent
    }

    /// RFC 4301 8.2.1: the sender of a packet that is too big hears what would fit. Best effort, and rare.
    fn complain(&mut self, batch: &OutboundBatch) {
        let Some(replies) = &mut self.replies else {
            return;
        };
        for refused in &batch.refused {
            let packet = &batch.intake.bytes[refused.item.clone()];
            if pmtu::report(packet, refused.mtu, refused.reporter, &mut self.report) {
                let delivery = Delivery {
                    offload: Offload::default(),
                    pieces: &[IoSlice::new(&self.report)],
                };
                // If even this is refused, the sender tries again and is told again.
                let _ = replies.deliver_by(batch.interface, &[delivery]);
            }
        }
    }
}

impl Commit<OutboundBatch> for OutboundCommit {
    fn commit(&mut self, mut batch: Box<OutboundBatch>) {
        if !batch.parcels.is_empty() {
            let sent = self.send(&batch);
            batch.counts.sent(sent);
        }
        if !batch.refused.is_empty() {
            self.complain(&batch);
        }
        batch.counts.batches = 1;
        batch.counts.trains = batch.parcels.len() as u64;
        self.counters.add(&batch.counts);
        batch.clear();
        self.pool.give_back(batch);
    }
}
