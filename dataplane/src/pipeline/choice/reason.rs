//! The reason for a choice, in a sentence for `status`.

use std::fmt;

/// Reason a lane works as it does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// It was told to.
    Forced,
    /// There is no processor for a worker.
    Alone,
    /// The system refused to start a worker.
    NoThreads,
    /// The reading thread is busy for this share of the time.
    KeepsUp(f64),
    /// It does not keep up, since a moment ago.
    Behind,
    /// So many processors are idle.
    NoneIdle(f64),
    /// Workers could be so many times as fast at most.
    WouldNotPay(f64),
    /// Workers are being measured.
    Trying,
    /// They are so many times as fast.
    Pays(f64),
    /// One thread is being measured again.
    TryingInline,
    /// They were only so many times as fast; they are tried again after so many seconds.
    DidNotPay(f64, f64),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forced => f.write_str("as asked for"),
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
                "one thread does not keep up, but workers could bring {most:.2} x at most"
            ),
            Self::Trying => f.write_str("trying what workers bring"),
            Self::Pays(gain) => write!(f, "workers bring {gain:.2} x"),
            Self::TryingInline => f.write_str("trying what one thread does alone"),
            Self::DidNotPay(gain, seconds) => write!(
                f,
                "workers brought {gain:.2} x; they are tried again in {seconds:.0} s"
            ),
        }
    }
}
