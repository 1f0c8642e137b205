//! SIGTERM, SIGINT and SIGHUP as a descriptor that can be polled beside sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The signals that end a gateway or make it read its file again, blocked in all threads and read here.
pub(super) struct Signals(OwnedFd);

/// What a signal requests.
pub(super) enum Signal {
    /// To stop, and its name.
    Stop(&'static str),
    /// To read the file again.
    Reload,
}

impl Signals {
    /// Blocks them for this thread and every thread that it starts.
    pub(super) fn block() -> io::Result<Self> {
        // SAFETY: the set is made whole by sigemptyset before it is used, and lives through every call.
        let fd = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            let blocked =
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            if blocked != 0 {
                return Err(io::Error::from_raw_os_error(blocked));
            }
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and not used elsewhere.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A pending signal, if there is one.
    pub(super) fn take(&self) -> Option<Signal> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.0, &mut info).ok()?;
        if read < 4 {
            return None;
        }
        let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
        match number as i32 {
            libc::SIGTERM => Some(Signal::Stop("SIGTERM")),
            libc::SIGINT => Some(Signal::Stop("SIGINT")),
            libc::SIGHUP => Some(Signal::Reload),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}
