//! The whole engine in memory, timed: how long each of its steps takes, and how many packets it carries per second.
//!
//! ```text
//!   Repeat ──► read ──► prepare ──► transform ──► commit ──► NullSink
//!                       in order    any thread    in order
//! ```
//!
//! `esplanade speed --layer engine` and the example `engine` both use this. A [`Bench`] runs step by step on one
//! thread; a [`LaneBench`] runs through a lane, with workers or without.

use crate::buffers::{BatchSize, Pool};
use crate::counters::Counters;
use crate::inbound::{Inbound, InboundCommit, InboundPrepare};
use crate::io::memory::{NullSink, Repeat};
use crate::io::{
    Arrival, Burst, PlaintextSource, PmtuCache, ProtectedSink, ReceiveBuffer, Sent, Wait,
};
use crate::iv::{IvSource, SEED_LEN};
use crate::outbound::{Outbound, OutboundCommit, OutboundPrepare};
use crate::path_mtu::PathMtus;
use crate::pipeline::affinity::Placement;
use crate::pipeline::lane::{Commit, Transform};
use crate::pipeline::pump::{LaneConfig, Prepare, Pump};
use crate::pipeline::worker::{Idle, WorkSource, WorkerThreads};
use crate::train::Offload;
use arc_swap::ArcSwap;
use ipsec::database::Snapshot;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Protected bytes as they arrive at the other end.
pub type Protected = (Vec<u8>, Arrival);

/// Large enough that nothing is fragmented.
const PATH_MTU: usize = 65_535;

/// Batches that may be in flight with workers.
const MAX_BATCHES_IN_FLIGHT: usize = 16;

/// One direction between a source and a sink in memory, run step by step.
pub struct Bench<P: Prepare, C> {
    prepare: P,
    commit: C,
    pool: Arc<Pool<P::Batch>>,
    counters: Arc<Counters>,
}

/// The outbound direction.
pub type OutboundBench = Bench<OutboundPrepare, OutboundCommit>;

/// The inbound direction.
pub type InboundBench = Bench<InboundPrepare, InboundCommit>;

/// The outbound direction for these plaintext items, repeated.
pub fn outbound(
    databases: Arc<Snapshot>,
    items: Vec<(Vec<u8>, Offload)>,
    size: BatchSize,
) -> OutboundBench {
    outbound_between(databases, Repeat::of(items), NullSink, size)
}

/// The inbound direction for these protected items, repeated: of SAs without a replay window.
pub fn inbound(databases: Arc<Snapshot>, items: Vec<Protected>, size: BatchSize) -> InboundBench {
    let counters: Arc<Counters> = Arc::default();
    let direction = Inbound {
        source: Box::new(Repeat::of(items)),
        sink: Box::new(NullSink),
        databases: published(databases),
        paths: PathMtus::new(PmtuCache::default(), PATH_MTU),
        counters: Arc::clone(&counters),
    };
    Bench::new(direction.steps(size, MAX_BATCHES_IN_FLIGHT + 1), counters)
}

/// The protected packets that the outbound direction makes of these plaintext items.
pub fn sealed(
    databases: Arc<Snapshot>,
    items: Vec<(Vec<u8>, Offload)>,
    size: BatchSize,
) -> io::Result<Vec<Protected>> {
    let kept = Kept::default();
    let mut bench = outbound_between(databases, Once(items.into_iter()), kept.clone(), size);
    while bench.step(&mut |_, _| ())? > 0 {}
    let mut bursts = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut bursts))
}

fn outbound_between(
    databases: Arc<Snapshot>,
    source: impl PlaintextSource + 'static,
    sink: impl ProtectedSink + 'static,
    size: BatchSize,
) -> OutboundBench {
    let counters: Arc<Counters> = Arc::default();
    let direction = Outbound {
        source: Box::new(source),
        sink: Box::new(sink),
        replies: None,
        databases: published(databases),
        ivs: IvSource::seeded(&[1; SEED_LEN]),
        paths: PathMtus::new(PmtuCache::default(), PATH_MTU),
        hook: Arc::new(|_| ()),
        counters: Arc::clone(&counters),
    };
    Bench::new(direction.steps(size, MAX_BATCHES_IN_FLIGHT + 1), counters)
}

fn published(databases: Arc<Snapshot>) -> Arc<ArcSwap<Snapshot>> {
    Arc::new(ArcSwap::new(databases))
}

/// A source of each item once.
struct Once(std::vec::IntoIter<(Vec<u8>, Offload)>);

impl PlaintextSource for Once {
    fn fill(&mut self, intake: &mut ReceiveBuffer<Offload>, _: Wait) -> io::Result<usize> {
        let before = intake.items.len();
        while let Some((bytes, offload)) = self.0.as_slice().first() {
            if intake.free_items() == 0 || intake.free_bytes().len() < bytes.len() {
                break;
            }
            intake.free_bytes()[..bytes.len()].copy_from_slice(bytes);
            intake.push(bytes.len(), *offload);
            self.0.next();
        }
        Ok(intake.items.len() - before)
    }
}

/// A sink that keeps packets as they would arrive at the other end.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Protected>>>);

impl ProtectedSink for Kept {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        let arrival = |burst: &Burst<'_>| Arrival {
            outer: burst.outer,
            stride: burst.stride,
        };
        let arrived = bursts
            .iter()
            .map(|burst| (burst.bytes.to_vec(), arrival(burst)));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(arrived);
        Ok(Sent {
            packets: bursts.iter().map(Burst::packets).sum(),
            ..Sent::default()
        })
    }
}

