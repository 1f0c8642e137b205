//! The reason for a choice, in a sentence for `status`.

use std::fmt;

/// Why a lane has its number of workers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// An option fixes the number.
    Forced,
    /// There is only one processor.
    Alone,
    /// The system refused to start a worker.
    NoThreads,
    /// The reading thread is busy for this share of the time.
    KeepsUp(f64),
    /// It does not keep up, since a moment ago.
    Behind,
    /// Only this share of a processor is idle.
    NoneIdle(f64),
    /// The greatest possible speed-up by workers.
    WouldNotPay(f64),
    /// Workers are being measured.
    Trying,
    /// The measured speed-up by workers.
    Pays(f64),
    /// One thread is being measured again.
    TryingInline,
    /// The measured speed-up, which was too small, and the seconds until the next trial.
    DidNotPay(f64, f64),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forced => f.write_str("set by option"),
            Self::Alone => {
                f.write_str("one thread does not keep up, but there is no second processor")
            }
            Self::NoThreads => f.write_str("the system refused to start a thread"),
            Self::KeepsUp(share) => {
                write!(
                    f,
                    "one thread keeps up, busy {:.0} % of the time",
                    share * 100.0
                )
            }
            Self::Behind => f.write_str("one thread has just stopped keeping up"),
            Self::NoneIdle(spare) => write!(
                f,
                "one thread does not keep up, but only {:.0} % of a processor is idle",
                spare * 100.0
            ),
            Self::WouldNotPay(most) => write!(
                f,
                "one thread does not keep up, but workers could reach {most:.2} x at most"
            ),
            Self::Trying => f.write_str("measuring throughput with workers"),
            Self::Pays(gain) => write!(f, "workers reach {gain:.2} x"),
            Self::TryingInline => f.write_str("measuring throughput of one thread"),
            Self::DidNotPay(gain, seconds) => write!(
                f,
                "workers reached {gain:.2} x; next trial in {seconds:.0} s"
            ),
        }
    }
}
