//! A lane: an ordered queue whose middle step runs on many threads at once.
//!
//! ```text
//!              committed            claimed             published
//!   ring   ────────┬───────────────────┬────────────────────┬──────────
//!   slots     free │ Claimed │ Done    │ Ready  │ Ready     │ free
//!                  ▲                   ▲                    ▲
//!        commit, in order,    any thread claims    the one producer publishes:
//!        by the producer      and transforms       in order and on offer in one act
//! ```
//!
//! Only the producer commits. The kernel queues packets by the processor of the thread that sends them (a backlog, a
//! transmit queue), so batches that leave in order through different threads could still overtake each other in these
//! queues. Workers finish batches in their slots; the producer takes them out between two reads. It sleeps in its
//! source when the lane is empty, or when workers have all that is in it: then the worker that finishes the oldest
//! batch ends that sleep. So no batch waits for more input.
//!
//! No finished batch is missed: a worker sets a slot to `Done` under the slot's lock before it notifies, and the
//! producer checks that slot after it has counted itself as a sleeper.

use super::event::Event;
use super::lane_stats::{LaneStats, TransformedBy};
use super::source_sleep::{SourceSleep, WakeReader};
use super::worker::WorkSource;
use crossbeam_utils::CachePadded;
#[cfg(feature = "loom")]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
use std::io;
use std::sync::Arc;
#[cfg(not(feature = "loom"))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
use std::time::Duration;

/// The middle step of a batch: any thread, any order, several at a time.
pub trait Transform: Send {
    /// Does the work that needs no order.
    fn transform(&mut self);

    /// How many packets it has, segments and coalesced datagrams counted singly; known once it is prepared.
    fn arrived(&self) -> u64 {
        1
    }
}

/// The last step: one batch after the other, in the order in which they were published.
pub trait Commit<B>: Send {
    /// Takes a transformed batch out of the lane.
    fn commit(&mut self, batch: Box<B>);
}

/// Batches that a producer which finds nothing to read leaves to workers, and does not transform itself.
#[derive(Default)]
pub struct LeftToWorkers {
    /// How many at a time: as many as there are processors with nothing else to do.
    pub at_most: usize,
    /// Wakes the producer where it sleeps in its source meanwhile; without, it leaves none.
    pub wake: Option<WakeReader>,
}

/// A slot of the ring. A batch whose packets all failed stays in its slot until all earlier ones are committed.
enum Slot<B> {
    Free,
    Ready(Box<B>),
    Claimed,
    Done(Box<B>),
}

/// The queue itself, shared by the producer and all workers.
pub struct Lane<B> {
    slots: Box<[CachePadded<Mutex<Slot<B>>>]>,
    /// How many batches were published so far. Written by the producer only.
    published: CachePadded<AtomicU64>,
    /// How many were claimed so far, at most `published`.
    claimed: CachePadded<AtomicU64>,
    /// How many were transformed so far, at most `claimed`; each is counted a moment after it is done.
    transformed: CachePadded<AtomicU64>,
    /// How many were committed so far, at most `claimed`. Written by the producer only.
    committed: CachePadded<AtomicU64>,
    /// How many workers take part; with 0 they ignore this lane. Changed by the producer only, between two batches.
    workers: AtomicUsize,
    /// Wakes a worker.
    work_ready: Arc<Event>,
    /// Wakes a waiting producer when a worker has finished a batch.
    finished: Event,
    /// How many batches may be left to workers at a time.
    most_left: u64,
    /// Wakes a producer that sleeps in its source meanwhile.
    source_sleep: SourceSleep,
    stats: CachePadded<LaneStats>,
}

/// The one producer's handle.
pub struct Producer<B, C> {
    lane: Arc<Lane<B>>,
    committer: C,
}

/// A batch that takes at least this long is left to a worker, although the producer has nothing else to do. MEASURED:
/// on 16 processors one TCP stream by AES-128-GCM and four workers reaches 1.30 times as much where all batches are
/// left, 1.06 times where those of 30 µs are, and no more where those of 100 µs are. Below the limit is a packet that
/// comes alone: waking a worker for it would take longer than it does.
const MIN_LEFT_TO_WORKERS: Duration = Duration::from_micros(5);

/// The producer transforms a batch itself that no worker has begun for this long and for as long as a batch takes: the
/// workers have other lanes, and the system may have other work.
const MIN_WAIT_FOR_WORKERS: Duration = Duration::from_micros(50);

