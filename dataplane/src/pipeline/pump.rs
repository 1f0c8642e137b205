//! A pump: the reading thread of one direction, from source to lane.

use super::event::Event;
use super::lane::{Commit, Lane, Producer, Transform};
use crate::buffers::Pool;
use crate::io::Wait;
use std::io;
use std::sync::Arc;

/// The first step of a direction: reads a batch and does what must be done in order before the ciphers run.
pub trait Prepare: Send {
    /// What moves.
    type Batch: Transform + 'static;

    /// Reads what is there into an empty batch; returns how many items came.
    fn fill(&mut self, batch: &mut Self::Batch, wait: Wait) -> io::Result<usize>;

    /// Numbers and plans the packets of a filled batch.
    fn prepare(&mut self, batch: &mut Self::Batch);
}

/// How a pump works together with its workers.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Batches that may be in flight: what a burst may wait in.
    pub slots: usize,
    /// Workers that serve the lane at first; with none the pump does all the work itself.
    pub workers: usize,
}

/// Reads, prepares and publishes; works itself whenever that is better than reading on.
pub struct Pump<P: Prepare, C> {
    prepare: P,
    producer: Producer<P::Batch, C>,
    pool: Arc<Pool<P::Batch>>,
}

impl<P: Prepare, C: Commit<P::Batch>> Pump<P, C> {
    /// A pump whose batches come from `pool`, to which `committer` gives them back.
    pub fn new(
        prepare: P,
        committer: C,
        pool: Arc<Pool<P::Batch>>,
        lane_config: &LaneConfig,
        bell: Arc<Event>,
    ) -> Self {
        let mut producer = Producer::new(lane_config.slots, committer, bell);
        producer.engage(lane_config.workers);
        Self {
            prepare,
            producer,
            pool,
        }
    }

    /// From the next batch on so many workers take part; with none this thread does everything itself. Whoever had a batch
    /// finishes it, and all leave in the order in which they came.
    pub fn engage(&mut self, workers: usize) {
        self.producer.engage(workers);
    }

    /// The lane, for the workers.
    pub fn lane(&self) -> &Arc<Lane<P::Batch>> {
        self.producer.lane()
    }

    /// Moves one batch, if there is one within `wait`; returns how many items it had.
    ///
    /// What is on offer when the source runs dry is worked off at once: nothing waits for a worker to wake up. A thread
    /// that is about to sleep in its source has committed everything first, for nobody else does.
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
