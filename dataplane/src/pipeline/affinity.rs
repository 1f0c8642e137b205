//! Where a thread runs: on which processors, and with which priority.

use super::priority::Priority;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Where the threads of a data plane run.
#[derive(Clone, Default, Debug)]
pub struct Placement {
    /// On these processors; empty for all.
    pub cpus: Vec<usize>,
    /// With this scheduling priority.
    pub priority: Priority,
}

impl Placement {
    /// Applies to the calling thread. A thread that cannot be placed is slow, not wrong: prints a warning and
    /// continues.
    pub(crate) fn apply_or_warn(&self) {
        let Self { cpus, priority } = self;
        if let Err(error) = pin(cpus) {
            eprintln!(
                "esplanade: cannot run on CPUs {cpus:?}: {error}; running where the system likes"
            );
        }
        if let Err(error) = priority.claim() {
            eprintln!(
                "esplanade: cannot run at priority {priority}: {error}; running as others do"
            );
        }
    }
}

/// Binds the calling thread to `cpus`; with an empty list it stays where it may run.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(CALLER, &set)?)
}

/// The processors that the calling thread may run on, ascending.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(CALLER)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Keeps the calling thread on the processor where it is; when dropped, the thread may run again where it might before.
pub(super) struct StaysHere {
    allowed: CpuSet,
}

impl StaysHere {
    /// None where there is one processor to choose from, or the system refuses.
    pub(super) fn new() -> Option<Self> {
        let allowed = sched_getaffinity(CALLER).ok()?;
        let here = processor().filter(|&cpu| cpu < CpuSet::MAX_CPU)?;
        if allowed.count() < 2 {
            return None;
        }
        pin(&[here]).ok()?;
        Some(Self { allowed })
    }
}

impl Drop for StaysHere {
    fn drop(&mut self) {
        // Where it is refused, the set of processors was changed meanwhile, and the new one holds.
        let _ = sched_setaffinity(CALLER, &self.allowed);
    }
}

/// The processor of this thread. It may change before the result is used: then the next call returns the new one.
pub(super) fn processor() -> Option<usize> {
    // SAFETY: the call takes no argument and writes no memory of this process.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

const CALLER: Option<Pid> = None;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_was_bound_and_nowhere_else() {
        let last = *allowed().unwrap().last().unwrap();
        std::thread::spawn(move || {
            pin(&[last]).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_stays_on_its_processor_and_then_runs_where_it_might_before() {
        let before = allowed().unwrap();
        std::thread::spawn(move || {
            let stays = StaysHere::new();
            assert_eq!(stays.is_some(), before.len() > 1);
            if stays.is_some() {
                assert_eq!(allowed().unwrap(), [processor().unwrap()]);
                assert!(StaysHere::new().is_none(), "there is one to choose from");
            }
            drop(stays);
            assert_eq!(allowed().unwrap(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_processor_that_does_not_exist_is_an_error() {
        assert!(pin(&[CpuSet::MAX_CPU - 1]).is_err());
        assert!(pin(&[usize::MAX]).is_err());
    }
}
