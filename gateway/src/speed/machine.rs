//! The machine that is measured, and its clocks.

use crate::failure::Failure;
use multibuffer::FeatureState;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::time::{Duration, Instant};

/// The machine, as the head of a report shows it.
#[derive(Serialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cpus: usize,
    /// Ticks of the time stamp counter in a second.
    pub(super) tsc_hertz: Option<f64>,
    /// The approximate clock rate of the core, from the time of a chain of dependent multiplications.
    pub(super) core_hertz: f64,
    pub(super) used: Vec<&'static str>,
    pub(super) missing: Vec<&'static str>,
    pub(super) switched_off: Vec<&'static str>,
    pub(super) unproven: Vec<&'static str>,
}

impl Machine {
    pub(super) fn read() -> Self {
        let of = |wanted: FeatureState| {
            let states = multibuffer::feature_states().into_iter();
            states
                .filter_map(|(name, state)| (state == wanted).then_some(name))
                .collect()
        };
        Self {
            processor: processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: allowed_cpus().len(),
            tsc_hertz: tsc_hertz(),
            core_hertz: core_hertz(),
            used: of(FeatureState::Used),
            missing: of(FeatureState::Missing),
            switched_off: of(FeatureState::SwitchedOff),
            unproven: of(FeatureState::Unproven),
        }
    }

    /// Whether the time stamp counter's rate differs from the core's.
    pub(super) fn clocks_differ(&self) -> bool {
        self.tsc_hertz
            .is_some_and(|tsc| (self.core_hertz / tsc - 1.0).abs() > 0.03)
    }
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn tsc_hertz() -> Option<f64> {
    let (start, from) = (Instant::now(), multibuffer::time_stamp()?);
    std::thread::sleep(Duration::from_millis(20));
    let ticks = multibuffer::time_stamp()?.wrapping_sub(from);
    Some(ticks as f64 / start.elapsed().as_secs_f64())
}

/// The best of a few attempts: other threads may have used the CPU meanwhile.
fn core_hertz() -> f64 {
    const MULTIPLICATIONS: u32 = 200_000;
    /// A multiplication takes three cycles on every processor of the last fifteen years, and the following `or` takes
    /// one.
    const CYCLES: f64 = 4.0;
    let once = || {
        let start = Instant::now();
        let first = std::hint::black_box(3_u64);
        // Each multiplication depends on the result of the one before, and the compiler cannot compute the chain in
        // advance.
        let last = (0..MULTIPLICATIONS).fold(first, |number, _| number.wrapping_mul(number) | 2);
        std::hint::black_box(last);
        start.elapsed().as_secs_f64()
    };
    let best = (0..9).map(|_| once()).fold(f64::INFINITY, f64::min);
    f64::from(MULTIPLICATIONS) * CYCLES / best
}

fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect(),
        Err(_) => vec![0],
    }
}

/// A CPU for each worker.
pub(super) fn cpus_for(workers: usize) -> Result<Vec<usize>, Failure> {
    let mut cpus = allowed_cpus();
    if workers > cpus.len() {
        return Err(Failure::new(format!(
            "{workers} workers need a CPU each, and this process may use {0}: use --workers {0} or fewer",
            cpus.len()
        )));
    }
    cpus.truncate(workers);
    Ok(cpus)
}

/// Keeps this thread on one CPU; where that is forbidden it runs anywhere.
pub(super) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

/// Bytes of memory that this process has allocated and not freed, where the allocator reports it.
pub(super) fn allocated() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the function only reads the allocator's own statistics.
        let books = unsafe { libc::mallinfo2() };
        Some(books.uordblks + books.hblkhd)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// The CPU time of this thread: other threads' work does not count.
pub(super) fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