impl<B: Transform, C: Commit<B>> Producer<B, C> {
    /// A lane of `slots` slots whose batches end in `committer`; `work_ready` wakes the workers.
    pub fn new(slots: usize, committer: C, work_ready: Arc<Event>, left: LeftToWorkers) -> Self {
        let slot = || CachePadded::new(Mutex::new(Slot::Free));
        let counter = || CachePadded::new(AtomicU64::new(0));
        let lane = Lane {
            slots: (0..slots.max(1)).map(|_| slot()).collect(),
            published: counter(),
            claimed: counter(),
            transformed: counter(),
            committed: counter(),
            workers: AtomicUsize::new(0),
            work_ready,
            finished: Event::default(),
            most_left: left.at_most as u64,
            source_sleep: SourceSleep::new(left.wake),
            stats: CachePadded::default(),
        };
        Self {
            lane: Arc::new(lane),
            committer,
        }
    }

    /// The lane, for the workers.
    pub fn lane(&self) -> &Arc<Lane<B>> {
        &self.lane
    }

    /// What commits.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn committer(&self) -> &C {
        &self.committer
    }

    /// Appends `batch` and offers it to the workers. If the ring is full the caller transforms, or waits, until there
    /// is room.
    pub fn publish(&mut self, batch: Box<B>) {
        self.finish_until_below(self.lane.slots.len() as u64);
        let lane = &*self.lane;
        let place = lane.published.load(Ordering::Relaxed);
        *lane.slot(place) = Slot::Ready(batch);
        lane.published.store(place + 1, Ordering::Release);
        // The producer itself will soon transform a single batch, after it has polled for input, if waking a thread
        // costs more.
        if lane.workers() > 0 && (lane.on_offer() > 1 || lane.is_left_to_workers()) {
            lane.stats.wake(|| lane.work_ready.notify_one());
        }
    }

    /// Lets `workers` workers take part from the next batch on; with 0, transforms what is on offer itself.
    ///
    /// INVARIANT: an offered batch is transformed by the thread that claims it and is committed in order, so order does
    /// not depend on this. A worker that has not seen the change yet takes one batch more, or starts at its next
    /// wake-up.
    pub fn set_workers(&mut self, workers: usize) {
        self.lane.workers.store(workers, Ordering::SeqCst);
        if workers == 0 {
            self.work();
        }
    }

    /// Transforms what is on offer and not left to workers, and commits what is done.
    pub fn work(&mut self) {
        while !self.lane.is_left_to_workers() && self.work_once() {}
        self.commit();
    }

    /// If workers have all batches: reads by `read`, which sleeps until there is input, at most for the time that it is
    /// given; the worker that finishes the oldest batch ends that sleep. Nothing where the producer should work
    /// instead.
    pub fn read_beside_workers(
        &mut self,
        limit: Duration,
        read: impl FnOnce(Duration) -> io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        self.commit();
        let lane = &*self.lane;
        if lane.in_flight() == 0 || !lane.is_left_to_workers() {
            return None;
        }
        let patience = lane.stats.of_a_batch().max(MIN_WAIT_FOR_WORKERS);
        let limit = limit.min(patience);
        let head = lane.committed.load(Ordering::Relaxed);
        let found = lane
            .source_sleep
            .sleep(|| lane.head_is_done(), || read(limit))
            .unwrap_or(Ok(0));
        self.commit();
        let is_unbegun = self.lane.committed.load(Ordering::Relaxed) == head;
        if matches!(found, Ok(0)) && is_unbegun {
            self.work_once();
        }
        Some(found)
    }

    /// Commits what is done, and transforms while more batches are on offer than there are workers: then another thread
    /// helps more than reading on.
    pub fn help(&mut self) {
        self.commit();
        let offers = self.lane.workers() as u64;
        while self.on_offer() > offers && self.work_once() {}
    }

    /// Returns when everything published has been committed.
    pub fn drain(&mut self) {
        self.finish_until_below(1);
    }

    /// Batches that no thread has begun to transform.
    pub fn on_offer(&self) -> u64 {
        self.lane.on_offer()
    }

    /// Batches published and not yet committed.
    pub fn in_flight(&self) -> u64 {
        self.lane.in_flight()
    }

    fn work_once(&mut self) -> bool {
        let worked = self.lane.work_once(TransformedBy::Reader);
        if worked {
            self.commit();
        }
        worked
    }

    /// The producer's back-pressure: transforms, and once all batches are claimed waits for the oldest.
    fn finish_until_below(&mut self, limit: u64) {
        self.commit();
        while self.in_flight() >= limit {
            if !self.work_once() {
                let lane = &*self.lane;
                lane.finished.wait_until(|| lane.head_is_done());
                self.commit();
            }
        }
    }

    /// Commits from the head of the ring as far as batches are done.
    fn commit(&mut self) {
        while let Some(batch) = self.lane.take_head() {
            self.committer.commit(batch);
            self.lane.committed.fetch_add(1, Ordering::Release);
        }
    }
}

