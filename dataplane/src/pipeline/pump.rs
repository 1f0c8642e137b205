//! A pump: the reading thread of one direction, from source to lane.

use super::event::Event;
use super::lane::{Commit, Lane, Producer, Transform};
use crate::buffers::Pool;
use crate::io::Wait;
use std::io;
use std::sync::Arc;

/// The first step of a direction: reads a batch and does what must be done in order before the ciphers run.
pub trait Prepare: Send {
    /// What the steps work on.
    type Batch: Transform + 'static;

    /// Reads what is there into an empty batch; returns the number of items.
    fn fill(&mut self, batch: &mut Self::Batch, wait: Wait) -> io::Result<usize>;

    /// Plans the packets of a filled batch, in order.
    fn prepare(&mut self, batch: &mut Self::Batch);
}

/// The configuration of a lane.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Batches that may be in flight.
    pub slots: usize,
    /// Workers of the lane at first; with 0 the pump transforms all batches itself.
    pub workers: usize,
}

/// Reads, prepares and publishes; transforms batches itself whenever that is better than reading on.
pub struct Pump<P: Prepare, C> {
    prepare: P,
    producer: Producer<P::Batch, C>,
    pool: Arc<Pool<P::Batch>>,
}

impl<P: Prepare, C: Commit<P::Batch>> Pump<P, C> {
    /// A pump whose batches come from `pool`; `committer` returns them to it.
    pub fn new(
        prepare: P,
        committer: C,
        pool: Arc<Pool<P::Batch>>,
        lane_config: &LaneConfig,
        work_ready: Arc<Event>,
    ) -> Self {
        let mut producer = Producer::new(lane_config.slots, committer, work_ready);
        producer.set_workers(lane_config.workers);
        Self {
            prepare,
            producer,
            pool,
        }
    }

    /// Changes the number of workers from the next batch on; with 0 this thread does everything itself. Batches in
    /// flight are finished by the threads that have them, and all leave in order.
    pub fn set_workers(&mut self, workers: usize) {
        self.producer.set_workers(workers);
    }

    /// The lane, for the workers.
    pub fn lane(&self) -> &Arc<Lane<P::Batch>> {
        self.producer.lane()
    }

    /// Moves one batch, if there is one within `wait`; returns how many items it had.
    ///
    /// When the source is empty, this thread transforms what is on offer at once: no batch waits for a worker to wake
    /// up. Before it sleeps in its source it has committed everything, as no other thread does.
    pub fn step(&mut self, wait: Wait) -> io::Result<usize> {
        let mut batch = self.pool.take();
        let wait_now = if self.producer.in_flight() > 0 {
            Wait::Poll
        } else {
            wait
        };
        let count = self.prepare.fill(&mut batch, wait_now);
        if !matches!(count, Ok(1..)) {
            self.pool.give_back(batch);
            match wait {
                Wait::Poll => self.producer.work(),
                Wait::AtMost(_) => self.producer.drain(),
            }
            return count;
        }
        self.prepare.prepare(&mut batch);
        self.producer.publish(batch);
        self.producer.help();
        count
    }

    /// Returns when everything read has been committed.
    pub fn drain(&mut self) {
        self.producer.drain();
    }
}
