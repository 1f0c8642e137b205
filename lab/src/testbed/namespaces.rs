//! The four hosts as network namespaces of this machine, joined by virtual links. The namespaces have no names: they are
//! held by descriptors of this process and vanish with it, links, routes and tables included.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::isolate::{RUN, done};
use super::tap::PacketSocket;
use super::{
    Addresses, Bed, Change, Family, Ground, LAN, Quotas, Testbed, Throttle, Topology, WAN, links,
    path, process,
};
use crate::contender::Absence;
use crate::fault::Fault;
use crate::host::{Command, Datagrams, Finished, Host, Process, Tap};
use crate::stop::Stop;

/// Raises beds of network namespaces. Needs [`super::isolate::enter`].
pub struct Namespaces {
    results: PathBuf,
    stop: Stop,
    raised: u32,
    quotas: Result<Quotas, Absence>,
}

/// A setting up of links takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

impl Namespaces {
    /// `results` is where [`Host::place`] puts files.
    pub fn new(results: &Path, stop: Stop) -> Namespaces {
        Namespaces {
            results: results.to_owned(),
            stop,
            raised: 0,
            quotas: Err(Absence::new(
                "this testbed was not prepared to hold gateways to a share of the processors",
                "open quotas before the lab enters its namespaces",
            )),
        }
    }

    /// The same, able to hold gateways to a share of the processors, or to say why not.
    pub fn with_quotas(self, quotas: Result<Quotas, Absence>) -> Namespaces {
        Namespaces { quotas, ..self }
    }

    /// What holds the gateways to the share of this ground.
    fn throttle(&self, ground: &Ground) -> Result<Option<Throttle>, Fault> {
        let Some(share) = ground.share else {
            return Ok(None);
        };
        match &self.quotas {
            Ok(quotas) => quotas.throttle(share).map(Some),
            Err(absence) => Err(Fault::failed(&absence.why)),
        }
    }

    fn host(&self, name: &'static str) -> Result<Namespace, Fault> {
        let folder = Path::new(RUN).join(format!("bed-{}/{name}", self.raised));
        Ok(Namespace {
            name,
            network: new_network().map_err(|error| refused("make a network namespace", error))?,
            results: self.results.clone(),
            scratch: folder,
            stop: self.stop,
            processors: None,
        })
    }

    /// A virtual link with the given interface at each end.
    fn link(
        &self,
        mtu: u32,
        one: (&Namespace, &str),
        other: (&Namespace, &str),
    ) -> Result<(), Fault> {
        let place = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            other.0.network.as_raw_fd()
        );
        let (near, far) = (one.1, other.1);
        let command = Command::line(&format!(
            "ip link add name {near} mtu {mtu} type veth peer name {far} mtu {mtu} netns {place}"
        ));
        one.0.must(&command, PATIENCE).map(drop)
    }

    /// The wire between the gateways, with the box or the router in its middle if there is one.
    fn wire(&self, ground: &Ground, left: &Namespace, right: &Namespace) -> Result<Wire, Fault> {
        let mut wire = Wire::default();
        if ground.impairment.is_none() && ground.path.is_none() {
            self.link(ground.mtu, (left, WAN), (right, WAN))?;
            return Ok(wire);
        }
        let middle = self.host("middle")?;
        self.link(ground.mtu, (left, WAN), (&middle, path::ENDS[0]))?;
        self.link(ground.mtu, (&middle, path::ENDS[1]), (right, WAN))?;
        if let Some(impairment) = &ground.impairment {
            wire.machinery.push(links::impair(&middle, impairment)?);
        } else if let Some(narrow) = ground.path {
            path::route(&middle)?;
            wire.change = Some(path::narrowing(narrow, middle)?);
        }
        Ok(wire)
    }

    /// Four hosts: the end hosts, and what leads to them.
    fn behind_gateways(
        &self,
        ground: &Ground,
        left: &Namespace,
        right: &Namespace,
    ) -> Result<(Namespace, Namespace), Fault> {
        let families = ground.families;
        let map = Addresses::of(Topology::Gateways, families);
        let (client, server) = (self.host("client")?, self.host("server")?);
        self.link(ground.mtu, (&client, LAN), (left, LAN))?;
        self.link(ground.mtu, (right, LAN), (&server, LAN))?;
        let [near, far] = families.inner.lans();
        for (end, [gateway, own]) in [(&client, near), (&server, far)] {
            end.configure(&[(LAN, own)], Some(("default", gateway)))?;
        }
        // A gateway routes what is inside by a neighbour of that family, also where the tunnel has another one.
        let (wire, next) = (families.outer.wire(), families.inner.wire());
        let sides = [
            (left, near, &map.right_network),
            (right, far, &map.left_network),
        ];
        for (place, (gateway, [lan, _], network)) in sides.into_iter().enumerate() {
            let mut interfaces = vec![(LAN, lan), (WAN, wire[place])];
            if !families.are_one() {
                interfaces.push((WAN, next[place]));
            }
            gateway.configure(&interfaces, Some((network, next[1 - place])))?;
            gateway.forward()?;
        }
        Ok((client, server))
    }

    /// Two hosts, each of which is its own gateway.
    fn alone(
        &self,
        ground: &Ground,
        left: &Namespace,
        right: &Namespace,
    ) -> Result<(Namespace, Namespace), Fault> {
        let [near, far] = ground.families.outer.wire();
        left.configure(&[(WAN, near)], None)?;
        right.configure(&[(WAN, far)], None)?;
        Ok((left.also_called("client")?, right.also_called("server")?))
    }
}

