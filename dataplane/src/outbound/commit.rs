//! The last step outbound, in order: bursts to the sink, ICMP errors to senders, counts to the counters.

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
    bursts: Vec<Burst<'static>>,
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
            bursts: Vec::new(),
            report: Vec::new(),
            migration: MigrationGuard::open(),
        }
    }

    fn send(&mut self, batch: &OutboundBatch) -> Sent {
        let mut bursts = recycle(std::mem::take(&mut self.bursts));
        bursts.extend(batch.planned.bursts.iter().map(|burst| Burst {
            outer: batch.planned.plans[burst.plan].outer,
            bytes: batch.bytes_of(burst),
            stride: burst.stride,
        }));
        let deliver = || self.sink.deliver(&bursts);
        // A sink that returns an error is taken to have sent nothing.
        let sent = self.migration.send(deliver).unwrap_or_else(|_| Sent {
            failed: batch.planned.bursts.iter().map(|burst| burst.packets).sum(),
            ..Sent::default()
        });
        self.bursts = recycle(bursts);
        sent
    }

    /// RFC 4301 8.2.1: the sender of a packet that is too big gets an ICMP error with the MTU. Best effort, and rare.
    fn report_too_big(&mut self, batch: &OutboundBatch) {
        let Some(replies) = &mut self.replies else {
            return;
        };
        for packet in &batch.too_big {
            let bytes = &batch.intake.bytes[packet.item.clone()];
            if pmtu::packet_too_big(bytes, packet.mtu, packet.reporter, &mut self.report) {
                let delivery = Delivery {
                    offload: Offload::default(),
                    pieces: &[IoSlice::new(&self.report)],
                };
                // If the error is lost, the sender's next packet causes another one.
                let _ = replies.deliver_by(batch.interface, &[delivery]);
            }
        }
    }
}

impl Commit<OutboundBatch> for OutboundCommit {
    fn commit(&mut self, mut batch: Box<OutboundBatch>) {
        if !batch.planned.bursts.is_empty() {
            let sent = self.send(&batch);
            batch.counts.sent(sent);
        }
        if !batch.too_big.is_empty() {
            self.report_too_big(&batch);
        }
        batch.counts.batches = 1;
        batch.counts.trains = batch.planned.bursts.len() as u64;
        self.counters.add(&batch.counts);
        batch.clear();
        self.pool.give_back(batch);
    }
}
