//! A lane: an ordered queue whose middle step runs on many threads at once.
//!
//! ```text
//!              committed            claimed             published
//!   ring   ────────┬───────────────────┬────────────────────┬──────────
//!   slots     free │ Claimed │ Done    │ Ready  │ Ready     │ free
//!                  ▲                   ▲                    ▲
//!        commit, in order,    any thread claims    the one producer publishes:
//!        under one lock       and transforms       in order and on offer in one act
//! ```
//!
//! Who finishes a batch tries to take the committing role and empties the ring from its head. A head that nobody has
//! claimed is transformed by the committing thread itself, so that with no workers the same code runs inline.
//!
//! No commit is lost: a slot turns `Done` under its own lock before its worker tries for the role, and whoever gives
//! the role back looks at the head's slot again afterwards. If that look came too early to see `Done`, the worker's
//! try comes after the role was given back, and succeeds.

use super::event::Event;
use super::meter::{Hands, Meter};
use super::worker::Serve;
use crossbeam_utils::CachePadded;
#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// The middle step of a batch: any thread, any order, several at a time.
pub trait Transform: Send {
    /// Does the work that needs no order.
    fn transform(&mut self);

    /// How many packets came with it, segments and coalesced datagrams counted singly; known once it is prepared.
    fn arrived(&self) -> u64 {
        1
    }
}

/// The last step: one batch after the other, in the order in which they were published.
pub trait Commit<B>: Send {
    /// Takes a transformed batch out of the lane.
    fn commit(&mut self, batch: Box<B>);
}

/// A place in the ring. A batch that failed stays in its slot until its turn comes: never a hole.
enum Slot<B> {
    Free,
    Ready(Box<B>),
    Claimed,
    Done(Box<B>),
}

/// The queue itself, shared by the producer and all workers.
pub struct Lane<B, C> {
    slots: Box<[CachePadded<Mutex<Slot<B>>>]>,
    /// How many batches were ever published. Written by the producer alone.
    published: CachePadded<AtomicU64>,
    /// How many were ever claimed, at most `published`.
    claimed: CachePadded<AtomicU64>,
    /// How many were ever committed, at most `claimed`. Written by who has the role alone.
    committed: CachePadded<AtomicU64>,
    /// Whether a thread has the committing role.
    role: CachePadded<AtomicBool>,
    /// Never contended: locked by who has the role alone.
    committer: Mutex<C>,
    /// How many workers take part; with none they all pass by. Changed by the producer alone, between two batches.
    workers: AtomicUsize,
    /// Calls a worker.
    bell: Arc<Event>,
    /// Tells a waiting producer that the head moved on.
    moved: Event,
    meter: CachePadded<Meter>,
}

/// The one producer's handle.
pub struct Producer<B, C> {
    lane: Arc<Lane<B, C>>,
}

impl<B: Transform, C: Commit<B>> Producer<B, C> {
    /// A lane of `slots` places whose batches end in `committer`; `bell` calls the workers.
    pub fn new(slots: usize, committer: C, bell: Arc<Event>) -> Self {
        let slot = || CachePadded::new(Mutex::new(Slot::Free));
        let counter = || CachePadded::new(AtomicU64::new(0));
        let lane = Lane {
            slots: (0..slots.max(1)).map(|_| slot()).collect(),
            published: counter(),
            claimed: counter(),
            committed: counter(),
            role: CachePadded::new(AtomicBool::new(false)),
            committer: Mutex::new(committer),
            workers: AtomicUsize::new(0),
            bell,
            moved: Event::default(),
            meter: CachePadded::default(),
        };
        Self {
            lane: Arc::new(lane),
        }
    }

    /// The lane, for the workers.
    pub fn lane(&self) -> &Arc<Lane<B, C>> {
        &self.lane
    }

    /// Puts `batch` behind all others and on offer. A full ring makes the caller work, or wait, until there is room.
    pub fn publish(&mut self, batch: Box<B>) {
        let lane = &*self.lane;
        lane.help_until_below(lane.slots.len() as u64);
        let place = lane.published.load(Ordering::Relaxed);
        *lane.slot(place) = Slot::Ready(batch);
        lane.published.store(place + 1, Ordering::Release);
        // One batch is soon done by its producer, which asks for more input first: waking a thread for it costs more.
        if lane.on_offer() > 1 && lane.workers() > 0 {
            lane.meter.call(|| lane.bell.announce());
        }
    }

    /// Lets so many workers take part from the next batch on; with none, does what is on offer and keeps the rest.
    ///
    /// INVARIANT: a batch on offer is done by whoever claims it and leaves in its turn, whatever this says: order does not
    /// depend on it. A worker that has not heard of a change takes one batch more, or comes when it is called again.
    pub fn engage(&mut self, workers: usize) {
        self.lane.workers.store(workers, Ordering::SeqCst);
        if workers == 0 {
            self.work();
        }
    }

    /// Works as long as anything is on offer.
    pub fn work(&mut self) {
        while self.lane.work_once(Hands::Own) {}
    }

