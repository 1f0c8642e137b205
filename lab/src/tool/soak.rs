//! Uses every idle cycle of a machine and counts them, as cyclesoak did for the study of 2004: the cycles that it does
//! not get are the load, including load that the kernel's accounting misses.
//!
//! ```text
//!   a spinner on each processor    calibrates at normal priority, then falls to the idle class; counts units of work
//!        │ counts, processor time
//!        ▼
//!   this thread                    sleeps, samples, prints a line of JSON
//! ```
//!
//! At first lines are so frequent that a load begins and ends close to one; the interval grows with time, so that the
//! output of a whole day is a few megabytes.

mod line;
mod spinner;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use spinner::Spinner;

pub use line::{Class, SoakCounts, SoakLine, Spinning};

/// Between two lines, at first.
const MIN_LINE_INTERVAL: Duration = Duration::from_millis(20);
/// Later, this share of the time that has passed: an end of a window is never further off.
const LINE_INTERVAL_DIVISOR: u32 = 256;
/// A sample that took longer was interrupted, and its counts are not of one moment.
const MAX_SAMPLE_TIME: Duration = Duration::from_micros(500);

/// Soaks until it is killed.
pub(super) fn soak() -> io::Result<()> {
    let spinners = spinner::everywhere()?;
    let spinning: Vec<Spinning> = spinners.iter().map(|spinner| spinner.spinning).collect();
    if spinning.iter().any(|one| one.class == Class::Nice) {
        eprintln!("SCHED_IDLE is not permitted: soaking at nice 19, which affects other programs");
    }
    print_line(&SoakLine::Ready(spinning))?;
    let started = Instant::now();
    loop {
        print_line(&SoakLine::Counts(sample(&spinners, started)?))?;
        std::thread::sleep(pause(started.elapsed()));
    }
}

fn pause(elapsed: Duration) -> Duration {
    (elapsed / LINE_INTERVAL_DIVISOR).max(MIN_LINE_INTERVAL)
}

/// In one piece: a concurrent reader may find half a line, but never two halves mixed.
fn print_line(said: &SoakLine) -> io::Result<()> {
    let line = serde_json::to_string(said)? + "\n";
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.flush()
}

/// Samples again when it was interrupted, up to a limit, as a busy machine may interrupt every sample.
fn sample(spinners: &[Spinner], started: Instant) -> io::Result<SoakCounts> {
    const MAX_SAMPLE_ATTEMPTS: usize = 3;
    let mut seen = SoakCounts::default();
    for _ in 0..MAX_SAMPLE_ATTEMPTS {
        let began = Instant::now();
        seen = once(spinners, began - started)?;
        if began.elapsed() < MAX_SAMPLE_TIME {
            break;
        }
    }
    Ok(seen)
}

fn once(spinners: &[Spinner], at: Duration) -> io::Result<SoakCounts> {
    let mut seen = SoakCounts {
        at_ns: nanoseconds(at),
        own_ns: nanoseconds(spinner::own_time()),
        ..SoakCounts::default()
    };
    for spinner in spinners {
        seen.units.push(spinner.units());
        seen.cpu_ns.push(nanoseconds(spinner.charged()?));
    }
    Ok(seen)
}

/// Centuries fit.
fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_rare_and_those_of_a_day_stay_few() {
        let day = Duration::from_secs(86_400);
        let (mut at, mut lines) = (Duration::ZERO, 0);
        while at < day {
            let pause = pause(at);
            assert!(
                pause == MIN_LINE_INTERVAL || pause <= at / LINE_INTERVAL_DIVISOR,
                "{pause:?} at {at:?}"
            );
            at += pause;
            lines += 1;
        }
        assert!((500..5000).contains(&lines), "{lines}");
    }

    #[test]
    fn a_line_is_read_back_as_it_was_written() {
        let spinning = Spinning {
            cpu: 3,
            units_per_s: 118_234.125,
            class: Class::Idle,
        };
        let seen = SoakCounts {
            at_ns: 5,
            units: vec![7],
            cpu_ns: vec![8],
            own_ns: 9,
        };
        for said in [SoakLine::Ready(vec![spinning]), SoakLine::Counts(seen)] {
            let line = serde_json::to_string(&said).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<SoakLine>(&line).unwrap(), said);
        }
    }
}
