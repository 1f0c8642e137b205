//! The workers: threads that transform whatever any lane has on offer, and sleep when there is nothing.

use super::affinity::Placement;
use super::event::Event;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Something that workers take work from.
pub trait WorkSource: Send + Sync {
    /// Does one piece of work, if there is one.
    fn run_one(&self) -> bool;

    /// Whether there is one.
    fn has_work(&self) -> bool;
}

/// What a thread does when it has nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// Sleep at once: cheapest, and slowest to wake.
    Sleep,
    /// Look again for this long, then sleep.
    Adaptive(Duration),
    /// Never sleep: for processors that have nothing else to do.
    Busy,
}

impl Default for Idle {
    /// MEASURED: waking a thread costs about 5 µs on a 2-core VM; looking for longer than twice that takes the
    /// processor from whoever would bring the next packet.
    fn default() -> Self {
        Self::Adaptive(Duration::from_micros(10))
    }
}

/// The workers: as many threads as were ever asked for. Those that are not needed sleep.
pub struct WorkerThreads {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    lanes: Vec<Arc<dyn WorkSource>>,
    bell: Arc<Event>,
    stop: AtomicBool,
    idle: Idle,
    placement: Placement,
}

impl WorkerThreads {
    /// Nobody yet, for all `lanes`. Each worker will run in `placement`.
    pub fn new(
        placement: Placement,
        idle: Idle,
        lanes: Vec<Arc<dyn WorkSource>>,
        bell: Arc<Event>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                lanes,
                bell,
                stop: AtomicBool::new(false),
                idle,
                placement,
            }),
            threads: Mutex::default(),
        }
    }

    /// A threads of `count` workers.
    pub fn start(
        count: usize,
        placement: Placement,
        idle: Idle,
        lanes: Vec<Arc<dyn WorkSource>>,
        bell: Arc<Event>,
    ) -> io::Result<Self> {
        let threads = Self::new(placement, idle, lanes, bell);
        threads.grow_to(count)?;
        Ok(threads)
    }

    /// Starts the workers that are missing of `count`.
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
    /// Lets every worker finish what it has begun.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.bell.notify_all();
        let threads = self
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A worker that panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, number: usize) {
        self.placement.take_or_warn();
        let mut first = number;
        while !self.stopped() {
            first = first.wrapping_add(1);
            if !self.run_one_from(first) {
                self.rest();
            }
        }
    }

    /// Takes one piece of work from any lane, beginning with another one each time.
    fn run_one_from(&self, first: usize) -> bool {
        let count = self.lanes.len();
        (0..count).any(|step| self.lanes[first.wrapping_add(step) % count].run_one())
    }

    fn rest(&self) {
        match self.idle {
            Idle::Busy => std::hint::spin_loop(),
            Idle::Sleep => self.sleep(),
            Idle::Adaptive(time) => {
                if !self.look_for(time) {
                    self.sleep();
                }
            }
        }
    }

    fn look_for(&self, time: Duration) -> bool {
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
        self.bell.wait_until(|| self.should_run());
    }

    fn should_run(&self) -> bool {
        self.stopped() || self.lanes.iter().any(|lane| lane.has_work())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
