//! Whose turn it is when a packet comes and every processor is taken.
//!
//! A kernel that carries packets does so in softirqs, before any program gets its turn. A thread of a program waits for
//! somebody's turn to end instead, a millisecond and more, unless the system gives it precedence.

use std::fmt;
use std::io;
use std::str::FromStr;

/// How the threads that carry packets stand among all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    /// As everybody.
    #[default]
    Normal,
    /// Before all ordinary threads: round robin (`SCHED_RR`) at the lowest real-time priority. The system keeps a rest of
    /// the time for others (`kernel.sched_rt_runtime_us`).
    Realtime,
}

/// The lowest of the real-time priorities.
pub const LOWEST: u32 = 1;

impl Priority {
    /// Gives it to the calling thread; threads that this one starts have it, too.
    ///
    /// Needs `CAP_SYS_NICE`, or a limit (`RLIMIT_RTPRIO`) of at least [`LOWEST`].
    pub fn claim(self) -> io::Result<()> {
        match self {
            Self::Normal => Ok(()),
            Self::Realtime => round_robin(),
        }
    }
}

fn round_robin() -> io::Result<()> {
    // SAFETY: all-zero bytes are a `sched_param`: it holds numbers alone.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = LOWEST as libc::c_int;
    // SAFETY: the kernel reads one `sched_param` that lives for the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "normal" => Ok(Self::Normal),
            "realtime" => Ok(Self::Realtime),
            _ => Err("normal or realtime is expected".to_owned()),
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Realtime => "realtime",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own word: the 41st field of `stat` is the policy, the 40th the priority.
    fn policy_and_priority() -> (String, String) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        (fields[38].to_owned(), fields[37].to_owned())
    }

    #[test]
    fn what_is_printed_reads_back() {
        for word in ["normal", "realtime"] {
            assert_eq!(word.parse::<Priority>().unwrap().to_string(), word);
        }
        assert!("high".parse::<Priority>().is_err());
    }

    #[test]
    fn a_thread_that_claims_it_and_those_it_starts_stand_before_others_or_are_told_no() {
        let thread = std::thread::spawn(|| {
            Priority::Normal.claim().unwrap();
            let before = policy_and_priority();
            match Priority::Realtime.claim() {
                Ok(()) => {
                    let child = std::thread::spawn(policy_and_priority).join().unwrap();
                    let round_robin = (libc::SCHED_RR.to_string(), LOWEST.to_string());
                    assert_eq!(
                        (policy_and_priority(), child),
                        (round_robin.clone(), round_robin)
                    );
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                    assert_eq!(policy_and_priority(), before);
                }
            }
        });
        thread.join().unwrap();
    }
}
