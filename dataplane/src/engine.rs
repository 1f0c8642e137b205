//! Both directions of the data plane with their threads: what a gateway starts, watches and stops.
//!
//! ```text
//!   outbound thread   fill ─ prepare ─┐        ┌─ worker threads transform the batches of both lanes
//!                                     ├─ lanes ┤
//!   inbound thread    fill ─ prepare ─┘        └─ without workers each thread transforms its own
//! ```
//!
//! The number of workers of a lane is fixed by an option, or chosen by its governor while packets flow.

use crate::buffers::BatchSize;
use crate::counters::{Counters, PacketCounts};
use crate::inbound::{Inbound, InboundPump};
use crate::io::{
    PlaintextSink, PlaintextSource, PmtuCache, ProtectedSink, ProtectedSource, Wait, Waker,
};
use crate::iv::{IvSource, SEED_LEN};
use crate::notice::{Hook, Notice};
use crate::outbound::{Outbound, OutboundPump};
use crate::path_mtu::PathMtus;
use crate::pipeline::affinity::Placement;
use crate::pipeline::event::Event;
use crate::pipeline::governor::{self, Governor, LaneReport, PumpStep, ReportCell, Workers};
use crate::pipeline::hold::{Held, Moment, Safepoint};
use crate::pipeline::lane::Commit;
use crate::pipeline::pump::{LaneConfig, Prepare, Pump};
use crate::pipeline::wake;
use crate::pipeline::worker::{Idle, WorkSource, WorkerThreads};
use arc_swap::ArcSwap;
use ipsec::database::Snapshot;
use ipsec::policy::Direction;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Where packets come from and go to.
pub struct Ends {
    /// Packets to protect.
    pub plaintext_source: Box<dyn PlaintextSource>,
    /// Protected packets, leaving.
    pub protected_sink: Box<dyn ProtectedSink>,
    /// Protected packets, arriving.
    pub protected_source: Box<dyn ProtectedSource>,
    /// Packets that were protected.
    pub plaintext_sink: Box<dyn PlaintextSink>,
    /// A second sink of the plaintext side, for ICMP errors to senders of packets that are too big.
    pub replies: Option<Box<dyn PlaintextSink>>,
    /// Path MTUs that the protected side learns.
    pub paths: PmtuCache,
    /// Wake the sources' threads.
    pub wakers: Wakers,
}

/// Wake the thread that sleeps in a source, so that a stop does not wait until its sleep ends, and workers can tell it
/// what they have finished.
#[derive(Clone, Debug, Default)]
pub struct Wakers {
    /// That of the plaintext source.
    pub plaintext: Option<Waker>,
    /// That of the protected source.
    pub protected: Option<Waker>,
}

impl Wakers {
    fn wake(&self) {
        let both = [&self.plaintext, &self.protected];
        both.into_iter().flatten().for_each(Waker::wake);
    }
}

/// How the data plane works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Worker threads beside the two that read; with none those two do everything themselves.
    pub workers: Workers,
    /// CPUs and priority of all these threads.
    pub placement: Placement,
    /// How much is read at a time.
    pub batch: BatchSize,
    /// Batches in flight per direction, at least; with workers two for each and one more, up to 64.
    pub slots: usize,
    /// Whether a reading thread polls or sleeps when no packet is there.
    pub idle: Idle,
    /// The same for a worker.
    pub workers_idle: Idle,
    /// Batches in a row after which a reading thread yields the processor; 0 for never.
    pub poll_budget: u32,
    /// The largest outer packet where no path MTU is known.
    pub path_mtu: usize,
    /// Makes the IVs of CBC suites repeatable, for tests only; by default the system's generator seeds them.
    pub seed: Option<[u8; SEED_LEN]>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: Workers::Forced(0),
            placement: Placement::default(),
            batch: BatchSize::default(),
            slots: 8,
            idle: Idle::default(),
            workers_idle: Idle::default(),
            poll_budget: 64,
            path_mtu: 65_535,
            seed: None,
        }
    }
}

/// The counts of both directions since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Plaintext to protected.
    pub outbound: PacketCounts,
    /// Protected to plaintext.
    pub inbound: PacketCounts,
}

/// The running data plane. Dropping it stops it.
pub struct DataPlane {
    stop: Arc<AtomicBool>,
    wakers: Wakers,
    readers: Vec<JoinHandle<()>>,
    /// Ends after the readers, which still drain their lanes.
    threads: Arc<WorkerThreads>,
    report_cells: [ReportCell; 2],
    safepoints: [Arc<Safepoint>; 2],
    outbound: Arc<Counters>,
    inbound: Arc<Counters>,
}

