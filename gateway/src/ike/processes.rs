//! Opening the sockets of key exchange, and starting its processes.

use super::inherited::ProcessOptions;
use super::link::Link;
use super::starter::spawn;
use crate::failure::Failure;
use crate::handover;
use dataplane::io::udp::{FirstSocket, open_ike, set_coalescing};
use dataplane::io::{Family, OpenError, PmtuCache, SocketOpener, SocketOptions, Warn};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
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
pub(crate) struct Setup {
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
    pub warn: Warn,
}

/// The process that starts the others, and their sockets.
pub(crate) struct Processes {
    starter: UnixStream,
    setup: Setup,
    /// None before the first peer.
    sockets: Vec<OwnedFd>,
}

impl Processes {
    /// Starts the starter: before privileges are dropped.
    pub(crate) fn prepare(setup: Setup) -> Result<Self, Failure> {
        let options = ProcessOptions {
            no_privilege_drop: setup.no_privilege_drop,
        };
        let begin = || -> io::Result<UnixStream> {
            let (starter, theirs) = UnixStream::pair()?;
            // It ends with this process; nothing waits for it.
            drop(spawn("ike-starter", theirs, options)?);
            starter.set_read_timeout(Some(START_TIMEOUT))?;
            Ok(starter)
        };
        let starter = begin().map_err(|error| {
            Failure::new(format!(
                "cannot start the processes of key exchange: {error}"
            ))
        })?;
        Ok(Self {
            starter,
            setup,
            sockets: Vec::new(),
        })
    }

    /// Opens the sockets, unless they are open: with the first peer, so that a gateway without peers leaves the ports
    /// to other programs. `first`: which socket of each family has port 4500 first.
    pub(crate) fn open_sockets(
        &mut self,
        first: impl Fn(Family) -> FirstSocket,
    ) -> Result<(), Failure> {
        if self.sockets.is_empty() {
            self.sockets = open(&self.setup, first)?;
        }
        Ok(())
    }

    /// Takes over the sockets of the gateway before, with what waits in them.
    pub(crate) fn take_over(&mut self, sockets: Vec<OwnedFd>) {
        self.sockets = sockets;
    }

    /// The sockets, for the next gateway.
    pub(crate) fn share_sockets(&self) -> io::Result<Vec<OwnedFd>> {
        self.sockets.iter().map(OwnedFd::try_clone).collect()
    }

    /// Whether the kernel may coalesce what arrives at port 4500: its GRO finds one of the port's sockets, and may find
    /// this one for ESP that is of two planes.
    pub(crate) fn coalesce(&self, coalesces: bool) {
        let shared = self
            .sockets
            .chunks_exact(PORTS.len())
            .map(|of_family| &of_family[1]);
        for socket in shared {
            // A kernel without GRO coalesces nothing.
            let _ = set_coalescing(socket.as_fd(), coalesces && self.setup.coalesces);
        }
    }

    /// Whether messages of key exchange can be sent and received.
    pub(crate) fn has_sockets(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Starts the ike process and the key process, and ends those that were started before.
    pub(crate) fn start(&self) -> Result<Link, StartError> {
        handover::send(&self.starter, &self.sockets)?;
        let (_, ends) = handover::receive(&self.starter)?;
        let [ike, keys] = <[OwnedFd; 2]>::try_from(ends)
            .map_err(|_| io::Error::other("the processes of key exchange did not start"))?;
        Ok(Link::new(ike.into(), keys.into())?)
    }
}

/// Why the processes do not run.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The starter has ended, and this process may not start another one.
    StarterHasEnded,
    /// This time it failed.
    Failed(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof => Self::StarterHasEnded,
            _ => Self::Failed(error),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StarterHasEnded => f.write_str(
                "their starter has ended, and a running gateway may not start programs: restart it (`esplanade restart`, \
                 or systemctl restart)",
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

fn open(setup: &Setup, first: impl Fn(Family) -> FirstSocket) -> Result<Vec<OwnedFd>, Failure> {
    let mut options = SocketOptions::new(PmtuCache::default(), Arc::clone(&setup.warn));
    options.mark = Some(setup.mark);
    options.opener.clone_from(&setup.opener);
    options.device.clone_from(&setup.device);
    let mut sockets = Vec::new();
    for family in [Family::V4, Family::V6] {
        for port in PORTS {
            let open = || open_ike(family, port, setup.coalesces, first(family), &options);
            match patiently(open) {
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