/// What stands in a wire.
#[derive(Default)]
struct Wire {
    machinery: Vec<Box<dyn Process>>,
    change: Option<Change>,
}

impl Testbed for Namespaces {
    fn raise(&mut self, ground: &Ground) -> Result<Bed, Fault> {
        self.raised += 1;
        let (mut left, mut right) = (self.host("left")?, self.host("right")?);
        let wire = self.wire(ground, &left, &right)?;
        let (client, server) = match ground.topology {
            Topology::Gateways => self.behind_gateways(ground, &left, &right)?,
            Topology::Pair => self.alone(ground, &left, &right)?,
        };
        for end in [&client, &server] {
            links::tcp(&ground.tcp, end)?;
        }
        let names: &[&str] = match ground.topology {
            Topology::Gateways => &[LAN, WAN],
            Topology::Pair => &[WAN],
        };
        for gateway in [&left, &right] {
            links::wire(ground, gateway)?;
            links::coalesce(ground, gateway, names)?;
            links::receive(&ground.receiving, gateway, names)?;
        }
        if ground.topology == Topology::Gateways {
            links::coalesce(ground, &client, &[LAN])?;
            links::coalesce(ground, &server, &[LAN])?;
        }
        left.processors.clone_from(&ground.processors);
        right.processors.clone_from(&ground.processors);
        Ok(Bed {
            client: Box::new(client),
            left: Box::new(left),
            right: Box::new(right),
            server: Box::new(server),
            addresses: Addresses::of(ground.topology, ground.families),
            mtu: ground.mtu,
            machinery: wire.machinery,
            topology: ground.topology,
            path: wire.change,
            throttle: self.throttle(ground)?,
        })
    }

    fn presence(&self, ground: &Ground) -> Result<(), Absence> {
        match (ground.share, &self.quotas) {
            (None, _) => Ok(()),
            (Some(share), Ok(quotas)) => quotas.tried(share),
            (Some(_), Err(absence)) => Err(absence.clone()),
        }
    }

    fn describe(&self) -> String {
        "client - gateway - gateway - server (or a pair of hosts) in network namespaces of one machine".into()
    }
}

/// One network namespace.
pub(super) struct Namespace {
    name: &'static str,
    network: OwnedFd,
    results: PathBuf,
    scratch: PathBuf,
    stop: Stop,
    processors: Option<String>,
}

impl Namespace {
    /// The same host under another name.
    fn also_called(&self, name: &'static str) -> Result<Namespace, Fault> {
        let network = self.network.try_clone();
        Ok(Namespace {
            name,
            network: network.map_err(|error| refused("hold on to a network namespace", error))?,
            results: self.results.clone(),
            scratch: self.scratch.clone(),
            stop: self.stop,
            processors: None,
        })
    }

    fn configure(
        &self,
        interfaces: &[(&str, IpAddr)],
        route: Option<(&str, IpAddr)>,
    ) -> Result<(), Fault> {
        self.trust(interfaces.iter().map(|(interface, _)| *interface))?;
        let mut batch = String::from("link set lo up\n");
        for (interface, address) in interfaces {
            let prefix = Family::of(*address).prefix();
            // Nobody else can have the address, and to look for him takes a second in IPv6.
            let trusted = if address.is_ipv6() { " nodad" } else { "" };
            batch += &format!(
                "link set {interface} up\naddress add {address}/{prefix} dev {interface}{trusted}\n"
            );
        }
        if let Some((target, next)) = route {
            batch += &format!("route add {target} via {next}\n");
        }
        let command = Command::line("ip -batch -").input(batch);
        self.must(&command, PATIENCE).map(drop)
    }

    /// Lets these interfaces use their link-local addresses at once. While IPv6 asks whether somebody else has one, for up
    /// to two seconds, nobody is asked for his link address from there, and what waits for the answer is lost.
    fn trust<'a>(&self, interfaces: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
        let switches = interfaces.map(|name| format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"));
        let switches: Vec<_> = switches.collect();
        self.within(|| {
            let there = switches.iter().filter(|switch| Path::new(switch).exists());
            there
                .into_iter()
                .try_for_each(|switch| fs::write(switch, "0"))
        })
        .map_err(|error| refused("trust link-local addresses", error))
    }

    fn forward(&self) -> Result<(), Fault> {
        let six = "/proc/sys/net/ipv6/conf/all/forwarding";
        self.within(|| {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            // A kernel without IPv6 forwards none.
            match Path::new(six).exists() {
                true => fs::write(six, "1"),
                false => Ok(()),
            }
        })
        .map_err(|error| refused("switch forwarding on", error))
    }

    /// Does something in this namespace, on a thread of its own that goes there.
    pub(super) fn within<T: Send>(
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

pub(super) fn refused(what: &str, error: io::Error) -> Fault {
    Fault::failed(format!("cannot {what}: {error}"))
}

/// A new namespace, made by a thread that is gone when this returns; the descriptor keeps it.
fn new_network() -> io::Result<OwnedFd> {
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
        let command = &links::bound(command, self.processors.as_deref());
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

    fn place(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let path = self.results.join(name);
        let folder = path.parent().unwrap_or(&self.results);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| self.cannot(&format!("write {}", path.display()), error))?;
        Ok(path)
    }

    fn scratch(&self) -> Result<PathBuf, Fault> {
        fs::create_dir_all(&self.scratch)
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
        match self.stop.asked() {
            true => Err(Fault::Interrupted),
            false => Ok(None),
        }
    }
}
