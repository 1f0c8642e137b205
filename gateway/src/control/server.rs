//! The gateway's end: one thread for many clients, none of which can block it.

mod connection;

use self::connection::Client;
use super::UNKNOWN_REQUEST;
use super::folder::{BadFolder, Folder};
use super::message::{Answer, Request};
use crate::handover;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode};
use rustix::net::sockopt::socket_peercred;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How many clients are served at once; further ones are refused.
const MAX_CLIENTS: usize = 64;

/// How many of them may listen to events; the other places are kept for requests.
const MAX_EVENT_LISTENERS: usize = 48;

/// How long nothing is accepted where not even a client that is turned away can be.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of events that may wait for a slow listener before it is dropped.
const MAX_UNSENT_EVENT_BYTES: usize = 1 << 20;

/// A client, for as long as it is connected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClientId(u64);

/// Why the server cannot listen on a socket.
#[derive(Debug)]
pub(crate) enum Busy {
    /// A running gateway holds its lock.
    Taken(PathBuf),
    /// Something other than a socket exists there.
    NoSocket(PathBuf),
    /// The folder, or a file beside the socket, is not trusted or cannot be used.
    Folder(BadFolder),
    /// The system refused.
    Io(PathBuf, io::Error),
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(path) => write!(
                f,
                "another gateway is running at {}: stop it with `esplanade down --control {0}`, or choose \
                 another socket with --control",
                path.display()
            ),
            Self::NoSocket(path) => write!(
                f,
                "{} is not a socket: choose another path with --control",
                path.display()
            ),
            Self::Folder(error) => error.fmt(f),
            Self::Io(path, error) => write!(
                f,
                "cannot create the control socket {}: {error}; choose another with --control",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Busy {}

/// What one wait returned.
#[derive(Default)]
pub(crate) struct Received {
    /// Requests, each to be answered by [`Server::answer`].
    pub requests: Vec<(ClientId, Request)>,
}

/// The listening socket and all connected clients.
pub(crate) struct Server {
    listener: UnixListener,
    clients: BTreeMap<ClientId, Client>,
    next: u64,
    folder: Folder,
    is_up: bool,
    /// Closed for a moment where no descriptor is left, so that a client can be accepted and turned away.
    spare: Option<UnixListener>,
    _lock: File,
}

impl Server {
    /// Binds the socket of this folder. A socket left by a gateway that was killed is replaced; one of a running
    /// gateway is not.
    pub(crate) fn bind(folder: Folder) -> Result<Self, Busy> {
        let lock = folder.lock().map_err(|error| match error {
            BadFolder::Locked(_) => Busy::Taken(folder.socket().to_owned()),
            error => Busy::Folder(error),
        })?;
        let io = |error| Busy::Io(folder.socket().to_owned(), error);
        let bound = clear_stale(&folder).and_then(|()| listen(&folder).map_err(io));
        let listener = bound.inspect_err(|_| folder.undo())?;
        Ok(Self {
            spare: listener.try_clone().ok(),
            listener,
            clients: BTreeMap::new(),
            next: 0,
            folder,
            is_up: false,
            _lock: lock,
        })
    }

    /// The folder, with the files beside the socket.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// From now on the files and folders made for the socket are kept.
    pub(crate) fn is_up(&mut self) {
        self.is_up = true;
    }

    /// Waits until a client has sent a request, one of `others` can be read, or the time has passed.
    pub(crate) fn wait(
        &mut self,
        others: &[BorrowedFd<'_>],
        time: Duration,
    ) -> io::Result<Received> {
        self.poll(others, time)?;
        self.accept()?;
        let mut received = Received::default();
        let now = Instant::now();
        for (id, client) in &mut self.clients {
            client.write();
            if let Some(line) = client.read() {
                match serde_json::from_slice(&line) {
                    Ok(request) => received.requests.push((*id, request)),
                    Err(error) => {
                        client.say(&Answer::Refused(format!("{UNKNOWN_REQUEST}: {error}")))
                    }
                }
            }
            client.closed |= client.deadline.is_some_and(|deadline| deadline < now);
        }
        self.clients.retain(|_, client| !client.closed);
        Ok(received)
    }

    /// Answers a request. The connection is closed once the client has read the answer.
    pub(crate) fn answer(&mut self, id: ClientId, answer: &Answer) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.say(answer);
        }
    }

    /// Until when other work should wait, because a client is about to ask, or is reading an answer that did not fit
    /// into its socket.
    pub(crate) fn preferred_until(&self) -> Option<Instant> {
        let now = Instant::now();
        let ends = self.clients.values().filter_map(Client::preferred_until);
        ends.filter(|end| now < *end).max()
    }

    /// Sends descriptors ahead of the answer.
    pub(crate) fn pass(&mut self, id: ClientId, descriptors: &[OwnedFd]) -> io::Result<()> {
        match self.clients.get(&id) {
            Some(client) => handover::send(&client.stream, descriptors),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// From now on this client receives every event, unless there are too many listeners already.
    pub(crate) fn listen(&mut self, id: ClientId) {
        let listeners = self.clients.values().filter(|client| client.listens);
        let is_full = listeners.count() >= MAX_EVENT_LISTENERS;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if is_full {
            return client.say(&Answer::Refused(format!(
                "{MAX_EVENT_LISTENERS} clients listen to events already, which is the limit: end another `esplanade \
                 events` first"
            )));
        }
        client.listens = true;
        client.deadline = None;
    }

    /// Whether any client listens to events.
    pub(crate) fn has_listeners(&self) -> bool {
        self.clients.values().any(|client| client.listens)
    }

    /// Sends an event to all listeners. One that reads too slowly is disconnected rather than waited for.
    pub(crate) fn publish(&mut self, answer: &Answer) {
        for client in self.clients.values_mut().filter(|client| client.listens) {
            if client.unsent() > MAX_UNSENT_EVENT_BYTES {
                client.closed = true;
            } else {
                client.say(answer);
            }
        }
    }

    /// Gives clients a last chance to read their answers.
    pub(crate) fn flush(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while self.clients.values().any(Client::has_to_say) && Instant::now() < end {
            for client in self.clients.values_mut() {
                client.write();
            }
            self.clients.retain(|_, client| !client.closed);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn poll(&self, others: &[BorrowedFd<'_>], time: Duration) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(
            others
                .iter()
                .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)),
        );
        for client in self.clients.values() {
            let wants = if client.has_to_say() {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wants));
        }
        let limit = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A client that disconnected before it was accepted is ignored.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) if is_shortage(&error) => {
                    self.turn_away();
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if !is_trusted(&stream) {
                continue;
            }
            stream.set_nonblocking(true)?;
            let mut client = Client::new(stream);
            if self.clients.len() >= MAX_CLIENTS {
                // The connection is closed at once, and its request is not read.
                client.say(&Answer::Refused(format!(
                    "{MAX_CLIENTS} clients are connected already, which is the limit: try again in a moment"
                )));
                continue;
            }
            self.next += 1;
            self.clients.insert(ClientId(self.next), client);
        }
    }

    /// Answers one client without keeping it, by the descriptor that is kept for this. Where not even that is possible
    /// the client waits, and this thread does not ask again and again.
    fn turn_away(&mut self) {
        self.spare = None;
        match self.listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                Client::new(stream).say(&Answer::Refused(
                    "the gateway has no descriptor or memory left for another client: try again in a moment".to_owned(),
                ));
            }
            _ => thread::sleep(SHORTAGE_PAUSE),
        }
        self.spare = self.listener.try_clone().ok();
    }
}

/// Whether this process, or the host, has no descriptor or memory left at this moment.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| shortages.contains(&code))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.folder.remove_socket();
        if !self.is_up {
            self.folder.undo();
        }
    }
}

fn clear_stale(folder: &Folder) -> Result<(), Busy> {
    let path = folder.socket();
    let io = |error| Busy::Io(path.to_owned(), error);
    let Some(found) = folder.socket_there().map_err(io)? else {
        return Ok(());
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(Busy::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(Busy::Taken(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            folder.remove_socket().map_err(io)
        }
        Err(error) => Err(io(error)),
    }
}

/// Binds by the path, which clients use, and verifies that it led to the folder that was checked.
fn listen(folder: &Folder) -> io::Result<UnixListener> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(folder.socket());
    rustix::process::umask(before);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    let there = folder.socket_there()?.map(|found| found.st_mode);
    if there.map(FileType::from_raw_mode) != Some(FileType::Socket) {
        return Err(io::Error::other(
            "the path was redirected to another folder meanwhile",
        ));
    }
    Ok(listener)
}

/// Only root and the gateway's own user are trusted. The socket's mode requires the same, but a folder may be shared.
fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

#[cfg(test)]
mod tests;
