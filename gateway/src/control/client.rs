//! The command line's end of the control socket.

use super::message::{Answer, Request};
use crate::handover;
use crate::privileges::User;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a gateway's process may take to end after its last answer.
const PROCESS_EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a gateway, good for one request.
pub(crate) struct Client {
    stream: UnixStream,
    path: PathBuf,
    /// Becomes readable once the gateway's process has ended; `None` where the kernel does not support that.
    process: Option<OwnedFd>,
}

/// Why a gateway gave no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// No process listens there.
    NotRunning(PathBuf),
    /// The socket belongs to another user.
    Forbidden(PathBuf),
    /// A process of this user, who is neither root nor us nor the gateways', listens there.
    Stranger(PathBuf, u32),
    /// The gateway has stopped, but its process does not end.
    Lingers(PathBuf),
    /// The connection broke.
    Broken(PathBuf, io::Error),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(path) => write!(
                f,
                "no gateway is running at {}: start one with `esplanade run`, or name its socket with --control",
                path.display()
            ),
            Self::Forbidden(path) => write!(
                f,
                "the gateway at {} belongs to another user: run this as root",
                path.display()
            ),
            Self::Stranger(path, user) => write!(
                f,
                "{} belongs to a process of user {user}, which is neither root nor you nor the gateway's user: \
                 nothing was sent to it; run this as that user, set ESPLANADE_USER={user} if that is the gateway's \
                 user, or name another socket with --control",
                path.display()
            ),
            Self::Lingers(path) => write!(
                f,
                "the gateway at {} has removed its rules, but its process has not exited within {} s",
                path.display(),
                PROCESS_EXIT_TIMEOUT.as_secs()
            ),
            Self::Broken(path, error) => {
                write!(
                    f,
                    "the gateway at {} closed the connection: {error}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for NoAnswer {}

impl NoAnswer {
    /// Whether no gateway is running there.
    pub(crate) fn is_not_running(&self) -> bool {
        matches!(self, Self::NotRunning(_))
    }
}

impl Client {
    /// Connects to the gateway at `path`.
    pub(crate) fn connect(path: &Path) -> Result<Self, NoAnswer> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                NoAnswer::NotRunning(path.to_owned())
            }
            ErrorKind::PermissionDenied => NoAnswer::Forbidden(path.to_owned()),
            _ => NoAnswer::Broken(path.to_owned(), error),
        })?;
        // SAFETY: every bit pattern is a valid value of these integers.
        let peer = unsafe { option::<libc::ucred>(&stream, libc::SO_PEERCRED) };
        let peer = peer.map_err(|error| NoAnswer::Broken(path.to_owned(), error))?;
        // Otherwise any user who can create a socket there would receive keys.
        if !User::is_trusted(peer.uid) {
            return Err(NoAnswer::Stranger(path.to_owned(), peer.uid));
        }
        let client = Self {
            process: process(&stream, peer.pid),
            stream,
            path: path.to_owned(),
        };
        client.set_timeouts(Some(Duration::from_secs(120)))?;
        Ok(client)
    }

    /// Sends the request, and waits for the answer.
    pub(crate) fn ask(mut self, request: &Request) -> Result<Answer, NoAnswer> {
        self.send(request)?;
        let path = self.path.clone();
        let mut line = Zeroizing::new(String::new());
        let read = BufReader::new(&self.stream).read_line(&mut line);
        match read {
            Ok(0) => Err(NoAnswer::Broken(path, ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(NoAnswer::Broken(path, error)),
            Ok(_) => serde_json::from_str(&line)
                .map_err(|error| NoAnswer::Broken(path, io::Error::other(error))),
        }
    }

    /// Requests the gateway's end, and returns when its process has ended.
    pub(crate) fn ask_to_end(mut self, request: &Request) -> Result<Answer, NoAnswer> {
        let (process, path) = (self.process.take(), self.path.clone());
        let answer = self.ask(request)?;
        let Some(process) = process else {
            return Ok(answer);
        };
        wait_for_end(&process, &path)?;
        Ok(answer)
    }

    /// Requests the gateway's end and its descriptors, and returns when its process has ended.
    pub(crate) fn ask_to_leave(
        mut self,
        request: &Request,
    ) -> Result<(Answer, Vec<OwnedFd>), NoAnswer> {
        let (process, path) = (self.process.take(), self.path.clone());
        self.send(request)?;
        let broken = |error| NoAnswer::Broken(path.clone(), error);
        let (first, descriptors) = handover::receive_all(&self.stream).map_err(broken)?;
        let mut line = vec![first];
        BufReader::new(&self.stream)
            .read_until(b'\n', &mut line)
            .map_err(broken)?;
        let answer = serde_json::from_slice(&line).map_err(|error| broken(error.into()))?;
        if let (Answer::Left(_), Some(process)) = (&answer, process) {
            wait_for_end(&process, &path)?;
        }
        Ok((answer, descriptors))
    }

    /// Sends the request and passes every line of the answer to `line`, until the gateway stops or `line` returns
    /// false.
    pub(crate) fn follow(
        mut self,
        request: &Request,
        mut line: impl FnMut(Answer) -> bool,
    ) -> Result<(), NoAnswer> {
        self.send(request)?;
        self.set_timeouts(None)?;
        let path = self.path.clone();
        for text in BufReader::new(&self.stream).lines() {
            let answer = text
                .and_then(|text| serde_json::from_str(&text).map_err(io::Error::other))
                .map_err(|error| NoAnswer::Broken(path.clone(), error))?;
            if !line(answer) {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, request: &Request) -> Result<(), NoAnswer> {
        let broken = |error| NoAnswer::Broken(self.path.clone(), error);
        let mut text = Zeroizing::new(
            serde_json::to_vec(request)
                .map_err(io::Error::other)
                .map_err(broken)?,
        );
        text.push(b'\n');
        match self.stream.write_all(&text) {
            // A gateway that turns clients away answers before it reads.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            sent => sent.map_err(broken),
        }
    }

    fn set_timeouts(&self, time: Option<Duration>) -> Result<(), NoAnswer> {
        let set = self
            .stream
            .set_read_timeout(time)
            .and_then(|()| self.stream.set_write_timeout(time));
        set.map_err(|error| NoAnswer::Broken(self.path.clone(), error))
    }
}

fn wait_for_end(process: &OwnedFd, path: &Path) -> Result<(), NoAnswer> {
    let limit = Timespec {
        tv_sec: PROCESS_EXIT_TIMEOUT.as_secs() as i64,
        tv_nsec: 0,
    };
    match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)) {
        Ok(0) => Err(NoAnswer::Lingers(path.to_owned())),
        Ok(_) => Ok(()),
        Err(error) => Err(NoAnswer::Broken(path.to_owned(), error.into())),
    }
}

/// A descriptor of the process at the other end. The one that the socket provides (Linux 6.5) cannot be that of another
/// process that has reused the number, and also works for a process in a container, which has no number here.
fn process(stream: &UnixStream, pid: i32) -> Option<OwnedFd> {
    // SAFETY: every bit pattern is a valid integer.
    let raw = unsafe { option::<libc::c_int>(stream, libc::SO_PEERPIDFD) };
    if let Ok(raw @ 0..) = raw {
        // SAFETY: the descriptor is new and not used elsewhere.
        return Some(unsafe { OwnedFd::from_raw_fd(raw) });
    }
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// An option of the socket.
///
/// # Safety
/// Every bit pattern must be a valid `T`, zeroes included.
unsafe fn option<T>(stream: &UnixStream, name: libc::c_int) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `value`, and both live through the call.
    let outcome = unsafe {
        let at = value.as_mut_ptr().cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, name, at, &raw mut len)
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller guarantees that every bit pattern is valid.
    Ok(unsafe { value.assume_init() })
}
