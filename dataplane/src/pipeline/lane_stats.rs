//! The time that a lane's work takes, counted while it is done: the clock is read twice per batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts of one lane since the start; any thread adds to them.
#[derive(Debug, Default)]
pub struct LaneStats {
    packets: AtomicU64,
    transform_ns: AtomicU64,
    /// The running mean of the time for one batch.
    batch_ns: AtomicU64,
    own_transform_ns: AtomicU64,
    calls: AtomicU64,
    calling_ns: AtomicU64,
}

/// The counts of [`LaneStats`] at one moment, or between two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatsReading {
    /// Packets that were transformed.
    pub packets: u64,
    /// Time that all threads spent on it, by the clock.
    pub transform: Duration,
    /// The reading thread's part of it.
    pub own_transform: Duration,
    /// How often workers were woken.
    pub calls: u64,
    /// The reading thread's time for waking them.
    pub calling: Duration,
}

/// The thread that transforms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransformedBy {
    /// The lane's reading thread.
    Reader,
    /// A worker.
    Worker,
}

/// The number of batches by which the running mean follows a change.
const MEAN_BATCHES: u64 = 8;

impl LaneStats {
    /// Times `work` on `packets` packets.
    pub fn transform(&self, by: TransformedBy, packets: u64, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        let time = nanoseconds(start.elapsed());
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.transform_ns.fetch_add(time, Ordering::Relaxed);
        let mean = self.batch_ns.load(Ordering::Relaxed);
        let weighed = mean - mean / MEAN_BATCHES + time / MEAN_BATCHES;
        self.batch_ns.store(weighed, Ordering::Relaxed);
        if by == TransformedBy::Reader {
            self.own_transform_ns.fetch_add(time, Ordering::Relaxed);
        }
    }

    /// How long a batch takes, by the last ones. Where several threads end one at the same time, some do not count.
    pub fn of_a_batch(&self) -> Duration {
        Duration::from_nanos(self.batch_ns.load(Ordering::Relaxed))
    }

    /// Times `wake`, which wakes a worker.
    pub fn wake(&self, wake: impl FnOnce()) {
        let start = Instant::now();
        wake();
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.calling_ns
            .fetch_add(nanoseconds(start.elapsed()), Ordering::Relaxed);
    }

    /// All counts so far. They are read one by one: a batch that ends meanwhile may be in only some of them.
    pub fn read(&self) -> StatsReading {
        let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let time = |count: &AtomicU64| Duration::from_nanos(number(count));
        StatsReading {
            packets: number(&self.packets),
            transform: time(&self.transform_ns),
            own_transform: time(&self.own_transform_ns),
            calls: number(&self.calls),
            calling: time(&self.calling_ns),
        }
    }
}

impl StatsReading {
    /// The difference since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            transform: self.transform.saturating_sub(earlier.transform),
            own_transform: self.own_transform.saturating_sub(earlier.own_transform),
            calls: self.calls.saturating_sub(earlier.calls),
            calling: self.calling.saturating_sub(earlier.calling),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_once_and_the_reading_threads_part_of_it_apart() {
        let stats = LaneStats::default();
        let pause = || std::thread::sleep(Duration::from_millis(2));
        stats.transform(TransformedBy::Reader, 3, pause);
        let between = stats.read();
        stats.transform(TransformedBy::Worker, 4, pause);
        stats.wake(pause);
        let all = stats.read();
        assert_eq!((all.packets, all.calls), (7, 1));
        assert_eq!(all.own_transform, between.transform);
        let since = all.since(&between);
        assert_eq!((since.packets, since.own_transform), (4, Duration::ZERO));
        assert!(since.transform >= Duration::from_millis(2));
        assert!(since.calling >= Duration::from_millis(2));
    }
}