/// Nanoseconds per packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepTimes {
    /// Copying the packets out of the source, as a device or a socket would.
    pub read: f64,
    /// Policy, sequence numbers and layout, in order.
    pub prepare: f64,
    /// The ciphers, on any thread.
    pub transform: f64,
    /// Counting and delivering, in order.
    pub commit: f64,
}

impl StepTimes {
    /// The steps that run in order, and so limit one flow.
    pub fn serial(&self) -> f64 {
        self.prepare + self.commit
    }

    /// The three steps of the engine.
    pub fn engine(&self) -> f64 {
        self.serial() + self.transform
    }
}

impl<P, C> Bench<P, C>
where
    P: Prepare,
    C: Commit<P::Batch> + 'static,
{
    fn new((prepare, commit, pool): (P, C, Arc<Pool<P::Batch>>), counters: Arc<Counters>) -> Self {
        Self {
            prepare,
            commit,
            pool,
            counters,
        }
    }

    /// Runs without workers for `time`, one batch at least. Medians over batches, so that interruptions do not count.
    pub fn step_times(&mut self, time: Duration) -> io::Result<StepTimes> {
        let mut samples: [Vec<f64>; 4] = Default::default();
        let start = Instant::now();
        while samples[0].is_empty() || start.elapsed() < time {
            let items = self.step(&mut |packets, step_times| {
                for (samples, span) in samples.iter_mut().zip(step_times) {
                    samples.push(span.as_nanos() as f64 / packets as f64);
                }
            })?;
            if items == 0 {
                return Err(no_packet());
            }
        }
        let [read, prepare, transform, commit] = samples.map(|samples| median(&samples));
        Ok(StepTimes {
            read,
            prepare,
            transform,
            commit,
        })
    }

    /// One batch; reports how many packets it had and how long each step took, and returns the number of items.
    fn step(&mut self, report: &mut dyn FnMut(u64, [Duration; 4])) -> io::Result<usize> {
        let mut batch = self.pool.take();
        let start = Instant::now();
        let items = self.prepare.fill(&mut batch, Wait::Poll)?;
        let read = Instant::now();
        self.prepare.prepare(&mut batch);
        let prepared = Instant::now();
        let packets = batch.arrived();
        batch.transform();
        let transformed = Instant::now();
        self.commit.commit(batch);
        let step_times = [
            read - start,
            prepared - read,
            transformed - prepared,
            transformed.elapsed(),
        ];
        if packets > 0 {
            report(packets, step_times);
        }
        Ok(items)
    }

    /// Packets dropped so far: the speed of an engine that drops means nothing.
    pub fn dropped(&self) -> u64 {
        self.counters.read().dropped()
    }

    /// Continues through a lane with `workers` threads on `cpus` beside the one that reads; with 0 without workers.
    pub fn start(self, workers: usize, cpus: &[usize]) -> io::Result<LaneBench<P, C>> {
        let passed = Arc::new(AtomicU64::new(0));
        let lane_config = LaneConfig {
            slots: if workers == 0 {
                2
            } else {
                MAX_BATCHES_IN_FLIGHT
            },
            workers,
            left_to_workers: 0,
            waker: None,
        };
        let work_ready = Arc::default();
        let prepare = Metered(self.prepare, Arc::clone(&passed));
        let pump = Pump::new(
            prepare,
            self.commit,
            self.pool,
            &lane_config,
            Arc::clone(&work_ready),
        );
        let lane: Arc<dyn WorkSource> = pump.lane().clone();
        let placement = Placement {
            cpus: cpus.to_vec(),
            ..Placement::default()
        };
        let threads =
            WorkerThreads::start(workers, placement, Idle::default(), vec![lane], work_ready)?;
        Ok(LaneBench {
            pump,
            passed,
            // Without workers a run is one batch; with workers it is long enough to fill the ring several times.
            batches: if workers == 0 {
                1
            } else {
                4 * MAX_BATCHES_IN_FLIGHT
            },
            counters: self.counters,
            _team: threads,
        })
    }
}

fn no_packet() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "no packet of the load fits into a batch",
    )
}

/// The median of figures, which are not empty.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// One direction that runs through its lane.
pub struct LaneBench<P: Prepare, C> {
    pump: Pump<Metered<P>, C>,
    passed: Arc<AtomicU64>,
    batches: usize,
    counters: Arc<Counters>,
    /// Ends after the pump.
    _team: WorkerThreads,
}

impl<P, C> LaneBench<P, C>
where
    P: Prepare,
    C: Commit<P::Batch> + 'static,
{
    /// Packets per second, reading included: the median of many short runs within `time`.
    pub fn rate(&mut self, time: Duration) -> io::Result<f64> {
        let mut rates = Vec::new();
        let start = Instant::now();
        while rates.is_empty() || start.elapsed() < time {
            let (before, begin) = (self.passed.load(Ordering::Relaxed), Instant::now());
            for _ in 0..self.batches {
                if self.pump.step(Wait::Poll)? == 0 {
                    return Err(no_packet());
                }
            }
            let packets = self.passed.load(Ordering::Relaxed) - before;
            rates.push(packets as f64 / begin.elapsed().as_secs_f64());
        }
        self.pump.drain();
        Ok(median(&rates))
    }

    /// Packets dropped so far.
    pub fn dropped(&self) -> u64 {
        self.counters.read().dropped()
    }
}

/// Counts the packets that pass through the first step.
struct Metered<P>(P, Arc<AtomicU64>);

impl<P: Prepare> Prepare for Metered<P> {
    type Batch = P::Batch;

    fn fill(&mut self, batch: &mut P::Batch, wait: Wait) -> io::Result<usize> {
        self.0.fill(batch, wait)
    }

    fn prepare(&mut self, batch: &mut P::Batch) {
        self.0.prepare(batch);
        self.1.fetch_add(batch.arrived(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_stand_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
