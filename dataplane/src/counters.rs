//! Packets carried and dropped in one direction: plain [`PacketCounts`] in every batch, added to shared [`Counters`]
//! once per batch.
//!
//! INVARIANT: with no batch in flight, `arrived` is `packets` plus all `drops`: every lost packet has a reason.

use crate::io::{Sent, SourceDrops};
use ipsec::Dropped;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one direction: of a batch, or since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounts {
    /// Packets read from the source, segments and coalesced datagrams counted singly.
    pub arrived: u64,
    /// Packets that the sink accepted.
    pub packets: u64,
    /// Bytes of inner packets that were given to the sink.
    pub bytes: u64,
    /// Trains or bursts given to the sink, each a unit of its calls.
    pub trains: u64,
    /// Batches.
    pub batches: u64,
    /// System calls that the sink made.
    pub calls: u64,
    /// Packets dropped, by [`Dropped::index`].
    pub drops: [u64; Dropped::ALL.len()],
}

impl PacketCounts {
    /// Counts `packets` drops for one reason.
    pub fn drop(&mut self, reason: Dropped, packets: u64) {
        self.drops[reason.index()] += packets;
    }

    /// Counts packets that were lost before they could be read.
    pub fn miss(&mut self, reason: Dropped, packets: u64) {
        self.arrived += packets;
        self.drop(reason, packets);
    }

    /// The same for all drops of a source, which are taken out of it.
    pub fn missed(&mut self, missed: &mut SourceDrops) {
        for (reason, packets) in missed.drain() {
            self.miss(reason, packets);
        }
    }

    /// Counts the result of a sink.
    pub fn sent(&mut self, sent: Sent) {
        self.packets += sent.packets;
        self.calls += sent.calls;
        self.drop(Dropped::TooBig, sent.too_big);
        self.drop(Dropped::NoBuffer, sent.no_buffer);
        self.drop(Dropped::SendFailed, sent.failed);
    }

    /// All packets dropped.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}

/// The counts of one direction since the start, shared with the threads that report them.
#[derive(Default)]
pub struct Counters {
    arrived: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    trains: AtomicU64,
    batches: AtomicU64,
    calls: AtomicU64,
    drops: [AtomicU64; Dropped::ALL.len()],
}

impl Counters {
    /// Adds a batch.
    pub fn add(&self, counts: &PacketCounts) {
        let pairs = [
            (&self.arrived, counts.arrived),
            (&self.packets, counts.packets),
            (&self.bytes, counts.bytes),
            (&self.trains, counts.trains),
            (&self.batches, counts.batches),
            (&self.calls, counts.calls),
        ];
        for (counter, more) in pairs.into_iter().chain(self.drops.iter().zip(counts.drops)) {
            // Most batches drop nothing: an addition of 0 would cost as much as any other.
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// All counts, each read once.
    pub fn read(&self) -> PacketCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PacketCounts {
            arrived: read(&self.arrived),
            packets: read(&self.packets),
            bytes: read(&self.bytes),
            trains: read(&self.trains),
            batches: read(&self.batches),
            calls: read(&self.calls),
            drops: std::array::from_fn(|reason| read(&self.drops[reason])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_read_back_the_sum_of_what_was_added() {
        let mut counts = PacketCounts {
            arrived: 5,
            bytes: 700,
            batches: 1,
            ..PacketCounts::default()
        };
        counts.sent(Sent {
            packets: 1,
            too_big: 1,
            no_buffer: 1,
            failed: 1,
            calls: 2,
        });
        counts.drop(Dropped::BadIcv, 1);
        assert_eq!(counts.arrived, counts.packets + counts.dropped());
        let counters = Counters::default();
        counters.add(&counts);
        assert_eq!(counters.read(), counts);
        counters.add(&counts);
        assert_eq!(counters.read().bytes, 1400);
        assert_eq!(counters.read().drops[Dropped::BadIcv.index()], 2);
    }
}