/// One for each direction.
const READING_THREADS: usize = 2;

/// Batches in flight for the sake of workers, at most: each may take 360 KB.
const MAX_SLOTS_OF_WORKERS: usize = 64;

/// The longest sleep of a reading thread without a wake-up.
const MAX_SLEEP: Duration = Duration::from_millis(100);

impl DataPlane {
    /// Starts both directions. Every batch uses the snapshot that `databases` holds when it begins.
    pub fn start(
        ends: Ends,
        databases: Arc<ArcSwap<Snapshot>>,
        options: &Options,
        hook: Hook,
    ) -> io::Result<Self> {
        let (outbound, inbound) = (Arc::default(), Arc::default());
        let wakers = ends.wakers.clone();
        let work_ready = Arc::new(Event::default());
        let (out_pump, in_pump) = pumps(
            ends,
            databases,
            options,
            (&hook, &work_ready),
            (&outbound, &inbound),
        )?;
        let lanes: Vec<Arc<dyn WorkSource>> = vec![out_pump.lane().clone(), in_pump.lane().clone()];
        let threads = WorkerThreads::new(
            options.placement.clone(),
            options.workers_idle,
            lanes,
            work_ready,
        );
        threads.grow_to(options.workers.at_first())?;
        let mut plane = Self {
            stop: Arc::new(AtomicBool::new(false)),
            wakers,
            readers: Vec::with_capacity(READING_THREADS),
            threads: Arc::new(threads),
            report_cells: [(); 2].map(|()| governor::report_cell(options.workers)),
            safepoints: Default::default(),
            outbound,
            inbound,
        };
        plane.read("outbound", Direction::Out, out_pump, options, &hook)?;
        plane.read("inbound", Direction::In, in_pump, options, &hook)?;
        Ok(plane)
    }

    /// Starts one direction's reading thread.
    fn read<P, C>(
        &mut self,
        name: &str,
        direction: Direction,
        pump: Pump<P, C>,
        options: &Options,
        hook: &Hook,
    ) -> io::Result<()>
    where
        P: Prepare + 'static,
        C: Commit<P::Batch> + 'static,
    {
        let reader = Reader {
            stop: Arc::clone(&self.stop),
            idle: options.idle,
            poll_budget: options.poll_budget,
            processors: wake::processors(&options.placement.cpus),
            workers: options.workers,
            threads: Arc::clone(&self.threads),
            report_cell: Arc::clone(&self.report_cells[self.readers.len()]),
            safepoint: Arc::clone(&self.safepoints[self.readers.len()]),
            placement: options.placement.clone(),
            direction,
            hook: Arc::clone(hook),
        };
        let thread = Builder::new().name(name.into());
        self.readers.push(thread.spawn(move || reader.run(pump))?);
        Ok(())
    }

    /// Packets carried and dropped so far.
    pub fn totals(&self) -> Totals {
        Totals {
            outbound: self.outbound.read(),
            inbound: self.inbound.read(),
        }
    }

    /// The state of the outbound and the inbound lane: workers, load, costs, and the reason for the number of workers.
    pub fn lanes(&self) -> [LaneReport; 2] {
        let read =
            |report_cell: &ReportCell| *report_cell.lock().unwrap_or_else(PoisonError::into_inner);
        [read(&self.report_cells[0]), read(&self.report_cells[1])]
    }

    /// Holds the outbound or the inbound reading thread at a moment at which all that it has read has left, and gives
    /// up after `limit`. Packets that arrive wait in the source's queue until the hold is dropped.
    pub fn hold(&self, direction: Direction, moment: Moment, limit: Duration) -> Option<Held> {
        let place = usize::from(direction != Direction::Out);
        self.safepoints[place].hold(moment, limit, || self.wakers.wake())
    }

    /// Stops reading, sends all batches in flight, and returns the final counts.
    pub fn stop(mut self) -> Totals {
        self.halt();
        self.totals()
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wakers.wake();
        self.safepoints.iter().for_each(|safepoint| safepoint.end());
        for reader in self.readers.drain(..) {
            // A thread that panicked has printed its message already.
            let _ = reader.join();
        }
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.halt();
    }
}

