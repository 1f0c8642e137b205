//! Polling or sleeping, as NAPI does in the kernel: how a thread learns that packets have arrived.
//!
//! Sleeping costs a wake-up for every burst; polling costs a processor that another thread may need to receive the next
//! packet. Which is better depends on the number of processors and threads.

use super::worker::Idle;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::thread::available_parallelism;
use std::time::Duration;

/// The option `--wake`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Sleep at once when there is no packet.
    Sleep,
    /// Poll for this long before sleeping, if there are more processors than threads; else sleep at once.
    Adaptive(Duration),
    /// Poll for this long before sleeping, or forever, however many processors there are.
    Busy(Option<Duration>),
}

/// How long to poll: twice the time that waking a thread takes.
const DEFAULT_POLL_TIME: Duration = Duration::from_micros(10);

impl Default for Wake {
    fn default() -> Self {
        Self::Adaptive(DEFAULT_POLL_TIME)
    }
}

impl Wake {
    /// What it means for `threads` threads on `processors` processors.
    pub fn idle(self, threads: usize, processors: usize) -> Idle {
        match self {
            Self::Sleep => Idle::Sleep,
            Self::Adaptive(_) if processors <= threads => Idle::Sleep,
            Self::Adaptive(time) | Self::Busy(Some(time)) => Idle::Adaptive(time),
            Self::Busy(None) => Idle::Busy,
        }
    }
}

/// Processors that this process may use, or those it was given.
pub fn processors(given: &[usize]) -> usize {
    match given.len() {
        0 => available_parallelism().map_or(1, NonZeroUsize::get),
        count => count,
    }
}

impl FromStr for Wake {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let wrong =
            || "sleep, adaptive[:MICROSECONDS] or busy[:MICROSECONDS] is expected".to_owned();
        let (name, time) = match word.split_once(':') {
            None => (word, None),
            Some((name, number)) => {
                let number: u32 = number.parse().map_err(|_| wrong())?;
                (name, Some(Duration::from_micros(number.into())))
            }
        };
        match (name, time) {
            ("sleep", None) => Ok(Self::Sleep),
            ("adaptive", time) => Ok(Self::Adaptive(time.unwrap_or(DEFAULT_POLL_TIME))),
            ("busy", time) => Ok(Self::Busy(time)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sleep => f.write_str("sleep"),
            Self::Adaptive(time) => write!(f, "adaptive:{}", time.as_micros()),
            Self::Busy(None) => f.write_str("busy"),
            Self::Busy(Some(time)) => write!(f, "busy:{}", time.as_micros()),
        }
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sleep => f.write_str("no polling"),
            Self::Adaptive(time) => {
                write!(f, "polling for {} µs before sleeping", time.as_micros())
            }
            Self::Busy => f.write_str("polling without sleeping"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back() {
        for word in ["sleep", "adaptive:25", "busy", "busy:50"] {
            assert_eq!(word.parse::<Wake>().unwrap().to_string(), word);
        }
        assert_eq!("adaptive".parse(), Ok(Wake::default()));
        for wrong in ["", "sleep:3", "busy:", "adaptive:x", "lazy"] {
            assert!(wrong.parse::<Wake>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_spare_processors_are_kept_busy_unless_it_is_asked_for() {
        let some = Duration::from_micros(10);
        assert_eq!(Wake::default().idle(2, 2), Idle::Sleep);
        assert_eq!(Wake::default().idle(2, 3), Idle::Adaptive(some));
        assert_eq!(Wake::Busy(None).idle(8, 1), Idle::Busy);
        assert_eq!(Wake::Busy(Some(some)).idle(8, 1), Idle::Adaptive(some));
        assert_eq!(Wake::Sleep.idle(1, 64), Idle::Sleep);
    }
}