    /// Works while there is so much on offer that another pair of hands is better than more input: more than a batch for
    /// each worker.
    pub fn help(&mut self) {
        let offers = self.lane.workers() as u64;
        while self.on_offer() > offers && self.lane.work_once(Hands::Own) {}
    }

    /// Returns when everything published has been committed.
    pub fn drain(&mut self) {
        self.lane.help_until_below(1);
    }

    /// Batches that nobody has begun to transform.
    pub fn on_offer(&self) -> u64 {
        self.lane.on_offer()
    }

    /// Batches published and not yet committed.
    pub fn in_flight(&self) -> u64 {
        self.lane.in_flight()
    }
}

impl<B: Transform, C: Commit<B>> Serve for Lane<B, C> {
    fn serve(&self) -> bool {
        self.workers() > 0 && self.work_once(Hands::Worker)
    }

    fn has_work(&self) -> bool {
        self.workers() > 0 && self.on_offer() > 0
    }
}

impl<B: Transform, C: Commit<B>> Lane<B, C> {
    /// How many workers take part.
    pub fn workers(&self) -> usize {
        self.workers.load(Ordering::SeqCst)
    }

    /// What its work has cost so far.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Batches that nobody has begun to transform.
    fn on_offer(&self) -> u64 {
        // `claimed` first: it never passes a `published` read later.
        let claimed = self.claimed.load(Ordering::Acquire);
        self.published.load(Ordering::Acquire) - claimed
    }

    /// Transforms the oldest batch on offer, if there is one, and commits what can be.
    fn work_once(&self, hands: Hands) -> bool {
        let Some(place) = self.claim() else {
            return false;
        };
        self.transform(place, hands);
        self.commit(hands);
        true
    }

    fn in_flight(&self) -> u64 {
        let committed = self.committed.load(Ordering::Acquire);
        self.published.load(Ordering::Acquire) - committed
    }

    /// The producer's back-pressure: works, and once everything is claimed by others waits for them.
    fn help_until_below(&self, limit: u64) {
        while self.in_flight() >= limit {
            if !self.work_once(Hands::Own) {
                self.moved.wait_until(|| self.in_flight() < limit);
            }
        }
    }

    fn slot(&self, place: u64) -> MutexGuard<'_, Slot<B>> {
        let index = (place % self.slots.len() as u64) as usize;
        self.slots[index]
            .lock()
            .expect("no panic under a slot's lock")
    }

    /// The oldest batch on offer becomes the caller's to transform.
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
    fn transform(&self, place: u64, hands: Hands) {
        let slot = std::mem::replace(&mut *self.slot(place), Slot::Claimed);
        // INVARIANT: what was published and claimed once is Ready; its claimer alone turns it.
        let Slot::Ready(mut batch) = slot else {
            unreachable!("a claimed slot was not ready")
        };
        let alarm = Alarm;
        let packets = batch.arrived();
        self.meter.transform(hands, packets, || batch.transform());
        std::mem::forget(alarm);
        *self.slot(place) = Slot::Done(batch);
    }

    /// Empties the ring from its head as far as it is done, unless another thread is at it.
    fn commit(&self, hands: Hands) {
        // INVARIANT: who finds the role taken leaves its batch to whoever has it. That thread's look at the head comes
        // after it gave the role back: had it come before the batch was done, the slot's lock would make that
        // giving-back visible here, and the role would be free.
        while self.take_role() {
            self.commit_all_done(hands);
            self.role.store(false, Ordering::Release);
            if !self.head_is_done() {
                return;
            }
        }
    }

    fn take_role(&self) -> bool {
        let taken = self
            .role
            .compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok()
    }

    fn commit_all_done(&self, hands: Hands) {
        let mut committer = self.committer.lock().expect("no committer panicked");
        while let Some(batch) = self.take_head(hands) {
            committer.commit(batch);
            let committed = self.committed.load(Ordering::Relaxed) + 1;
            self.committed.store(committed, Ordering::Release);
            self.moved.announce();
        }
    }

    /// The batch at the head if it is done; one that nobody has claimed is transformed first. Under the role only.
    fn take_head(&self, hands: Hands) -> Option<Box<B>> {
        let head = self.committed.load(Ordering::Relaxed);
        if self.claim_at(head) {
            self.transform(head, hands);
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

    fn claim_at(&self, place: u64) -> bool {
        let claim = |claimed| {
            self.claimed
                .compare_exchange(claimed, claimed + 1, Ordering::AcqRel, Ordering::Relaxed)
        };
        place < self.published.load(Ordering::Acquire) && claim(place).is_ok()
    }

    fn head_is_done(&self) -> bool {
        let head = self.committed.load(Ordering::Acquire);
        matches!(*self.slot(head), Slot::Done(_))
    }
}

/// Ends the process if a transform panics: its batch would block the lane for ever, and a gateway that stands still
/// in silence is worse than one that a supervisor starts again.
struct Alarm;

impl Drop for Alarm {
    fn drop(&mut self) {
        eprintln!("esplanade: a batch's transform panicked; this is a bug, please report it");
        std::process::abort();
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