fn pumps(
    ends: Ends,
    databases: Arc<ArcSwap<Snapshot>>,
    options: &Options,
    (hook, work_ready): (&Hook, &Arc<Event>),
    (outbound, inbound): (&Arc<Counters>, &Arc<Counters>),
) -> io::Result<(OutboundPump, InboundPump)> {
    // Each worker can have a batch while the next one is ready for it.
    let of_workers = (2 * options.workers.at_most() + 1).min(MAX_SLOTS_OF_WORKERS);
    let slots = options.slots.max(of_workers);
    let processors = wake::processors(&options.placement.cpus);
    let lane_config = |waker| LaneConfig {
        slots,
        // On a processor that a reading thread needs a worker would only take its time.
        left_to_workers: processors.saturating_sub(READING_THREADS),
        workers: options.workers.at_first(),
        waker,
    };
    let Wakers {
        plaintext,
        protected,
    } = ends.wakers;
    let outbound = Outbound {
        source: ends.plaintext_source,
        sink: ends.protected_sink,
        replies: ends.replies,
        databases: Arc::clone(&databases),
        ivs: match &options.seed {
            Some(seed) => IvSource::seeded(seed),
            None => IvSource::from_system()?,
        },
        paths: PathMtus::new(ends.paths.clone(), options.path_mtu),
        hook: Arc::clone(hook),
        counters: Arc::clone(outbound),
    };
    let inbound = Inbound {
        source: ends.protected_source,
        sink: ends.plaintext_sink,
        databases,
        paths: PathMtus::new(ends.paths, options.path_mtu),
        counters: Arc::clone(inbound),
    };
    Ok((
        outbound.pump(
            options.batch,
            &lane_config(plaintext),
            Arc::clone(work_ready),
        ),
        inbound.pump(
            options.batch,
            &lane_config(protected),
            Arc::clone(work_ready),
        ),
    ))
}

/// One direction's thread.
struct Reader {
    stop: Arc<AtomicBool>,
    idle: Idle,
    poll_budget: u32,
    processors: usize,
    workers: Workers,
    threads: Arc<WorkerThreads>,
    report_cell: ReportCell,
    safepoint: Arc<Safepoint>,
    placement: Placement,
    direction: Direction,
    hook: Hook,
}

impl Reader {
    fn run<P: Prepare, C: Commit<P::Batch>>(self, mut pump: Pump<P, C>) {
        self.placement.apply_or_warn();
        if let Err(error) = self.pump(&mut pump) {
            let direction = self.direction;
            (self.hook)(Notice::Failed { direction, error });
        }
        pump.drain();
        self.safepoint.end();
    }

    fn pump<P: Prepare, C: Commit<P::Batch>>(&self, pump: &mut Pump<P, C>) -> io::Result<()> {
        let (threads, report_cell) = (Arc::clone(&self.threads), Arc::clone(&self.report_cell));
        let mut governor = Governor::of_this_thread(self.workers, threads, report_cell);
        let (mut poll_until, mut in_a_row) = (Instant::now(), 0);
        while !self.stop.load(Ordering::Relaxed) {
            let asked = self.safepoint.asked();
            let wait = match self.idle {
                _ if asked.is_some() => Wait::Poll,
                Idle::Sleep => Wait::AtMost(MAX_SLEEP),
                Idle::Adaptive(_) if Instant::now() >= poll_until => Wait::AtMost(MAX_SLEEP),
                Idle::Adaptive(_) | Idle::Busy => Wait::Poll,
            };
            let count = pump.step(wait)?;
            if asked.is_some_and(|moment| count == 0 || moment == Moment::BatchOver) {
                pump.drain();
                self.safepoint.stay();
                continue;
            }
            if let (Idle::Adaptive(time), 1..) = (self.idle, count) {
                poll_until = Instant::now() + time;
            }
            in_a_row = if count > 0 { in_a_row + 1 } else { 0 };
            let is_over_budget = self.poll_budget > 0 && in_a_row >= self.poll_budget;
            let found_nothing = count == 0 && wait == Wait::Poll;
            if is_over_budget || found_nothing && self.is_crowded(pump) {
                std::thread::yield_now();
                in_a_row = 0;
            }
            let step = match (count, wait) {
                (1.., _) => PumpStep::Carried,
                (0, Wait::Poll) => PumpStep::Polled,
                (0, Wait::AtMost(_)) => PumpStep::Slept,
            };
            if let Some(workers) = governor.after(step, pump.lane()) {
                pump.set_workers(workers);
            }
        }
        Ok(())
    }

    /// Whether there are fewer processors than threads.
    fn is_crowded<P: Prepare, C: Commit<P::Batch>>(&self, pump: &Pump<P, C>) -> bool {
        self.processors <= READING_THREADS + pump.lane().workers()
    }
}
