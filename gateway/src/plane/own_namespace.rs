//! Work in a network namespace made for it, which no other program sees and which ends with the work.

use crate::failure::Failure;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// What `work` returns, on a thread of its own in a new network namespace, or why there is none.
pub(super) fn in_own_namespace<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let there = move || {
        // SAFETY: only the network namespace of this thread changes; no descriptor or memory is unshared.
        match unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            Ok(()) => Ok(work()),
            Err(error) => Err(Failure::new(format!(
                "no network namespace can be made for a trial: {error}"
            ))),
        }
    };
    let thread = std::thread::Builder::new()
        .name("plane-trial".into())
        .spawn(there);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(Failure::new("the trial has failed")),
        Err(error) => Err(Failure::new(format!(
            "no thread can be started for a trial: {error}"
        ))),
    }
}
