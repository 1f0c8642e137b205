//! The sleep of a reading thread in its source while workers have batches that it has read: the worker that finishes
//! the oldest of them ends it.
//!
//! The thread says that it sleeps before it looks for the last time whether the batch is done; a worker sets the batch
//! to done before it looks whether the thread sleeps. A fence on each side makes sure that at least one of them sees
//! the other.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Ends the sleep of a reading thread, or its next one.
pub type WakeReader = Box<dyn Fn() + Send + Sync>;

/// Between the reading thread and the workers of a lane.
pub struct SourceSleep {
    sleeps: AtomicBool,
    wake: Option<WakeReader>,
}

impl SourceSleep {
    /// Of a thread that `wake` wakes; without, it does not sleep while workers have its batches.
    pub fn new(wake: Option<WakeReader>) -> Self {
        Self {
            sleeps: AtomicBool::new(false),
            wake,
        }
    }

    /// Whether workers can end it.
    pub fn can_be_ended(&self) -> bool {
        self.wake.is_some()
    }

    /// Calls `sleep`, which a worker ends when `is_over`; nothing if it is over already.
    pub fn sleep<T>(&self, is_over: impl Fn() -> bool, sleep: impl FnOnce() -> T) -> Option<T> {
        self.sleeps.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let slept = (!is_over()).then(sleep);
        self.sleeps.store(false, Ordering::SeqCst);
        slept
    }

    /// Ends the sleep, if there is one and `is_over`. A wake that comes too late ends the next sleep at once, in which
    /// the thread reads nothing.
    pub fn end_if(&self, is_over: impl FnOnce() -> bool) {
        fence(Ordering::SeqCst);
        if let Some(wake) = &self.wake
            && self.sleeps.load(Ordering::SeqCst)
            && is_over()
        {
            wake();
        }
    }
}

/// Every interleaving, by loom: `cargo test -p dataplane --features loom --lib model::`.
#[cfg(all(test, feature = "loom"))]
mod model {
    use super::*;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    #[test]
    fn a_sleep_ends_with_the_batch_however_the_threads_meet() {
        loom::model(|| {
            let (woken, is_done) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
            let wake = Arc::clone(&woken);
            let sleep = Arc::new(SourceSleep::new(Some(Box::new(move || wake.notify()))));
            let worker = {
                let (sleep, is_done) = (Arc::clone(&sleep), Arc::clone(&is_done));
                thread::spawn(move || {
                    is_done.store(true, Ordering::Release);
                    sleep.end_if(|| is_done.load(Ordering::Acquire));
                })
            };
            let is_over = || is_done.load(Ordering::Acquire);
            // A wake that is missed would be a deadlock. Sleeps may end for no reason.
            while sleep.sleep(is_over, || woken.wait()).is_some() {}
            assert!(is_over());
            worker.join().unwrap();
        });
    }
}
