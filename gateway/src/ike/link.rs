//! The main process's end: what goes to the ike process and to the key process, and what comes from them. Nothing here
//! ever waits.

use super::channel::Channel;
use super::message::{Configuration, FromIke, FromKeys, SecretEntry, ToIke, ToKeys};
use rustix::event::epoll;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Messages that wait until the key process has its secrets.
const MAX_HELD_MESSAGES: usize = 65_536;

/// The two processes, for as long as they live. Dropping it ends them.
pub(crate) struct Link {
    ike: Channel,
    keys: Channel,
    events: OwnedFd,
    /// Whether [`Link::as_fd`] shows room in the stream to either process.
    watches_room: [bool; 2],
    /// Sets of secrets that the key process has not confirmed.
    unconfirmed: usize,
    /// What follows an unconfirmed set.
    held: VecDeque<ToIke>,
}

impl Link {
    pub(super) fn new(ike: UnixStream, keys: UnixStream) -> io::Result<Self> {
        let link = Self {
            ike: Channel::new(ike)?,
            keys: Channel::new(keys)?,
            events: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            watches_room: [false; 2],
            unconfirmed: 0,
            held: VecDeque::new(),
        };
        for (number, channel) in [&link.ike, &link.keys].into_iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&link.events, channel, data, epoll::EventFlags::IN)?;
        }
        Ok(link)
    }

    /// Sends connections to the ike process, and secrets to the key process, which has them before the first is used.
    /// False: the processes are gone, or do not read.
    pub(crate) fn configure(
        &mut self,
        configuration: Configuration,
        secrets: Vec<SecretEntry>,
    ) -> bool {
        if self.keys.push(&ToKeys::Secrets(secrets)).is_err() {
            return false;
        }
        self.unconfirmed += 1;
        self.send(ToIke::Configure(configuration))
    }

    /// Sends a message to the ike process. False: it is gone, or does not read.
    pub(crate) fn send(&mut self, message: ToIke) -> bool {
        self.send_all([message])
    }

    /// Sends several at once.
    pub(crate) fn send_all(&mut self, messages: impl IntoIterator<Item = ToIke>) -> bool {
        let mut queued = true;
        for message in messages {
            queued &= if self.unconfirmed > 0 {
                self.held.push_back(message);
                self.held.len() <= MAX_HELD_MESSAGES
            } else {
                self.ike.push(&message).is_ok()
            };
        }
        queued && self.go_on().is_ok()
    }

    /// The next message, or `None` if there is none yet. An error: the processes are gone.
    pub(crate) fn receive(&mut self) -> io::Result<Option<FromIke>> {
        let mut next = None;
        self.receive_all(1, |message| next = Some(message))?;
        Ok(next)
    }

    /// Gives what has come to `take`, at most so many messages: both streams are looked after once for all of them. An
    /// error: the processes are gone, and every message that came before was given.
    pub(crate) fn receive_all(
        &mut self,
        max_messages: usize,
        mut take: impl FnMut(FromIke),
    ) -> io::Result<()> {
        let passed_on = self.release_held().and_then(|()| self.go_on());
        for _ in 0..max_messages {
            match self.ike.receive()? {
                Some(message) => take(message),
                // What the ike process has sent comes before the news that one of the two has ended.
                None => return passed_on,
            }
        }
        Ok(())
    }

    /// Passes on what has waited, once the secrets are in force.
    fn release_held(&mut self) -> io::Result<()> {
        while let Some(FromKeys::Ready) = self.keys.receive()? {
            self.unconfirmed = self.unconfirmed.saturating_sub(1);
        }
        if self.unconfirmed == 0 {
            for message in self.held.drain(..) {
                let full = |_| io::Error::from(io::ErrorKind::StorageFull);
                self.ike.push(&message).map_err(full)?;
            }
        }
        Ok(())
    }

    /// The stream to the ike process alone; the one to the key process ends.
    #[cfg(test)]
    pub(super) fn into_ike(self) -> Channel {
        self.ike
    }

    /// Sends what the sockets take, and has [`Link::as_fd`] show when there is room for the rest.
    fn go_on(&mut self) -> io::Result<()> {
        for (number, channel) in [&mut self.ike, &mut self.keys].into_iter().enumerate() {
            channel.flush()?;
            let waits = channel.waiting_bytes() > 0;
            let watches = &mut self.watches_room[number];
            if std::mem::replace(watches, waits) == waits {
                continue;
            }
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, waits);
            let data = epoll::EventData::new_u64(number as u64);
            epoll::modify(&self.events, &*channel, data, flags)?;
        }
        Ok(())
    }
}

impl AsFd for Link {
    /// Readable when [`Link::receive`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
