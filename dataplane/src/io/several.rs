//! Many sockets as one: a source that reads whichever has something, and a sink that sends each parcel through the socket
//! that fits it.
//!
//! ```text
//!   UDP v4 ─┐                                        ┌─► UDP v4, port 4500
//!   UDP v6 ─┼─► Gathering ──► inbound     outbound ──► Dispatching ─► raw v6, protocol 50
//!   raw v4 ─┘                                        └─► …
//! ```
//!
//! Sockets may join while packets flow: an association added later can need one that nobody had before.

use super::waker::poll_patiently;
use super::{Arrival, Intake, Parcel, ProtectedSink, ProtectedSource, Sent, Wait, Waker};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// A source that can be waited for together with others.
pub trait Waitable: ProtectedSource + AsFd {
    /// Whether it keeps packets that it has already taken from the kernel, of which the kernel cannot tell any more.
    fn has_backlog(&self) -> bool;

    /// Whether it is to be let go of.
    fn is_over(&self) -> bool {
        false
    }
}

/// The most sources of one [`Gathering`].
pub const MOST_SOURCES: usize = 63;

/// Several sources as one.
pub struct Gathering {
    sources: Vec<Box<dyn Waitable>>,
    joiner: Joiner<dyn Waitable>,
    waker: Waker,
    /// Who is asked first: in every turn another one, so that nobody starves while the intake gets full.
    first: usize,
    /// Which of them had something last: they are read again without being asked for.
    busy: u64,
    /// How often they were.
    turns: u32,
}

/// After so many turns all sources are asked.
const MOST_TURNS: u32 = 16;

/// Lets more ends join a [`Gathering`] or a [`Dispatching`] that is at work.
pub struct Joiner<End: ?Sized> {
    newcomers: Arc<Newcomers<End>>,
    /// Ends the sleep of a reader that does not know its new source yet.
    waker: Option<Waker>,
}

struct Newcomers<End: ?Sized> {
    waiting: Mutex<Vec<Box<End>>>,
    /// Looked at first, so that a call without newcomers costs nothing.
    any: AtomicBool,
}

