//! The workers: threads that transform whatever any lane has on offer, and sleep when there is nothing.

use super::affinity;
use super::event::Event;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Something that workers take work from.
pub trait Serve: Send + Sync {
    /// Does one piece of work, if there is one.
    fn serve(&self) -> bool;

    /// How many pieces of work are there.
    fn on_offer(&self) -> u64;
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

/// The running workers.
pub struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    lanes: Vec<Arc<dyn Serve>>,
    bell: Arc<Event>,
    stop: AtomicBool,
    idle: Idle,
}

impl Team {
    /// Starts `count` workers for all `lanes`. Each may run on any of `cpus`, or where the system likes if that is
    /// empty.
    pub fn start(
        count: usize,
        cpus: &[usize],
        idle: Idle,
        lanes: Vec<Arc<dyn Serve>>,
        bell: Arc<Event>,
    ) -> io::Result<Self> {
        let mut team = Self {
            shared: Arc::new(Shared {
                lanes,
                bell,
                stop: AtomicBool::new(false),
                idle,
            }),
            threads: Vec::with_capacity(count),
        };
        for number in 0..count {
            let shared = Arc::clone(&team.shared);
            let cpus = cpus.to_vec();
            let thread = Builder::new().name(format!("worker-{number}"));
            let handle = thread.spawn(move || shared.run(number, &cpus))?;
            team.threads.push(handle);
        }
        Ok(team)
    }
}

impl Drop for Team {
    /// Lets every worker finish what it has begun.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.bell.announce_to_all();
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, number: usize, cpus: &[usize]) {
        affinity::pin_or_warn(cpus);
        let mut first = number;
        while !self.stopped() {
            first = first.wrapping_add(1);
            if !self.serve_from(first) {
                self.rest();
            }
        }
    }

    /// Takes one piece of work from any lane, beginning with another one each time.
    fn serve_from(&self, first: usize) -> bool {
        let count = self.lanes.len();
        (0..count).any(|step| self.lanes[first.wrapping_add(step) % count].serve())
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
        self.stopped() || self.lanes.iter().any(|lane| lane.on_offer() > 0)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