impl<B: Transform> WorkSource for Lane<B> {
    fn run_one(&self) -> bool {
        self.workers() > 0 && self.work_once(TransformedBy::Worker)
    }

    fn has_work(&self) -> bool {
        self.workers() > 0 && self.on_offer() > 0
    }
}

impl<B: Transform> Lane<B> {
    /// How many workers take part.
    pub fn workers(&self) -> usize {
        self.workers.load(Ordering::SeqCst)
    }

    /// The time spent on it so far.
    pub fn stats(&self) -> &LaneStats {
        &self.stats
    }

    /// Batches that no thread has begun to transform.
    fn on_offer(&self) -> u64 {
        // `claimed` first: it never passes a `published` read later.
        let claimed = self.claimed.load(Ordering::Acquire);
        self.published.load(Ordering::Acquire) - claimed
    }

    /// Whether there is a worker, and a processor, for each batch that is not transformed yet, and a batch takes longer
    /// than waking one.
    fn is_left_to_workers(&self) -> bool {
        let transformed = self.transformed.load(Ordering::Acquire);
        let waiting = self.published.load(Ordering::Acquire) - transformed;
        self.source_sleep.can_be_ended()
            && self.stats.of_a_batch() >= MIN_LEFT_TO_WORKERS
            && waiting <= self.most_left.min(self.workers() as u64)
    }

    fn in_flight(&self) -> u64 {
        let committed = self.committed.load(Ordering::Acquire);
        self.published.load(Ordering::Acquire) - committed
    }

    /// Transforms the oldest batch on offer, if there is one.
    fn work_once(&self, by: TransformedBy) -> bool {
        let Some(place) = self.claim() else {
            return false;
        };
        self.transform(place, by);
        if by == TransformedBy::Worker {
            self.finished.notify_one();
            self.source_sleep.end_if(|| self.head_is_done());
        }
        true
    }

    fn slot(&self, place: u64) -> MutexGuard<'_, Slot<B>> {
        let index = (place % self.slots.len() as u64) as usize;
        self.slots[index]
            .lock()
            .expect("no panic under a slot's lock")
    }

    /// Claims the oldest batch on offer for the caller.
    fn claim(&self) -> Option<u64> {
        let mut place = self.claimed.load(Ordering::Acquire);
        while place < self.published.load(Ordering::Acquire) {
            let next = self.claimed.compare_exchange_weak(
                place,
                place + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match next {
                Ok(_) => return Some(place),
                Err(moved) => place = moved,
            }
        }
        None
    }

    /// Transforms the claimed batch at `place` outside every lock.
    fn transform(&self, place: u64, by: TransformedBy) {
        let slot = std::mem::replace(&mut *self.slot(place), Slot::Claimed);
        // INVARIANT: a batch that was published and claimed is Ready; only the thread that claimed it changes that.
        let Slot::Ready(mut batch) = slot else {
            unreachable!("a claimed slot was not ready")
        };
        let guard = AbortOnPanic;
        let packets = batch.arrived();
        self.stats.transform(by, packets, || batch.transform());
        std::mem::forget(guard);
        *self.slot(place) = Slot::Done(batch);
        self.transformed.fetch_add(1, Ordering::Release);
    }

    /// The batch at the head if it is done. Called by the producer only.
    fn take_head(&self) -> Option<Box<B>> {
        let head = self.committed.load(Ordering::Relaxed);
        if head == self.published.load(Ordering::Relaxed) {
            return None;
        }
        let mut slot = self.slot(head);
        match std::mem::replace(&mut *slot, Slot::Free) {
            Slot::Done(batch) => Some(batch),
            other => {
                *slot = other;
                None
            }
        }
    }

    fn head_is_done(&self) -> bool {
        let head = self.committed.load(Ordering::Acquire);
        matches!(*self.slot(head), Slot::Done(_))
    }
}

/// Ends the process if a transform panics: its batch would block the lane forever, and a supervisor restarts a gateway
/// that has exited, not one that hangs.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        eprintln!("esplanade: a batch's transform panicked; this is a bug, please report it");
        std::process::abort();
    }
}

#[cfg(all(test, feature = "loom"))]
mod model;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
