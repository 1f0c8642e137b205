//! Many sockets as one: a source that reads whichever has something, and a sink that sends each parcel through the socket
//! that fits it.
//!
//! ```text
//!   UDP v4 ─┐                                        ┌─► UDP v4, port 4500
//!   UDP v6 ─┼─► Gathering ──► inbound     outbound ──► Dispatching ─► raw v6, protocol 50
//!   raw v4 ─┘                                        └─► …
//! ```

use super::waker::poll_patiently;
use super::{Arrival, Intake, Parcel, ProtectedSink, ProtectedSource, Sent, Wait, Waker};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// A source that can be waited for together with others.
pub trait Waitable: ProtectedSource + AsFd {
    /// Whether it keeps packets that it has already taken from the kernel, of which the kernel cannot tell any more.
    fn has_backlog(&self) -> bool;
}

/// The most sources of one [`Gathering`].
pub const MOST_SOURCES: usize = 15;

/// Several sources as one.
pub struct Gathering {
    sources: Vec<Box<dyn Waitable>>,
    waker: Option<Waker>,
    /// Who is asked first: after a turn in which the intake got full, the one behind it.
    first: usize,
}

impl Gathering {
    /// Reads from all of these, each in its turn.
    ///
    /// # Panics
    /// If there are none, or more than [`MOST_SOURCES`].
    pub fn of(sources: Vec<Box<dyn Waitable>>) -> Self {
        assert!((1..=MOST_SOURCES).contains(&sources.len()));
        Self {
            sources,
            waker: None,
            first: 0,
        }
    }

    /// Lets `waker` end this source's sleep; the single sources need none.
    pub fn woken_by(self, waker: Waker) -> Self {
        Self {
            waker: Some(waker),
            ..self
        }
    }

    /// Which sources have something, after at most this time: one bit each. None if the waker was used.
    fn ready(&self, limit: Duration) -> io::Result<Option<u16>> {
        let nobody = self.sources[0].as_fd();
        let fd_of = |n: usize| self.sources.get(n).map_or(nobody, |source| source.as_fd());
        let mut watched: [PollFd<'_>; MOST_SOURCES + 1] =
            std::array::from_fn(|n| PollFd::from_borrowed_fd(fd_of(n), PollFlags::IN));
        let mut count = self.sources.len();
        if let Some(waker) = &self.waker {
            watched[count] = PollFd::new(waker, PollFlags::IN);
            count += 1;
        }
        poll_patiently(&mut watched[..count], limit)?;
        let bits = watched[..count].iter().enumerate();
        let bits = bits.fold(0, |bits, (n, one)| {
            bits | u16::from(!one.revents().is_empty()) << n
        });
        match &self.waker {
            Some(waker) if bits >> self.sources.len() != 0 => {
                waker.take();
                Ok(None)
            }
            _ => Ok(Some(bits)),
        }
    }

    /// Which sources have packets that no longer wait in the kernel.
    fn backlogs(&self) -> u16 {
        let each = self.sources.iter().enumerate();
        each.fold(0, |bits, (n, source)| {
            bits | u16::from(source.has_backlog()) << n
        })
    }

    fn fill_from(&mut self, ready: u16, intake: &mut Intake<Arrival>) -> io::Result<usize> {
        let (count, before) = (self.sources.len(), intake.items.len());
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
        let backlogs = self.backlogs();
        let limit = match wait {
            Wait::AtMost(limit) if backlogs == 0 && intake.items.is_empty() => limit,
            _ => Duration::ZERO,
        };
        match self.ready(limit)? {
            Some(ready) if ready | backlogs != 0 => self.fill_from(ready | backlogs, intake),
            _ => Ok(0),
        }
    }
}

/// A sink that knows which parcels it can send.
pub trait Addressed: ProtectedSink {
    /// Whether the parcel's outer header is one that this sink writes.
    fn fits(&self, parcel: &Parcel<'_>) -> bool;
}

/// Several sinks as one.
#[derive(Default)]
pub struct Dispatching {
    sinks: Vec<Box<dyn Addressed>>,
}

impl Dispatching {
    /// Sends each parcel through the first of these that fits it.
    pub fn to(sinks: Vec<Box<dyn Addressed>>) -> Self {
        Self { sinks }
    }
}

impl ProtectedSink for Dispatching {
    /// Runs of parcels for one sink go in one call, so that order is kept and calls are few.
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
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
