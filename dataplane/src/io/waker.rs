//! Wakes a thread that sleeps in a source's `fill`: to stop, or because its work has changed.
//!
//! One waker belongs to one reading thread. A wake is remembered until that thread's next sleep, which then ends at
//! once with nothing read; it is never lost and never counted twice.

use super::Wait;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Ends the sleep of one reading thread; clones wake the same thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A new waker, not woken.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(event)))
    }

    /// Ends the thread's present sleep, or its next one.
    pub fn wake(&self) {
        // The only possible failure is a full counter, which wakes as well.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Clears a wake that has not ended a sleep yet; returns whether there was one.
    pub fn take(&self) -> bool {
        rustix::io::read(&*self.0, &mut [0u8; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until `device` is readable (or has an error), the waker is used, or the time is over. True if reading is
/// worthwhile.
pub(super) fn wait_readable(
    device: BorrowedFd<'_>,
    waker: Option<&Waker>,
    wait: Wait,
) -> io::Result<bool> {
    let Wait::AtMost(limit) = wait else {
        return Ok(false);
    };
    let second = waker.map_or(device, |waker| waker.as_fd());
    let mut both = [
        PollFd::from_borrowed_fd(device, PollFlags::IN),
        PollFd::from_borrowed_fd(second, PollFlags::IN),
    ];
    let watched = if waker.is_some() { 2 } else { 1 };
    poll_for(&mut both[..watched], limit)?;
    if watched == 2 && !both[1].revents().is_empty() {
        waker.map(Waker::take);
        return Ok(false);
    }
    Ok(!both[0].revents().is_empty())
}

/// `poll(2)`; an interruption by a signal returns as if nothing were ready, since callers try again anyway.
pub(super) fn poll_for(watched: &mut [PollFd<'_>], limit: std::time::Duration) -> io::Result<()> {
    let limit = Timespec {
        tv_sec: limit.as_secs().min(1 << 31) as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    match poll(watched, Some(&limit)) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => {
            watched.iter_mut().for_each(PollFd::clear_revents);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_wake_before_the_sleep_ends_that_sleep_and_only_that_one() {
        let (waker, silent) = (Waker::new().unwrap(), Waker::new().unwrap());
        waker.wake();
        waker.wake();
        let started = Instant::now();
        let asleep =
            |time| wait_readable(silent.as_fd(), Some(&waker), Wait::AtMost(time)).unwrap();
        assert!(!asleep(Duration::from_secs(60)));
        assert!(started.elapsed() < Duration::from_secs(30));
        let started = Instant::now();
        assert!(!asleep(Duration::from_millis(20)));
        assert!(started.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_wake_from_another_thread_ends_a_sleep() {
        let (waker, silent) = (Waker::new().unwrap(), Waker::new().unwrap());
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        assert!(
            !wait_readable(
                silent.as_fd(),
                Some(&waker),
                Wait::AtMost(Duration::from_secs(60))
            )
            .unwrap()
        );
        thread.join().unwrap();
    }
}
