//! Scheduling priority of the threads that carry packets.
//!
//! The kernel carries packets in softirqs, which run before any program. A thread of a program waits until another
//! thread's time slice ends instead, a millisecond and more, unless it has real-time priority.

use std::fmt;
use std::io;
use std::str::FromStr;

/// The priority of the threads that carry packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    /// That of ordinary threads.
    #[default]
    Normal,
    /// Before all ordinary threads: round robin (`SCHED_RR`) at the lowest real-time priority. The system reserves a
    /// share of the time for others (`kernel.sched_rt_runtime_us`).
    Realtime,
}

/// The lowest of the real-time priorities.
pub const LOWEST: u32 = 1;

impl Priority {
    /// Sets it for the calling thread; threads that this one starts inherit it.
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

    /// From the kernel: the 41st field of `stat` is the policy, the 40th the priority.
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

    /// Whether the system allows it to a thread like this one, by another program's result.
    fn is_allowed() -> bool {
        let lowest = LOWEST.to_string();
        let asked = std::process::Command::new("chrt")
            .args(["--rr", &lowest, "true"])
            .output()
            .expect("chrt is part of util-linux");
        asked.status.success()
    }

    /// Takes the right away from this thread alone.
    fn without_the_right() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_NICE);
        sets.permitted.remove(CapabilitySet::SYS_NICE);
        sets.inheritable.remove(CapabilitySet::SYS_NICE);
        set_capabilities(None, sets).unwrap();
    }

    fn in_a_thread(body: fn()) {
        std::thread::spawn(body).join().unwrap();
    }

    #[test]
    fn who_claims_nothing_stands_as_before() {
        in_a_thread(|| {
            let before = policy_and_priority();
            Priority::default().claim().unwrap();
            assert_eq!(policy_and_priority(), before);
            assert_eq!(before.0, libc::SCHED_OTHER.to_string());
        });
    }

    #[test]
    fn a_thread_that_may_claim_it_and_those_it_starts_stand_before_others() {
        in_a_thread(|| {
            let (allowed, before) = (is_allowed(), policy_and_priority());
            let claimed = Priority::Realtime.claim();
            assert_eq!(claimed.is_ok(), allowed, "{claimed:?}");
            let child = std::thread::spawn(policy_and_priority).join().unwrap();
            let expected = if allowed {
                (libc::SCHED_RR.to_string(), LOWEST.to_string())
            } else {
                before
            };
            assert_eq!((policy_and_priority(), child), (expected.clone(), expected));
        });
    }

    #[test]
    fn a_thread_without_the_permission_gets_an_error_and_is_unchanged() {
        in_a_thread(|| {
            without_the_right();
            if is_allowed() {
                // By a limit of its user (RLIMIT_RTPRIO), which is not this thread's alone to lower.
                return;
            }
            let before = policy_and_priority();
            let error = Priority::Realtime.claim().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(policy_and_priority(), before);
        });
    }
}
