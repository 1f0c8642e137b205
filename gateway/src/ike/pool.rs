//! A few threads for work that takes long, with a queue that is bounded and a descriptor that shows when results are
//! there.

use crate::memory;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

/// Threads that turn jobs into results, in any order.
pub(super) struct Pool<Job, Out> {
    jobs: SyncSender<Job>,
    results: Receiver<Out>,
    bell: Arc<OwnedFd>,
}

impl<Job: Send + 'static, Out: Send + 'static> Pool<Job, Out> {
    /// Starts `threads` threads, each of which begins with `prepare`; at most `queue` jobs wait for them. All that they
    /// allocate may hold keys.
    pub(super) fn start(
        name: &str,
        (threads, queue): (usize, usize),
        prepare: fn(),
        work: impl Fn(Job) -> Out + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Job>(queue);
        let (sender, results) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (waiting, work) = (Arc::new(Mutex::new(waiting)), Arc::new(work));
        for _ in 0..threads {
            let (waiting, work) = (Arc::clone(&waiting), Arc::clone(&work));
            let (sender, bell) = (sender.clone(), Arc::clone(&bell));
            Builder::new().name(name.to_owned()).spawn(move || {
                memory::with_keys(|| {
                    prepare();
                    while let Some(job) = next(&waiting) {
                        if sender.send(work(job)).is_err() {
                            return;
                        }
                        // A full counter already shows that there are results.
                        let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
                    }
                });
            })?;
        }
        Ok(Self {
            jobs,
            results,
            bell,
        })
    }

    /// Queues a job; it comes back if the queue is full.
    pub(super) fn submit(&self, job: Job) -> Result<(), Job> {
        self.jobs.try_send(job).map_err(|refused| match refused {
            std::sync::mpsc::TrySendError::Full(job)
            | std::sync::mpsc::TrySendError::Disconnected(job) => job,
        })
    }

    /// The results that are there.
    pub(super) fn results(&self) -> impl Iterator<Item = Out> + '_ {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.results.try_iter()
    }
}

impl<Job, Out> AsFd for Pool<Job, Out> {
    /// Readable when there are results.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The next job. Before a thread sleeps it zeroes what earlier ones have left on its stack.
fn next<Job>(waiting: &Mutex<Receiver<Job>>) -> Option<Job> {
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let ready = lock().try_recv();
    match ready {
        Ok(job) => Some(job),
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => {
            memory::wipe_stack();
            lock().recv().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn results_come_back_and_what_exceeds_the_queue_is_refused() {
        let (start, started) = channel::<()>();
        let started = Mutex::new(started);
        let pool = Pool::start(
            "test",
            (1, 2),
            || {},
            move |job: u32| {
                started.lock().unwrap().recv().unwrap();
                job + 1
            },
        );
        let pool = pool.unwrap();
        let mut taken = 0;
        while pool.submit(taken).is_ok() {
            taken += 1;
        }
        // Two wait, and the thread may have taken one already.
        assert!((2..=3).contains(&taken), "{taken}");
        for _ in 0..taken {
            start.send(()).unwrap();
        }
        let mut results = Vec::new();
        while results.len() < taken as usize {
            poll(&mut [PollFd::new(&pool, PollFlags::IN)], None).unwrap();
            results.extend(pool.results());
        }
        assert_eq!(results, (1..=taken).collect::<Vec<_>>());
    }
}
