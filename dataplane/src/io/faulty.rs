//! Fault injection on the protected side: packets are lost, repeated, delayed and damaged by a seed, the same way every
//! time.
//!
//! Wraps a sink and works packet by packet: a burst passes on as bursts of its remaining packets.

use super::{Burst, ProtectedSink, Sent};
use ipsec::tunnel::Outer;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
mod tests;

/// The rate of each fault, in thousandths of packets, and the seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// The same seed gives the same faults.
    pub seed: u64,
    /// Packets that vanish.
    pub lost: u32,
    /// Packets that come twice.
    pub repeated: u32,
    /// Packets that are overtaken by others.
    pub delayed: u32,
    /// Packets of which one bit is flipped.
    pub damaged: u32,
    /// By how many packets a delayed one is overtaken, at most.
    pub depth: u32,
}

/// Counters of the faults so far; shared with the sink.
#[derive(Debug, Default)]
pub struct FaultCounts {
    lost: AtomicU64,
    repeated: AtomicU64,
    delayed: AtomicU64,
    damaged: AtomicU64,
}

impl FaultCounts {
    /// Packets that vanished.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Packets that were sent a second time.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Packets that were held back.
    pub fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// Packets that were damaged.
    pub fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }
}

/// A sink with faults.
pub struct FaultySink<Sink> {
    sink: Sink,
    faults: Faults,
    counts: Arc<FaultCounts>,
    chance: u64,
    /// Delayed packets, each with the number of packets that are still to overtake it.
    held: VecDeque<(u32, Outer, Vec<u8>)>,
    bytes: Vec<u8>,
    runs: Vec<(Outer, usize, Range<usize>)>,
}

impl<Sink> FaultySink<Sink> {
    /// Injects these faults into what passes to `sink`.
    pub fn new(sink: Sink, faults: Faults) -> Self {
        Self {
            sink,
            faults,
            counts: Arc::default(),
            // Any seed gives a generator that is not stuck at 0.
            chance: faults.seed.wrapping_mul(2) | 1,
            held: VecDeque::new(),
            bytes: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> Arc<FaultCounts> {
        self.counts.clone()
    }

    /// Applies the faults to one packet.
    fn pass(&mut self, outer: &Outer, packet: &[u8]) {
        let Faults {
            lost,
            repeated,
            delayed,
            damaged,
            ..
        } = self.faults;
        if self.happens(lost) {
            return count(&self.counts.lost);
        }
        let twice = self.happens(repeated);
        if twice {
            count(&self.counts.repeated);
        }
        let damage = self
            .happens(damaged)
            .then(|| self.below(packet.len() as u64 * 8) as usize);
        if damage.is_some() {
            count(&self.counts.damaged);
        }
        if self.happens(delayed) {
            count(&self.counts.delayed);
            let overtaken_by = 1 + self.below(self.faults.depth.max(1).into()) as u32;
            self.held
                .push_back((overtaken_by, *outer, changed(packet, damage)));
            if twice {
                self.push(outer, packet);
            }
            return;
        }
        match damage {
            Some(_) => self.push(outer, &changed(packet, damage)),
            None => self.push(outer, packet),
        }
        if twice {
            self.push(outer, packet);
        }
    }

    /// One more packet has passed: delayed packets that were overtaken often enough follow it.
    fn release_due(&mut self) {
        let before = self.held.len();
        for _ in 0..before {
            if let Some((left, outer, packet)) = self.held.pop_front() {
                match left {
                    0 | 1 => self.push(&outer, &packet),
                    more => self.held.push_back((more - 1, outer, packet)),
                }
            }
        }
    }

    fn release_all(&mut self) {
        while let Some((_, outer, packet)) = self.held.pop_front() {
            self.push(&outer, &packet);
        }
    }

    /// Adds a packet to the last run if it may be its next one, or begins a run.
    fn push(&mut self, outer: &Outer, packet: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        match self.runs.last_mut() {
            Some((same, stride, range))
                if same == outer && range.len() % *stride == 0 && packet.len() <= *stride =>
            {
                range.end = self.bytes.len();
            }
            _ => self
                .runs
                .push((*outer, packet.len(), start..self.bytes.len())),
        }
    }

    fn happens(&mut self, thousandths: u32) -> bool {
        self.below(1000) < thousandths.into()
    }

    /// The next of a sequence of numbers below `bound` (xorshift64*).
    fn below(&mut self, bound: u64) -> u64 {
        self.chance ^= self.chance >> 12;
        self.chance ^= self.chance << 25;
        self.chance ^= self.chance >> 27;
        (self.chance.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound.max(1)
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A copy with this bit flipped.
fn changed(packet: &[u8], bit: Option<usize>) -> Vec<u8> {
    let mut copy = packet.to_vec();
    if let Some(bit) = bit
        && let Some(byte) = copy.get_mut(bit / 8)
    {
        *byte ^= 1 << (bit % 8);
    }
    copy
}

impl<Sink: ProtectedSink> ProtectedSink for FaultySink<Sink> {
    /// Without bursts, releases all delayed packets.
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        self.bytes.clear();
        self.runs.clear();
        for burst in bursts {
            for packet in burst.bytes.chunks(burst.stride.max(1)) {
                self.pass(&burst.outer, packet);
                self.release_due();
            }
        }
        if bursts.is_empty() {
            self.release_all();
        }
        let runs = self.runs.iter();
        let runs: Vec<_> = runs
            .map(|(outer, stride, range)| Burst {
                outer: *outer,
                bytes: &self.bytes[range.clone()],
                stride: *stride,
            })
            .collect();
        let sent = self.sink.deliver(&runs)?;
        // All packets are reported as sent, except those that the sink itself refused.
        let given: u64 = bursts.iter().map(Burst::packets).sum();
        let refused = sent.too_big + sent.no_buffer + sent.failed;
        Ok(Sent {
            packets: given.saturating_sub(refused),
            ..sent
        })
    }
}
