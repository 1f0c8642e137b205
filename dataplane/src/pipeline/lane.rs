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
//! queues. Workers finish batches in their slots; the producer takes them out between two reads, and never sleeps in
//! its source before the lane is empty, so that no batch waits for more input.
//!
//! No finished batch is missed: a worker sets a slot to `Done` under the slot's lock before it notifies, and the
//! producer checks that slot after it has counted itself as a sleeper.

use super::event::Event;
use super::lane_stats::{LaneStats, TransformedBy};
use super::worker::WorkSource;
use crossbeam_utils::CachePadded;
#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

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
    /// How many were committed so far, at most `claimed`. Written by the producer only.
    committed: CachePadded<AtomicU64>,
    /// How many workers take part; with 0 they ignore this lane. Changed by the producer only, between two batches.
    workers: AtomicUsize,
    /// Wakes a worker.
    work_ready: Arc<Event>,
    /// Wakes a waiting producer when a worker has finished a batch.
    finished: Event,
    stats: CachePadded<LaneStats>,
}

/// The one producer's handle.
pub struct Producer<B, C> {
    lane: Arc<Lane<B>>,
    committer: C,
}

impl<B: Transform, C: Commit<B>> Producer<B, C> {
    /// A lane of `slots` slots whose batches end in `committer`; `work_ready` wakes the workers.
    pub fn new(slots: usize, committer: C, work_ready: Arc<Event>) -> Self {
        let slot = || CachePadded::new(Mutex::new(Slot::Free));
        let counter = || CachePadded::new(AtomicU64::new(0));
        let lane = Lane {
            slots: (0..slots.max(1)).map(|_| slot()).collect(),
            published: counter(),
            claimed: counter(),
            committed: counter(),
            workers: AtomicUsize::new(0),
            work_ready,
            finished: Event::default(),
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

    /// Appends `batch` and offers it to the workers. If the ring is full the caller transforms, or waits, until there
    /// is room.
    pub fn publish(&mut self, batch: Box<B>) {
        self.finish_until_below(self.lane.slots.len() as u64);
        let lane = &*self.lane;
        let place = lane.published.load(Ordering::Relaxed);
        *lane.slot(place) = Slot::Ready(batch);
        lane.published.store(place + 1, Ordering::Release);
        // The producer itself will soon transform a single batch, after it has polled for input: waking a thread costs
        // more.
        if lane.on_offer() > 1 && lane.workers() > 0 {
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

    /// Transforms as long as a batch is on offer, and commits what is done.
    pub fn work(&mut self) {
        while self.work_once() {}
        self.commit();
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

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
