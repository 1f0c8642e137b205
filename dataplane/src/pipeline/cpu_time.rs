//! How busy this thread and the processors are, as the kernel counts it.
//!
//! A thread's clock is how long it ran, its `schedstat` has how long it waited for a processor; the rest of an interval
//! it slept. `/proc/stat` has the idle time of processors. Where a file cannot be read, that value is absent.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The calling thread's own clock.
#[derive(Debug)]
pub struct ThreadTime {
    /// Absent where the kernel does not count waiting time.
    schedstat: Option<File>,
}

/// How long a thread has run, and waited to run, since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadUsage {
    /// On a processor.
    pub ran: Duration,
    /// Ready, but without a processor.
    pub waited: Duration,
}

impl ThreadTime {
    /// Of the calling thread; only that thread may read it.
    pub fn of_this_thread() -> Self {
        Self {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
        }
    }

    /// The times until now.
    pub fn read(&self) -> ThreadUsage {
        // The clock is exact; running time in `schedstat` is counted only up to the last tick.
        let ran = clock_gettime(ClockId::ThreadCPUTime);
        ThreadUsage {
            ran: Duration::new(ran.tv_sec as u64, ran.tv_nsec as u32),
            waited: self.waited().unwrap_or_default(),
        }
    }

    fn waited(&self) -> Option<Duration> {
        let mut text = [0; 128];
        let len = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        waited(std::str::from_utf8(&text[..len]).ok()?)
    }
}

/// The second number: nanoseconds in which the thread was ready but did not run.
fn waited(text: &str) -> Option<Duration> {
    let number = text.split_whitespace().nth(1)?;
    number.parse().ok().map(Duration::from_nanos)
}

/// Reads the length of a clock tick, which is cached from then on. Later, after the process has given up access to
/// files, it could not be read, and the thread that needs it would end.
pub fn cache_clock_ticks() {
    let _ = rustix::param::clock_ticks_per_second();
}

/// The sum of the idle time of these processors since the system's start; absent where it is unknown.
pub fn idle_time(cpus: &[usize]) -> Option<Duration> {
    // `intr`, the longest line of the file, comes after those of the processors.
    let mut text = vec![0; 16 * 1024 + 128 * cpus.len()];
    let len = File::open("/proc/stat").ok()?.read_at(&mut text, 0).ok()?;
    let ticks = idle_ticks(std::str::from_utf8(&text[..len]).ok()?, cpus)?;
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_secs_f64(ticks as f64 / a_second as f64))
}

fn idle_ticks(text: &str, cpus: &[usize]) -> Option<u64> {
    let mut sum = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let number = words.next().and_then(|name| name.strip_prefix("cpu"));
        let Some(Ok(number)) = number.map(str::parse::<usize>) else {
            continue;
        };
        if !cpus.contains(&number) {
            continue;
        }
        // user nice system idle iowait …
        let mut times = words.skip(3).map(str::parse::<u64>);
        let (idle, iowait) = (times.next()?.ok()?, times.next()?.ok()?);
        sum = Some(sum.unwrap_or(0) + idle + iowait);
    }
    sum
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::super::affinity;
    use super::*;
    use std::time::Instant;

    #[test]
    fn only_the_processors_asked_for_are_added_up() {
        let text = "cpu  9 9 9 99 9 9\ncpu0 1 2 3 40 5 6 7\ncpu1 1 2 3 100 20 6 7\ncpu12 0 0 0 7 1 0\nintr 5 cpu1\n";
        assert_eq!(idle_ticks(text, &[0, 12]), Some(53));
        assert_eq!(idle_ticks(text, &[1]), Some(120));
        assert_eq!(idle_ticks(text, &[2]), None);
        assert_eq!(idle_ticks("cpu1 1 2", &[1]), None);
    }

    #[test]
    fn a_thread_that_works_has_run_and_one_that_sleeps_has_not() {
        let clock = ThreadTime::of_this_thread();
        let start = clock.read();
        std::thread::sleep(Duration::from_millis(50));
        let slept = clock.read();
        while clock.read().ran < slept.ran + Duration::from_millis(5) {
            std::hint::black_box(Instant::now());
        }
        assert!(slept.ran - start.ran < Duration::from_millis(40));
    }

    #[test]
    fn waiting_is_the_second_number_of_three() {
        assert_eq!(waited("17 4 2\n"), Some(Duration::from_nanos(4)));
        assert_eq!(waited("17"), None);
        assert_eq!(waited("17 x 2"), None);
    }

    #[test]
    fn processors_that_do_not_exist_are_not_idle() {
        assert_eq!(idle_time(&[100_000]), None);
        assert!(idle_time(&affinity::allowed().unwrap()).is_some());
    }
}
