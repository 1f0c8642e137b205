//! One host: a network namespace that a descriptor holds, in which programs are started, files read and sockets opened
//! by threads that go there.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::host::{Command, Datagrams, Finished, Host, Process, Tap};
use crate::stop::Stop;
use crate::testbed::isolate::done;
use crate::testbed::tap::PacketSocket;
use crate::testbed::{Family, process};

/// For `ip` to configure a host.
const IP_TIMEOUT: Duration = Duration::from_secs(10);

/// One network namespace.
pub(in crate::testbed) struct Namespace {
    pub(super) name: &'static str,
    pub(super) network: OwnedFd,
    pub(super) results: PathBuf,
    pub(super) scratch: PathBuf,
    pub(super) stop: Stop,
    pub(super) processors: Option<String>,
}

impl Namespace {
    /// The same host under another name.
    pub(super) fn also_called(&self, name: &'static str) -> Result<Namespace, Fault> {
        let network = self.network.try_clone();
        Ok(Namespace {
            name,
            network: network.map_err(|error| refused("duplicate a network namespace", error))?,
            results: self.results.clone(),
            scratch: self.scratch.clone(),
            stop: self.stop,
            processors: None,
        })
    }

    pub(super) fn configure(
        &self,
        interfaces: &[(&str, IpAddr)],
        route: Option<(&str, IpAddr)>,
    ) -> Result<(), Fault> {
        self.trust(interfaces.iter().map(|(interface, _)| *interface))?;
        let mut batch = String::from("link set lo up\n");
        for (interface, address) in interfaces {
            let prefix = Family::of(*address).prefix();
            // The address is unique, and duplicate address detection takes a second in IPv6.
            let trusted = if address.is_ipv6() { " nodad" } else { "" };
            batch += &format!(
                "link set {interface} up\naddress add {address}/{prefix} dev {interface}{trusted}\n"
            );
        }
        if let Some((target, next)) = route {
            batch += &format!("route add {target} via {next}\n");
        }
        let command = Command::line("ip -batch -").input(batch);
        self.must(&command, IP_TIMEOUT).map(drop)
    }

    /// Lets these interfaces use their link-local addresses at once. During duplicate address detection, up to two
    /// seconds, IPv6 sends no neighbour solicitations from them, and packets that wait for the answer are lost.
    fn trust<'a>(&self, interfaces: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
        let switches = interfaces.map(|name| format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"));
        let switches: Vec<_> = switches.collect();
        self.within(|| {
            let there = switches.iter().filter(|switch| Path::new(switch).exists());
            there
                .into_iter()
                .try_for_each(|switch| fs::write(switch, "0"))
        })
        .map_err(|error| refused("disable duplicate address detection", error))
    }

    pub(super) fn forward(&self) -> Result<(), Fault> {
        let six = "/proc/sys/net/ipv6/conf/all/forwarding";
        self.within(|| {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            // A kernel without IPv6 forwards none.
            if Path::new(six).exists() {
                fs::write(six, "1")
            } else {
                Ok(())
            }
        })
        .map_err(|error| refused("enable forwarding", error))
    }

    /// Does something in this namespace, on a thread of its own that goes there.
    pub(in crate::testbed) fn within<T: Send>(
        &self,
        act: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let network = self.network.as_raw_fd();
        let there = move || {
            // SAFETY: setns on an open descriptor moves this thread only.
            done(unsafe { libc::setns(network, libc::CLONE_NEWNET) })?;
            act()
        };
        std::thread::scope(|scope| scope.spawn(there).join())
            .unwrap_or_else(|_| Err(io::Error::other("a thread of the lab panicked")))
    }

    fn cannot(&self, what: &str, error: io::Error) -> Fault {
        refused(&format!("{what} on the {}", self.name), error)
    }
}

pub(in crate::testbed) fn refused(what: &str, error: io::Error) -> Fault {
    Fault::failed(format!("cannot {what}: {error}"))
}

/// A new namespace, made by a thread that is gone when this returns; the descriptor keeps it.
pub(super) fn new_network() -> io::Result<OwnedFd> {
    let make = || {
        // SAFETY: unshare moves this thread only.
        done(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
    };
    std::thread::spawn(make)
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a thread of the lab panicked")))
}

impl Host for Namespace {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, command: &Command, limit: Duration) -> Result<Finished, Fault> {
        process::start(command, Some(self.network.as_fd()), self.stop, false)?.finish(limit)
    }

    fn start(&self, command: &Command) -> Result<Box<dyn Process>, Fault> {
        let command = &command.on_processors(self.processors.as_deref());
        let running = process::start(command, Some(self.network.as_fd()), self.stop, true)?;
        Ok(Box::new(running))
    }

    /// `/proc/net` means the reader's namespace, and the reader is the thread that went there.
    fn read(&self, path: &Path) -> Result<String, Fault> {
        let path = match path.strip_prefix("/proc/net") {
            Ok(rest) => Path::new("/proc/thread-self/net").join(rest),
            Err(_) => path.to_owned(),
        };
        self.within(|| fs::read_to_string(&path))
            .map_err(|error| self.cannot(&format!("read {}", path.display()), error))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>, Fault> {
        let names = fs::read_dir(path)
            .map_err(|error| self.cannot(&format!("list {}", path.display()), error))?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.collect())
    }

    fn write_file(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let path = self.results.join(name);
        let folder = path.parent().unwrap_or(&self.results);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| self.cannot(&format!("write {}", path.display()), error))?;
        Ok(path)
    }

    fn scratch(&self) -> Result<PathBuf, Fault> {
        // A gateway keeps its socket there, and refuses where others may write, which a lax umask would allow.
        let mut folder = fs::DirBuilder::new();
        folder.recursive(true).mode(0o755);
        folder
            .create(&self.scratch)
            .map_err(|error| self.cannot(&format!("make {}", self.scratch.display()), error))?;
        Ok(self.scratch.clone())
    }

    fn tap(&self, interface: &str) -> Result<Box<dyn Tap>, Fault> {
        let socket = self
            .within(|| PacketSocket::open(interface))
            .map_err(|error| self.cannot(&format!("listen on {interface}"), error))?;
        Ok(Box::new(socket))
    }

    fn datagrams(&self, local: SocketAddr) -> Result<Box<dyn Datagrams>, Fault> {
        let socket = self
            .within(|| UdpSocket::bind(local))
            .map_err(|error| self.cannot(&format!("bind UDP {local}"), error))?;
        Ok(Box::new(Socket {
            socket,
            stop: self.stop,
        }))
    }
}

struct Socket {
    socket: UdpSocket,
    stop: Stop,
}

impl Datagrams for Socket {
    fn send(&self, to: SocketAddr, payload: &[u8]) -> Result<(), Fault> {
        self.socket
            .send_to(payload, to)
            .map(drop)
            .map_err(|error| refused(&format!("send to {to}"), error))
    }

    fn receive(&self, within: Duration) -> Result<Option<Vec<u8>>, Fault> {
        let deadline = Instant::now() + within;
        let mut buffer = vec![0; 65_536];
        while Instant::now() < deadline && !self.stop.asked() {
            self.socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .map_err(|error| refused("wait for a datagram", error))?;
            if let Ok(length) = self.socket.recv(&mut buffer) {
                buffer.truncate(length);
                return Ok(Some(buffer));
            }
        }
        if self.stop.asked() {
            Err(Fault::Interrupted)
        } else {
            Ok(None)
        }
    }
}
