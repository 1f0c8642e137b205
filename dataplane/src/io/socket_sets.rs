//! Many sockets as one: a source that reads from all sockets that are ready, and a sink that sends each burst through
//! the socket that accepts it.
//!
//! ```text
//!   UDP v4 ─┐                                        ┌─► UDP v4, port 4500
//!   UDP v6 ─┼─► SourceSet ──► inbound     outbound ──► SinkSet ─► raw v6, protocol 50
//!   raw v4 ─┘                                        └─► …
//! ```
//!
//! Sockets can be added while packets flow: an SA added later can need one that none before needed.

use super::waker::poll_for;
use super::{Arrival, Burst, ProtectedSink, ProtectedSource, ReceiveBuffer, Sent, Wait, Waker};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// A source that can be polled together with others.
pub trait PollableSource: ProtectedSource + AsFd {
    /// Whether it holds packets that it has already taken from the kernel, so that polling does not show them.
    fn has_backlog(&self) -> bool;

    /// Whether it was closed and is to be dropped.
    fn is_closed(&self) -> bool {
        false
    }
}

/// The most sources of one [`SourceSet`].
pub const MAX_SOURCES: usize = 63;

/// Several sources as one.
pub struct SourceSet {
    sources: Vec<Box<dyn PollableSource>>,
    adder: Adder<dyn PollableSource>,
    waker: Waker,
    /// Which source is read first: another one in every turn, so that each is read even if the buffer gets full.
    first: usize,
    /// Which sources had packets in the last turn: they are read again without polling.
    ready_last: u64,
    /// How many turns have passed without polling.
    reads_without_poll: u32,
}

/// After so many turns without polling all sources are polled.
const MAX_READS_WITHOUT_POLL: u32 = 16;

/// Adds sources to a [`SourceSet`] or sinks to a [`SinkSet`] that is in use.
pub struct Adder<End: ?Sized> {
    pending: Arc<Pending<End>>,
    /// Ends the sleep of a reader that does not have its new source yet.
    waker: Option<Waker>,
}

struct Pending<End: ?Sized> {
    waiting: Mutex<Vec<Box<End>>>,
    /// Read first, so that a call without new ends costs nothing.
    any: AtomicBool,
}

impl<End: ?Sized> Clone for Adder<End> {
    fn clone(&self) -> Self {
        Self {
            pending: self.pending.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl<End: ?Sized> Adder<End> {
    fn new(waker: Option<Waker>) -> Self {
        let pending = Pending {
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
        };
        Self {
            pending: Arc::new(pending),
            waker,
        }
    }

    /// Adds an end, which is used from the next call of the set on.
    pub fn add(&self, end: Box<End>) {
        let waiting = &self.pending.waiting;
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(end);
        self.pending.any.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    fn take_pending(&self, ends: &mut Vec<Box<End>>) {
        if self.pending.any.swap(false, Ordering::Acquire) {
            let waiting = &self.pending.waiting;
            ends.append(&mut waiting.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl SourceSet {
    /// Reads from these sources in turn, and from those added later; `waker` ends the sleep. At most
    /// [`MAX_SOURCES`] are read.
    pub fn of(sources: Vec<Box<dyn PollableSource>>, waker: Waker) -> Self {
        Self {
            sources,
            adder: Adder::new(Some(waker.clone())),
            waker,
            first: 0,
            ready_last: 0,
            reads_without_poll: 0,
        }
    }

    /// Adds more sources.
    pub fn adder(&self) -> Adder<dyn PollableSource> {
        self.adder.clone()
    }

    /// Which sources are ready, after at most this time: one bit each.
    fn ready(&self, limit: Duration) -> io::Result<u64> {
        let mut watched: [PollFd<'_>; MAX_SOURCES + 1] =
            std::array::from_fn(
                |n| match n.checked_sub(1).and_then(|n| self.sources.get(n)) {
                    Some(source) => PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
                    None => PollFd::new(&self.waker, PollFlags::IN),
                },
            );
        let count = self.sources.len().min(MAX_SOURCES);
        poll_for(&mut watched[..=count], limit)?;
        if !watched[0].revents().is_empty() {
            self.waker.take();
        }
        let each = watched[1..=count].iter().enumerate();
        Ok(each.fold(0, |bits, (n, one)| {
            bits | u64::from(!one.revents().is_empty()) << n
        }))
    }

    /// Which sources hold packets that they have taken from the kernel.
    fn backlogs(&self) -> u64 {
        let each = self.sources.iter().take(MAX_SOURCES).enumerate();
        each.fold(0, |bits, (n, source)| {
            bits | u64::from(source.has_backlog()) << n
        })
    }

    /// Adds new sources and drops those that are closed.
    fn update_members(&mut self) {
        self.adder.take_pending(&mut self.sources);
        self.sources.retain(|source| !source.is_closed());
    }

    fn fill_from(&mut self, ready: u64, buffer: &mut ReceiveBuffer<Arrival>) -> io::Result<usize> {
        let count = self.sources.len().min(MAX_SOURCES);
        let before = buffer.items.len();
        for turn in 0..count {
            let n = (self.first + turn) % count;
            if ready & (1 << n) == 0 {
                continue;
            }
            match self.sources[n].fill(buffer, Wait::Poll) {
                // What other sources had is delivered first; the error is still there the next time.
                Err(error) if buffer.items.len() == before => return Err(error),
                _ => {}
            }
        }
        self.first = (self.first + 1) % count;
        Ok(buffer.items.len() - before)
    }
}

impl ProtectedSource for SourceSet {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        // MEASURED: asking first cost a twelfth of the receiving thread's time (2-core VM, native ESP).
        if self.ready_last != 0
            && self.reads_without_poll < MAX_READS_WITHOUT_POLL
            && buffer.items.is_empty()
        {
            self.reads_without_poll += 1;
            let count = self.fill_from(self.ready_last, buffer)?;
            if count > 0 {
                return Ok(count);
            }
        }
        self.reads_without_poll = 0;
        self.update_members();
        let backlogs = self.backlogs();
        let limit = match wait {
            Wait::AtMost(limit) if backlogs == 0 && buffer.items.is_empty() => limit,
            _ => Duration::ZERO,
        };
        self.ready_last = self.ready(limit)? | backlogs;
        match self.ready_last {
            0 => Ok(0),
            ready => self.fill_from(ready, buffer),
        }
    }
}

/// A sink that accepts some bursts and not others.
pub trait SelectiveSink: ProtectedSink {
    /// Whether this sink can send the burst, by its outer header.
    fn accepts(&self, burst: &Burst<'_>) -> bool;
}

/// Several sinks as one.
pub struct SinkSet {
    sinks: Vec<Box<dyn SelectiveSink>>,
    adder: Adder<dyn SelectiveSink>,
}

impl SinkSet {
    /// Sends each burst through the first of these sinks that accepts it, or of those added later.
    pub fn to(sinks: Vec<Box<dyn SelectiveSink>>) -> Self {
        Self {
            sinks,
            adder: Adder::new(None),
        }
    }

    /// Adds more sinks.
    pub fn adder(&self) -> Adder<dyn SelectiveSink> {
        self.adder.clone()
    }
}

impl ProtectedSink for SinkSet {
    /// Consecutive bursts for one sink go in one call: order is kept, and calls are few.
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        self.adder.take_pending(&mut self.sinks);
        let mut sent = Sent::default();
        let mut rest = bursts;
        while let Some(first) = rest.first() {
            let sink = self.sinks.iter_mut().find(|sink| sink.accepts(first));
            let len = match &sink {
                Some(sink) => rest.iter().take_while(|burst| sink.accepts(burst)).count(),
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
