//! Opening the sockets of key exchange, and starting its processes.

use super::inherited::ProcessOptions;
use super::link::Link;
use super::starter::{START, spawn};
use crate::failure::Failure;
use crate::handover;
use dataplane::io::udp::open_ike;
use dataplane::io::{Family, OpenError, PmtuCache, SocketOpener, SocketOptions, Warn};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The ports of IKE (RFC 7296 2).
const PORTS: [u16; 2] = [500, 4500];

/// How long a port may still be held by the processes of a gateway that has just been killed.
const PORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long starting the processes may take.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// What the sockets and the processes need.
pub(crate) struct Setup<'a> {
    /// The mark of outer packets.
    pub mark: u32,
    /// How sockets are opened, if not in this network namespace.
    pub opener: Option<SocketOpener>,
    /// The device that all outer packets go through.
    pub device: Option<String>,
    /// Whether the data plane's socket on port 4500 uses GRO.
    pub coalesces: bool,
    /// Whether the processes are restricted to their system calls.
    pub no_privilege_drop: bool,
    /// Receives what works less well than it should.
    pub warn: &'a Warn,
}

/// The process that starts the others, and keeps their sockets.
pub(crate) struct Processes {
    starter: UnixStream,
}

impl Processes {
    /// Opens the sockets, and starts the starter: before privileges are dropped, and before the data plane's sockets.
    pub(crate) fn prepare(setup: Setup<'_>) -> Result<Self, Failure> {
        let options = ProcessOptions {
            no_privilege_drop: setup.no_privilege_drop,
        };
        let sockets = open(&setup)?;
        let begin = || -> io::Result<UnixStream> {
            let (starter, theirs) = UnixStream::pair()?;
            // It ends with this process; nothing waits for it.
            drop(spawn("ike-starter", theirs, options)?);
            handover::send(&starter, &sockets)?;
            starter.set_read_timeout(Some(START_TIMEOUT))?;
            Ok(starter)
        };
        let starter = begin().map_err(|error| {
            Failure::new(format!(
                "cannot start the processes of key exchange: {error}"
            ))
        })?;
        Ok(Self { starter })
    }

    /// Starts the ike process and the key process, and ends those that were started before.
    pub(crate) fn start(&self) -> io::Result<Link> {
        (&self.starter).write_all(&[START])?;
        let (_, ends) = handover::receive(&self.starter)?;
        let [ike, keys] = <[OwnedFd; 2]>::try_from(ends)
            .map_err(|_| io::Error::other("the processes of key exchange did not start"))?;
        Link::new(ike.into(), keys.into())
    }
}

fn open(setup: &Setup<'_>) -> Result<Vec<OwnedFd>, Failure> {
    let mut options = SocketOptions::new(PmtuCache::default(), Arc::clone(setup.warn));
    options.mark = Some(setup.mark);
    options.opener.clone_from(&setup.opener);
    options.device.clone_from(&setup.device);
    let mut sockets = Vec::new();
    for family in [Family::V4, Family::V6] {
        for port in PORTS {
            match patiently(|| open_ike(family, port, setup.coalesces, &options)) {
                Ok(socket) => sockets.push(socket),
                Err(error @ OpenError::PortTaken { .. }) => {
                    return Err(Failure::new(format!(
                        "{error}: another program for IKE (charon, pluto) may be running; stop it"
                    )));
                }
                Err(error) if family == Family::V6 => {
                    (setup.warn)(&format!("no key exchange over IPv6: {error}"));
                    return Ok(sockets);
                }
                Err(error) => return Err(Failure::new(error)),
            }
        }
    }
    Ok(sockets)
}

/// Tries again while a port is taken.
fn patiently(open: impl Fn() -> Result<OwnedFd, OpenError>) -> Result<OwnedFd, OpenError> {
    let end = Instant::now() + PORT_TIMEOUT;
    loop {
        match open() {
            Err(OpenError::PortTaken { .. }) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            outcome => return outcome,
        }
    }
}
