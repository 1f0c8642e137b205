//! Moments at which a direction's thread stays still: with nothing waiting for it, or at once.

use super::super::Host;
use dataplane::pipeline::hold::{Held, Moment};
use ipsec::policy::Direction;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long our threads may take for what waits for them.
const MAX_DRAIN_TIME: Duration = Duration::from_millis(20);

/// How long a thread may take for the batch that it is reading.
const MAX_BATCH_TIME: Duration = Duration::from_secs(1);

/// The TUN device, or the sockets, count as empty once nothing was in them for so long.
pub(super) const IDLE_TIME: Duration = Duration::from_millis(2);

impl Host {
    /// Holds a direction's thread at a moment at which nothing waits for it, if there is one within `limit`.
    pub(in crate::run::host) fn quiet(
        &self,
        direction: Direction,
        limit: Duration,
    ) -> io::Result<Option<Held>> {
        let began = Instant::now();
        let Some(engine) = &self.engine else {
            return Ok(None);
        };
        while let Some(left) = limit.checked_sub(began.elapsed()) {
            let Some(held) = engine.hold(direction, Moment::SourceEmpty, left) else {
                break;
            };
            if !self.has_waiting(direction)? {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// Holds a direction's thread after the batch that it is reading. What arrives from then on waits.
    pub(super) fn pause(&self, direction: Direction) -> Option<Held> {
        let engine = self.engine.as_ref()?;
        engine.hold(direction, Moment::BatchOver, MAX_BATCH_TIME)
    }

    /// Whether packets wait for a direction's thread.
    pub(super) fn has_waiting(&self, direction: Direction) -> io::Result<bool> {
        if direction != Direction::Out {
            return self.sockets.has_waiting();
        }
        let Some((tun, _)) = self.plaintext.share() else {
            return Ok(false);
        };
        let mut watched = [PollFd::from_borrowed_fd(tun.as_fd(), PollFlags::IN)];
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        Ok(poll(&mut watched, Some(&none))? > 0)
    }

    /// A direction's thread carries what waits for it.
    pub(in crate::run::host) fn drain(&self, direction: Direction) -> io::Result<()> {
        let (began, mut idle_since) = (Instant::now(), Instant::now());
        while began.elapsed() < MAX_DRAIN_TIME && idle_since.elapsed() < IDLE_TIME {
            if self.has_waiting(direction)? {
                idle_since = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}