impl<End: ?Sized> Clone for Joiner<End> {
    fn clone(&self) -> Self {
        Self {
            newcomers: self.newcomers.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl<End: ?Sized> Joiner<End> {
    fn new(waker: Option<Waker>) -> Self {
        let newcomers = Newcomers {
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
        };
        Self {
            newcomers: Arc::new(newcomers),
            waker,
        }
    }

    /// From the next call on, this end is one of them.
    pub fn join(&self, end: Box<End>) {
        let waiting = &self.newcomers.waiting;
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(end);
        self.newcomers.any.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    fn let_in(&self, ends: &mut Vec<Box<End>>) {
        if self.newcomers.any.swap(false, Ordering::Acquire) {
            let waiting = &self.newcomers.waiting;
            ends.append(&mut waiting.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Gathering {
    /// Reads from all of these, each in its turn, and of those that join later; `waker` ends the sleep. There may be
    /// [`MOST_SOURCES`]; those beyond are not read.
    pub fn of(sources: Vec<Box<dyn Waitable>>, waker: Waker) -> Self {
        Self {
            sources,
            joiner: Joiner::new(Some(waker.clone())),
            waker,
            first: 0,
            busy: 0,
            turns: 0,
        }
    }

    /// How more sources join.
    pub fn joiner(&self) -> Joiner<dyn Waitable> {
        self.joiner.clone()
    }

    /// Which sources have something, after at most this time: one bit each.
    fn ready(&self, limit: Duration) -> io::Result<u64> {
        let mut watched: [PollFd<'_>; MOST_SOURCES + 1] =
            std::array::from_fn(
                |n| match n.checked_sub(1).and_then(|n| self.sources.get(n)) {
                    Some(source) => PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
                    None => PollFd::new(&self.waker, PollFlags::IN),
                },
            );
        let count = self.sources.len().min(MOST_SOURCES);
        poll_patiently(&mut watched[..=count], limit)?;
        if !watched[0].revents().is_empty() {
            self.waker.take();
        }
        let each = watched[1..=count].iter().enumerate();
        Ok(each.fold(0, |bits, (n, one)| {
            bits | u64::from(!one.revents().is_empty()) << n
        }))
    }

    /// Which sources have packets that no longer wait in the kernel.
    fn backlogs(&self) -> u64 {
        let each = self.sources.iter().take(MOST_SOURCES).enumerate();
        each.fold(0, |bits, (n, source)| {
            bits | u64::from(source.has_backlog()) << n
        })
    }

    /// Lets newcomers in and lets go of those that are over.
    fn change_members(&mut self) {
        self.joiner.let_in(&mut self.sources);
        self.sources.retain(|source| !source.is_over());
    }

    fn fill_from(&mut self, ready: u64, intake: &mut Intake<Arrival>) -> io::Result<usize> {
        let count = self.sources.len().min(MOST_SOURCES);
        let before = intake.items.len();
        for turn in 0..count {
            let n = (self.first + turn) % count;
            if ready & (1 << n) == 0 {
                continue;
            }
            match self.sources[n].fill(intake, Wait::Poll) {
                // What others had is delivered first; the error is still there the next time.
                Err(error) if intake.items.len() == before => return Err(error),
                _ => {}
            }
        }
        self.first = (self.first + 1) % count;
        Ok(intake.items.len() - before)
    }
}

impl ProtectedSource for Gathering {
    fn fill(&mut self, intake: &mut Intake<Arrival>, wait: Wait) -> io::Result<usize> {
        // MEASURED: asking first cost a twelfth of the receiving thread's time (2-core VM, native ESP).
        if self.busy != 0 && self.turns < MOST_TURNS && intake.items.is_empty() {
            self.turns += 1;
            let count = self.fill_from(self.busy, intake)?;
            if count > 0 {
                return Ok(count);
            }
        }
        self.turns = 0;
        self.change_members();
        let backlogs = self.backlogs();
        let limit = match wait {
            Wait::AtMost(limit) if backlogs == 0 && intake.items.is_empty() => limit,
            _ => Duration::ZERO,
        };
        self.busy = self.ready(limit)? | backlogs;
        match self.busy {
            0 => Ok(0),
            ready => self.fill_from(ready, intake),
        }
    }
}

/// A sink that knows which parcels it can send.
pub trait Addressed: ProtectedSink {
    /// Whether the parcel's outer header is one that this sink writes.
    fn fits(&self, parcel: &Parcel<'_>) -> bool;
}

/// Several sinks as one.
pub struct Dispatching {
    sinks: Vec<Box<dyn Addressed>>,
    joiner: Joiner<dyn Addressed>,
}

impl Dispatching {
    /// Sends each parcel through the first of these that fits it, or of those that join later.
    pub fn to(sinks: Vec<Box<dyn Addressed>>) -> Self {
        Self {
            sinks,
            joiner: Joiner::new(None),
        }
    }

    /// How more sinks join.
    pub fn joiner(&self) -> Joiner<dyn Addressed> {
        self.joiner.clone()
    }
}

impl ProtectedSink for Dispatching {
    /// Runs of parcels for one sink go in one call, so that order is kept and calls are few.
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
        self.joiner.let_in(&mut self.sinks);
        let mut sent = Sent::default();
        let mut rest = parcels;
        while let Some(first) = rest.first() {
            let sink = self.sinks.iter_mut().find(|sink| sink.fits(first));
            let len = match &sink {
                Some(sink) => rest.iter().take_while(|parcel| sink.fits(parcel)).count(),
                None => 1,
            };
            let (run, behind) = rest.split_at(len);
            sent += match sink {
                Some(sink) => sink.deliver(run)?,
                None => Sent {
                    failed: first.packets(),
                    ..Sent::default()
                },
            };
            rest = behind;
        }
        Ok(sent)
    }
}
