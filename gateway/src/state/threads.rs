//! The two threads that write numbers: one that never waits for a disk, and one that does nothing else.

use super::committer::lock;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long received sequence numbers may be unwritten; also the shortest time between two syncs of the disk.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// Dropping this ends both.
pub(super) struct Threads {
    end: Arc<End>,
    handles: Vec<JoinHandle<()>>,
}

/// What a thread does in each round, with the thread's name.
pub(super) type Work<T> = (&'static str, fn(&T));

#[derive(Default)]
struct End {
    is_over: Mutex<bool>,
    bell: Condvar,
}

impl Threads {
    /// A thread for each kind of work on the same thing. Called once privileges are dropped.
    pub(super) fn start<T: Send + Sync + 'static>(
        shared: &Arc<T>,
        works: [Work<T>; 2],
    ) -> io::Result<Self> {
        let mut threads = Self {
            end: Arc::default(),
            handles: Vec::new(),
        };
        for (name, work) in works {
            let (shared, end) = (Arc::clone(shared), Arc::clone(&threads.end));
            let thread = Builder::new().name(name.to_owned());
            threads.handles.push(thread.spawn(move || {
                while !end.wait() {
                    work(&shared);
                }
            })?);
        }
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        *lock(&self.end.is_over) = true;
        self.end.bell.notify_all();
        for handle in self.handles.drain(..) {
            // If it panicked, all reserved numbers count as used.
            let _ = handle.join();
        }
    }
}

impl End {
    /// Waits for the next round; true once there is none.
    fn wait(&self) -> bool {
        let is_over = lock(&self.is_over);
        if *is_over {
            return true;
        }
        let waited = self.bell.wait_timeout(is_over, WRITE_INTERVAL);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
