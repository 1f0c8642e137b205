//! An event that threads sleep for: cheap to notify while no thread sleeps, and never missed.
//!
//! A sleeper counts itself before it checks its condition for the last time; a notifier changes the condition before it
//! reads the count. A fence on each side makes sure that at least one of them sees the other.

#[cfg(feature = "loom")]
use loom::sync::{
    Condvar, Mutex,
    atomic::{AtomicU32, Ordering, fence},
};
#[cfg(not(feature = "loom"))]
use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicU32, Ordering, fence},
};

/// Something that threads wait for.
pub struct Event {
    sleepers: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Default for Event {
    fn default() -> Self {
        Self {
            sleepers: AtomicU32::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }
}

impl Event {
    /// Sleeps until `happened`, which is checked before the first sleep too.
    pub fn wait_until(&self, happened: impl Fn() -> bool) {
        let mut guard = self.lock.lock().expect("nothing panics under this lock");
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while !happened() {
            guard = self
                .wake
                .wait(guard)
                .expect("nothing panics under this lock");
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes one sleeper, if there is one, after its condition was made true.
    pub fn notify_one(&self) {
        if self.has_sleepers() {
            self.wake.notify_one();
        }
    }

    /// Wakes all sleepers.
    pub fn notify_all(&self) {
        if self.has_sleepers() {
            self.wake.notify_all();
        }
    }

    /// A sleeper that has counted itself holds the lock until it sleeps: after the lock was taken here, a notification
    /// reaches it.
    fn has_sleepers(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        drop(self.lock.lock().expect("nothing panics under this lock"));
        true
    }
}
