//! A pump: the reading thread of one direction, from source to lane.

use super::event::Event;
use super::lane::{Commit, Lane, LeftToWorkers, Producer, Transform};
use super::source_sleep::WakeReader;
use crate::buffers::Pool;
use crate::io::{Wait, Waker};
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
    /// Batches that may be left to workers at a time while the source is empty.
    pub left_to_workers: usize,
    /// Ends the pump's sleep in its source; without, none is left to workers.
    pub waker: Option<Waker>,
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
        let wake = lane_config
            .waker
            .clone()
            .map(|waker| -> WakeReader { Box::new(move || waker.wake()) });
        let left = LeftToWorkers {
            at_most: lane_config.left_to_workers,
            wake,
        };
        let mut producer = Producer::new(lane_config.slots, committer, work_ready, left);
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
    /// up. A batch that takes longer than that is left to a worker, if one is free, and this thread is there for the
    /// packets that arrive meanwhile. Before it sleeps in its source it has committed everything, or workers have all
    /// of it and wake this thread, as no other thread commits.
    pub fn step(&mut self, wait: Wait) -> io::Result<usize> {
        let mut batch = self.pool.take();
        let wait_now = if self.producer.in_flight() > 0 {
            Wait::Poll
        } else {
            wait
        };
        let mut count = self.prepare.fill(&mut batch, wait_now);
        if let (Ok(0), Wait::AtMost(limit)) = (&count, wait) {
            let prepare = &mut self.prepare;
            let read = |limit| prepare.fill(&mut batch, Wait::AtMost(limit));
            if let Some(found) = self.producer.read_beside_workers(limit, read) {
                count = found;
            } else {
                self.producer.drain();
            }
        }
        if !matches!(count, Ok(1..)) {
            self.pool.give_back(batch);
            self.producer.work();
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

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::super::affinity::Placement;
    use super::super::worker::{Idle, WorkSource, WorkerThreads};
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    /// Numbers that come by a socket.
    struct Numbers {
        socket: UnixDatagram,
        waker: Waker,
    }

    /// The numbers of one read, which take long.
    #[derive(Default)]
    struct Batch(Vec<u8>);

    struct Collected {
        numbers: Vec<u8>,
        pool: Arc<Pool<Batch>>,
    }

    impl Prepare for Numbers {
        type Batch = Batch;

        fn fill(&mut self, batch: &mut Batch, wait: Wait) -> io::Result<usize> {
            if let Wait::AtMost(limit) = wait {
                let mut both = [
                    PollFd::new(&self.socket, PollFlags::IN),
                    PollFd::new(&self.waker, PollFlags::IN),
                ];
                poll(&mut both, Some(&Timespec::try_from(limit).unwrap()))?;
                self.waker.take();
            }
            batch.0 = vec![0; 3];
            let count = self.socket.recv(&mut batch.0).unwrap_or(0);
            batch.0.truncate(count);
            Ok(count)
        }

        fn prepare(&mut self, _: &mut Batch) {}
    }

    impl Transform for Batch {
        fn transform(&mut self) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    impl Commit<Batch> for Collected {
        fn commit(&mut self, batch: Box<Batch>) {
            self.numbers.extend(&batch.0);
            self.pool.give_back(batch);
        }
    }

    #[test]
    fn long_batches_are_transformed_by_workers_while_the_pump_sleeps_and_leave_in_order() {
        let (feeder, socket) = UnixDatagram::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let waker = Waker::new().unwrap();
        let config = LaneConfig {
            slots: 8,
            workers: 3,
            left_to_workers: 3,
            waker: Some(waker.clone()),
        };
        let (pool, work_ready) = (Arc::new(Pool::new(8, Batch::default)), Arc::default());
        let collected = Collected {
            numbers: Vec::new(),
            pool: Arc::clone(&pool),
        };
        let numbers = Numbers { socket, waker };
        let mut pump = Pump::new(numbers, collected, pool, &config, Arc::clone(&work_ready));
        let lane: Arc<dyn WorkSource> = pump.lane().clone();
        let placement = Placement::default();
        let workers = WorkerThreads::start(3, placement, Idle::Sleep, vec![lane], work_ready);
        let feeding = std::thread::spawn(move || {
            for number in 0..=u8::MAX {
                feeder.send(&[number]).unwrap();
                if number.is_multiple_of(3) {
                    std::thread::sleep(Duration::from_micros(1500));
                }
            }
            OwnedFd::from(feeder)
        });
        let mut read = 0;
        while read < 256 {
            read += pump.step(Wait::AtMost(Duration::from_secs(1))).unwrap();
        }
        // Nothing more comes: the ends of the last batches alone end the pump's sleeps.
        while pump.producer.in_flight() > 0 {
            pump.step(Wait::AtMost(Duration::from_secs(1))).unwrap();
        }
        let stats = pump.lane().stats().read();
        drop((workers.unwrap(), feeding.join().unwrap()));
        assert!(
            pump.producer
                .committer()
                .numbers
                .iter()
                .copied()
                .eq(0..=u8::MAX)
        );
        let by_workers = stats.transform - stats.own_transform;
        assert!(by_workers > 3 * stats.own_transform, "{stats:?}");
    }
}
