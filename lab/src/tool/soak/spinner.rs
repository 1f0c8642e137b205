//! A thread that stays on its processor and does one thing: count units of work. A unit lives in registers alone, so
//! that it takes neither cache nor memory from other programs.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::line::{Class, Spinning};

/// One of them, seen from outside.
pub(super) struct Spinner {
    pub(super) spinning: Spinning,
    counter: Arc<UnitCounter>,
    clock: libc::clockid_t,
}

/// Alone on its lines of the cache, and on those that a processor fetches beside them.
#[repr(align(128))]
#[derive(Default)]
struct UnitCounter(AtomicU64);

/// Steps of a unit: some microseconds, so that nothing is lost to rounding and counting costs nothing.
const STEPS_PER_UNIT: u32 = 4096;
/// A slice of the calibration takes this much processor time, or up to twice as much.
const MIN_SLICE_TIME: Duration = Duration::from_millis(8);
/// The best of so many counts was not interrupted.
const CALIBRATION_SLICES: usize = 24;
/// A processor that others keep busy gives fewer.
const CALIBRATION_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts one on every processor, and returns when all have calibrated and spin.
pub(super) fn everywhere() -> io::Result<Vec<Spinner>> {
    let processors = processors()?;
    let (ready, started) = channel();
    for cpu in &processors {
        let (cpu, ready) = (*cpu, ready.clone());
        let thread = std::thread::Builder::new().name(format!("soak-{cpu}"));
        thread.spawn(move || run(cpu, ready))?;
    }
    drop(ready);
    let ready = started.iter().take(processors.len());
    let mut spinners = ready.collect::<io::Result<Vec<Spinner>>>()?;
    spinners.sort_by_key(|spinner| spinner.spinning.cpu);
    Ok(spinners)
}

/// All processors that the control group allows; the affinity of gateways does not apply here.
fn processors() -> io::Result<Vec<usize>> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // Where this is refused, the present affinity is all that may be used.
    let _ = sched_setaffinity(None, &all);
    let ours = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| ours.is_set(*cpu))
        .collect())
}

fn run(cpu: usize, ready: Sender<io::Result<Spinner>>) {
    let counter = Arc::new(UnitCounter::default());
    let spinner = prepared(cpu, &counter);
    let good = spinner.is_ok();
    // If the main thread waits no more, the program ends anyway.
    let _ = ready.send(spinner);
    drop(ready);
    if good {
        work(&counter, u64::MAX);
    }
}

/// Calibrates at normal priority, where it gets a share of a busy processor, too; then lowers its priority.
fn prepared(cpu: usize, counter: &Arc<UnitCounter>) -> io::Result<Spinner> {
    let mut here = CpuSet::new();
    here.set(cpu);
    sched_setaffinity(None, &here).map_err(|error| cannot("pin a thread to", cpu, error.into()))?;
    let units_per_s = calibrate(counter);
    let class =
        give_way().map_err(|error| cannot("lower the priority of a thread on", cpu, error))?;
    Ok(Spinner {
        spinning: Spinning {
            cpu,
            units_per_s,
            class,
        },
        counter: counter.clone(),
        clock: own_clock().map_err(|error| cannot("time a thread on", cpu, error))?,
    })
}

fn cannot(what: &str, cpu: usize, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot {what} processor {cpu}: {error}"),
    )
}

/// Units in a second of this thread's own processor time.
fn calibrate(counter: &UnitCounter) -> f64 {
    let batch = batch(counter);
    let (started, mut best) = (Instant::now(), 0.0f64);
    for _ in 0..CALIBRATION_SLICES {
        let took = timed(counter, batch).max(Duration::from_nanos(1));
        best = best.max(batch as f64 / took.as_secs_f64());
        if started.elapsed() > CALIBRATION_TIMEOUT {
            break;
        }
    }
    best
}

/// As many units as fill a slice.
fn batch(counter: &UnitCounter) -> u64 {
    let mut batch = 1;
    while timed(counter, batch) < MIN_SLICE_TIME {
        batch *= 2;
    }
    batch
}

fn timed(counter: &UnitCounter, units: u64) -> Duration {
    let before = own_time();
    work(counter, units);
    own_time().saturating_sub(before)
}

/// The same loop for calibrating and for soaking; soaking passes a number of units that is never reached.
#[inline(never)]
fn work(counter: &UnitCounter, units: u64) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15u64);
    for _ in 0..units {
        for _ in 0..STEPS_PER_UNIT {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        // No other thread writes here.
        let count = counter.0.load(Ordering::Relaxed) + 1;
        counter.0.store(count, Ordering::Relaxed);
    }
    black_box(state);
}

/// Nice 19 in any case, so that the kernel counts this time as `nice`.
fn give_way() -> io::Result<Class> {
    let nice = setpriority_process(None, 19);
    let lowest = libc::sched_param { sched_priority: 0 };
    // SAFETY: a plain system call about this thread; the parameter is read only.
    let idle = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &lowest) };
    match idle {
        0 => Ok(Class::Idle),
        _ => Ok(nice.map(|()| Class::Nice)?),
    }
}

/// Processor time of the calling thread.
pub(super) fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The same clock, by a name that other threads can use.
fn own_clock() -> io::Result<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the calling thread lives, and the result is written to a local variable.
    match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } {
        0 => Ok(clock),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

impl Spinner {
    /// What it has counted.
    pub(super) fn units(&self) -> u64 {
        self.counter.0.load(Ordering::Relaxed)
    }

    /// What the kernel has charged it for.
    pub(super) fn charged(&self) -> io::Result<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the clock is that of a thread which never ends, and the result is written to a local variable.
        match unsafe { libc::clock_gettime(self.clock, &mut time) } {
            0 => Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
