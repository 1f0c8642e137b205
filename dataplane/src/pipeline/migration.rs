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

/// How long to wait for an empty backlog where its processor works: one of 1000 packets takes about a millisecond. If
/// it never gets empty, the packets sent before have left it by then.
const BUSY_BACKLOG_TIMEOUT: Duration = Duration::from_millis(2);

/// How long to wait where it does not: the kernel thread that empties the backlog waits until other programs there have
/// used up their time, a scheduler's slice of 3 ms or several.
const IDLE_BACKLOG_TIMEOUT: Duration = Duration::from_millis(20);

/// A processor works if it has taken in, since the wait began, the packets that waited then, on so many virtual cables
/// one behind the other.
const MAX_CABLES: u32 = 4;

/// For how many calls the thread stays on its processor after it has migrated during one. MEASURED: to stay for one
/// call costs 8 µs, a call with 64 packets takes 50 to 150 µs (AMD EPYC).
const PINNED_CALLS_AFTER_MIGRATION: u32 = 32;

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
        let Some(begin) = self.read(processor).filter(|now| now.waiting > 0) else {
            return false;
        };
        let began = Instant::now();
        while let Some(now) = self.read(processor)
            && now.waiting > 0
        {
            if began.elapsed() > now.timeout(begin) {
                break;
            }
            std::thread::yield_now();
        }
        true
    }

    /// The backlog of that processor; none if that is unknown.
    fn read(&mut self, processor: usize) -> Option<Backlog> {
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

/// What one processor's line of the table says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Backlog {
    /// Packets that it has taken in since it was started, from devices and from its backlog.
    processed: u32,
    /// Packets that wait.
    waiting: u32,
}

impl Backlog {
    /// How long to wait in all for it to get empty, where it was `begin` when the wait began.
    fn timeout(self, begin: Self) -> Duration {
        let processed = self.processed.wrapping_sub(begin.processed);
        if processed / MAX_CABLES >= begin.waiting {
            BUSY_BACKLOG_TIMEOUT
        } else {
            IDLE_BACKLOG_TIMEOUT
        }
    }
}

/// The backlog of a processor: the first and the twelfth number of the line whose thirteenth is that processor's (since
/// Linux 5.10).
fn backlog(table: &[u8], processor: usize) -> Option<Backlog> {
    table.split(|&byte| byte == b'\n').find_map(|line| {
        let mut numbers = line.split(|&byte| byte == b' ');
        let processed = hexadecimal(numbers.next()?)?;
        let mut numbers = numbers.skip(10);
        let waiting = hexadecimal(numbers.next()?)?;
        let is_line = hexadecimal(numbers.next()?)? as usize == processor;
        is_line.then_some(Backlog { processed, waiting })
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
