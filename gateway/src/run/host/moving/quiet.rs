//! Moments at which nothing waits for a direction's thread.

use super::super::Host;
use dataplane::pipeline::hold::Held;
use ipsec::policy::Direction;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long packets may wait in the TUN device for our threads.
const MAX_TUN_DRAIN_TIME: Duration = Duration::from_millis(20);

/// The TUN device counts as empty once nothing was in it for so long.
pub(super) const TUN_IDLE_TIME: Duration = Duration::from_millis(2);

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
            let Some(held) = engine.hold(direction, left) else {
                break;
            };
            if !self.has_waiting(direction)? {
                return Ok(Some(held));
            }
        }
        Ok(None)
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

    /// Our threads seal what came before the kernel's policies.
    pub(in crate::run::host) fn drain(&self) -> io::Result<()> {
        let (began, mut idle_since) = (Instant::now(), Instant::now());
        while began.elapsed() < MAX_TUN_DRAIN_TIME && idle_since.elapsed() < TUN_IDLE_TIME {
            if self.has_waiting(Direction::Out)? {
                idle_since = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}
