//! Worker threads: they transform the batches that any lane offers, and sleep when there are none.

use super::affinity::Placement;
use super::event::Event;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A lane as workers see it.
pub trait WorkSource: Send + Sync {
    /// Transforms one batch, if one is on offer.
    fn run_one(&self) -> bool;

    /// Whether one is on offer.
    fn has_work(&self) -> bool;
}

/// What a thread does while there is no work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// Sleep at once: cheapest, and slowest to wake.
    Sleep,
    /// Poll for this long, then sleep.
    Adaptive(Duration),
    /// Never sleep: for processors that have no other work.
    Busy,
}

impl Default for Idle {
    /// MEASURED: waking a thread costs about 5 µs on a 2-core VM; polling for longer than twice that takes the
    /// processor from the thread that would pass on the next packet.
    fn default() -> Self {
        Self::Adaptive(Duration::from_micros(10))
    }
}

/// The worker threads: as many as were needed at any time. Those that are not needed now sleep.
pub struct WorkerThreads {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    lanes: Vec<Arc<dyn WorkSource>>,
    work_ready: Arc<Event>,
    stop: AtomicBool,
    idle: Idle,
    placement: Placement,
}

impl WorkerThreads {
    /// No worker yet, for all `lanes`. Each worker will have this `placement`.
    pub fn new(
        placement: Placement,
        idle: Idle,
        lanes: Vec<Arc<dyn WorkSource>>,
        work_ready: Arc<Event>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                lanes,
                work_ready,
                stop: AtomicBool::new(false),
                idle,
                placement,
            }),
            threads: Mutex::default(),
        }
    }

    /// `count` workers.
    pub fn start(
        count: usize,
        placement: Placement,
        idle: Idle,
        lanes: Vec<Arc<dyn WorkSource>>,
        work_ready: Arc<Event>,
    ) -> io::Result<Self> {
        let threads = Self::new(placement, idle, lanes, work_ready);
        threads.grow_to(count)?;
        Ok(threads)
    }

    /// Starts workers until there are `count`.
    pub fn grow_to(&self, count: usize) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for number in threads.len()..count {
            let shared = Arc::clone(&self.shared);
            let thread = Builder::new().name(format!("worker-{number}"));
            threads.push(thread.spawn(move || shared.run(number))?);
        }
        Ok(())
    }
}

impl Drop for WorkerThreads {
    /// Lets every worker finish its batch.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.work_ready.notify_all();
        let threads = self
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A worker that panicked has printed its message already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, number: usize) {
        self.placement.apply_or_warn();
        let mut first = number;
        while !self.stopped() {
            first = first.wrapping_add(1);
            if !self.run_one_from(first) {
                self.idle();
            }
        }
    }

    /// Takes one batch from any lane, beginning with another lane each time.
    fn run_one_from(&self, first: usize) -> bool {
        let count = self.lanes.len();
        (0..count).any(|step| self.lanes[first.wrapping_add(step) % count].run_one())
    }

    fn idle(&self) {
        match self.idle {
            Idle::Busy => std::hint::spin_loop(),
            Idle::Sleep => self.sleep(),
            Idle::Adaptive(time) => {
                if !self.poll_for(time) {
                    self.sleep();
                }
            }
        }
    }

    fn poll_for(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.should_run() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    fn sleep(&self) {
        self.work_ready.wait_until(|| self.should_run());
    }

    fn should_run(&self) -> bool {
        self.stopped() || self.lanes.iter().any(|lane| lane.has_work())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
