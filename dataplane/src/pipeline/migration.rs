//! Order when the committing thread migrates: packets that it sent on one processor have left that processor's backlog
//! before it sends more on another.
//!
//! ```text
//!   commit on 0 ──► send ──► backlog of processor 0 ──► receiver   emptied before `send` returns, unless the kernel
//!      moved     (waits for the line above to be empty)            was interrupted: then a kernel thread goes on later
//!   commit on 1 ──► send ──► backlog of processor 1 ──► receiver
//! ```
//!
//! veth, loopback and other devices without a queue (and TUN devices, for packets forwarded to these) leave packets in
//! the backlog of the processor that sends. A thread pinned to one processor is not affected. `/proc/net/softnet_stat`
//! has each backlog's length, readable without privileges.
//!
//! Where other programs want the processors too, the thread may also migrate after that look and before the kernel has
//! its packets. Such a migration is noticed when it has happened. From then on the thread stays on its processor during
//! each of the next calls; where no call is interrupted, none pays for that.

use super::affinity::{StaysHere, processor};
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long to wait for an empty backlog. A full one of 1000 packets takes about a millisecond. Where other programs
/// run there, the kernel thread that empties it waits for its turn, a scheduler's slice of 3 ms or several.
const BACKLOG_DRAIN_TIMEOUT: Duration = Duration::from_millis(20);

/// For how many calls the thread stays on its processor after it has migrated during one. MEASURED: to stay for one
/// call costs 8 µs, a call with 64 packets takes 50 to 150 µs (AMD EPYC).
const PINNED_CALLS_AFTER_MIGRATION: u32 = 256;

/// Notices that its thread has migrated, and waits for the backlogs of the processors that it left.
pub struct MigrationGuard {
    /// Where the thread was before the last call that sent packets, and after it.
    sent_on: [Option<usize>; 2],
    pinned_calls_left: u32,
    backlogs: Option<Backlogs>,
}

/// Whether the thread has migrated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Migration {
    /// It has not.
    None,
    /// It has, and the backlog was empty.
    Drained,
    /// It has, and waited for the backlog.
    Waited,
}

impl MigrationGuard {
    /// For one thread's packets. Where the backlogs cannot be read, it never waits.
    pub fn open() -> Self {
        Self {
            sent_on: [None; 2],
            pinned_calls_left: 0,
            backlogs: Backlogs::open(),
        }
    }

    /// Makes one call that sends packets, behind all that earlier calls have sent.
    pub fn send<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let _stays = (self.pinned_calls_left > 0).then(StaysHere::new);
        self.pinned_calls_left = self.pinned_calls_left.saturating_sub(1);
        self.wait_for_backlogs();
        let result = call();
        let [before, after] = &mut self.sent_on;
        *after = processor();
        if after != before {
            self.pinned_calls_left = PINNED_CALLS_AFTER_MIGRATION;
        }
        result
    }

    fn wait_for_backlogs(&mut self) -> Migration {
        let here = processor();
        let [before, after] = std::mem::replace(&mut self.sent_on, [here; 2]);
        let Some(backlogs) = &mut self.backlogs else {
            return Migration::None;
        };
        [before, after.filter(|_| after != before)]
            .into_iter()
            .flatten()
            .filter(|&left| Some(left) != here)
            .map(|left| {
                if backlogs.wait_for(left) {
                    Migration::Waited
                } else {
                    Migration::Drained
                }
            })
            .max()
            .unwrap_or(Migration::None)
    }
}

/// The kernel's table of the processors' backlogs.
struct Backlogs {
    file: OwnedFd,
    text: Vec<u8>,
}

impl Backlogs {
    fn open() -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/net/softnet_stat", flags, Mode::empty()).ok()?;
        let mut backlogs = Self {
            file,
            // MEASURED: a line has 136 bytes (Linux 6.18). Grows with the number of processors at the first read.
            text: vec![0; 4096],
        };
        backlogs.read(0).is_some().then_some(backlogs)
    }

    /// Returns when that processor's backlog was empty once, or the timeout is over; returns whether it had to wait.
    fn wait_for(&mut self, processor: usize) -> bool {
        if self.read(processor).is_none_or(|waiting| waiting == 0) {
            return false;
        }
        let end = Instant::now() + BACKLOG_DRAIN_TIMEOUT;
        while self.read(processor).is_some_and(|waiting| waiting > 0) && Instant::now() < end {
            std::thread::yield_now();
        }
        true
    }

    /// How many packets wait on that processor; none if that is unknown.
    fn read(&mut self, processor: usize) -> Option<u32> {
        let mut filled = 0;
        loop {
            let room = &mut self.text[filled..];
            match rustix::io::pread(&self.file, room, filled as u64).ok()? {
                0 => break,
                len => filled += len,
            }
            if filled == self.text.len() {
                self.text.resize(2 * filled, 0);
            }
        }
        backlog(&self.text[..filled], processor)
    }
}

/// The backlog of a processor: the twelfth number of the line whose thirteenth is that processor's (since Linux 5.10).
fn backlog(table: &[u8], processor: usize) -> Option<u32> {
    table.split(|&byte| byte == b'\n').find_map(|line| {
        let mut numbers = line.split(|&byte| byte == b' ').skip(11);
        let (waiting, number) = (hexadecimal(numbers.next()?)?, numbers.next()?);
        (hexadecimal(number)? as usize == processor).then_some(waiting)
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(all(test, not(loom)))]
mod tests;
