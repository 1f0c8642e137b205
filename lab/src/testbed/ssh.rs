//! Real machines, reached by the system's OpenSSH. The lab copies its program to each host and starts an *agent* there,
//! which implements [`Host`] (see `tool::agent`):
//!
//! ```text
//!   lab ──┬── ssh ── left   ═ wan ═╗       pair: each host is its own gateway
//!         └── ssh ── right  ═ wan ═╝       gateways: client and server behind them, by `lan`
//! ```
//!
//! One connection for each host carries everything. Names, keys, known hosts and jump hosts come from the user's
//! `~/.ssh/config`. Every change on a host (an address, an MTU, a setting) is written to an undo list there *before* it
//! is made, and undone when the trial is over, when the run ends, or when the connection is lost.

mod bootstrap;
pub(super) mod connection;
mod hosts;
pub(crate) mod protocol;
mod remote_host;
mod settings;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Addresses, Families, LAN, Layout, Testbed, Topology, TopologySpec, WAN};
use crate::fault::Fault;
use crate::host::{Command, Host};
use crate::record::Provenance;
use crate::stop::Stop;
use connection::Connection;
use hosts::missing_host;
use remote_host::RemoteHost;

pub(crate) use hosts::{HostSpec, Hosts, LinkSpec, Uploads};

/// What the description of such a testbed begins with: records show by it where they were made.
pub(crate) const REAL_MACHINES: &str = "real machines over SSH";

/// Builds topologies of machines that are there already.
pub struct Ssh {
    hosts: Hosts,
    config: Option<PathBuf>,
    uploads: Uploads,
    results: PathBuf,
    stop: Stop,
    /// In the order of [`Ssh::places`]; one that broke is made anew for the next topology.
    connections: Vec<Rc<Connection>>,
}

/// Neighbours must learn a new address, and some cards need seconds after an MTU change.
const REACH_TIMEOUT: Duration = Duration::from_secs(15);

impl Ssh {
    /// Connects to all hosts. `config` is a configuration for ssh instead of the user's own, `results` where
    /// [`Host::write_file`] keeps a copy.
    pub fn connect(
        hosts: Hosts,
        config: Option<PathBuf>,
        uploads: Uploads,
        results: &Path,
        stop: Stop,
    ) -> Result<Ssh, Fault> {
        let mut testbed = Ssh {
            hosts,
            config,
            uploads,
            results: results.to_owned(),
            stop,
            connections: Vec::new(),
        };
        let roles: Vec<_> = testbed.places();
        for (role, place) in roles {
            let connection = testbed.connection(role, &place, None)?;
            testbed.connections.push(connection);
        }
        Connection::link_all(&testbed.connections);
        Ok(testbed)
    }

    /// The machine of the left gateway, for the record.
    pub fn provenance(&self) -> Provenance {
        let left = self.remote_host("left", 0, &self.hosts.left);
        Provenance::of(&left)
    }

    fn places(&self) -> Vec<(&'static str, HostSpec)> {
        let hosts = &self.hosts;
        let ends = [("client", &hosts.client), ("server", &hosts.server)];
        let ends = ends
            .into_iter()
            .filter_map(|(role, place)| Some((role, place.clone()?)));
        [("left", hosts.left.clone()), ("right", hosts.right.clone())]
            .into_iter()
            .chain(ends)
            .collect()
    }

    fn connection(
        &self,
        role: &'static str,
        place: &HostSpec,
        after: Option<&Connection>,
    ) -> Result<Rc<Connection>, Fault> {
        let config = self.config.as_deref();
        let opened = Connection::open(role, &place.at, config, &self.uploads, self.stop, after);
        opened.map(Rc::new)
    }

    /// Mends what broke, and takes away what the last topology left.
    fn reconnect(&mut self) -> Result<(), Fault> {
        for (index, (role, place)) in self.places().into_iter().enumerate() {
            if self.connections[index].broken() {
                let lost = self.connections[index].clone();
                self.connections[index] = self.connection(role, &place, Some(&lost))?;
            }
        }
        Connection::link_all(&self.connections);
        self.connections
            .iter()
            .try_for_each(|connection| connection.clear())
    }

    fn remote_host(&self, role: &'static str, connection: usize, place: &HostSpec) -> RemoteHost {
        let named = [(WAN, &place.wan), (LAN, &place.lan)];
        let devices = named
            .into_iter()
            .filter_map(|(name, link)| Some((name, link.as_ref()?.device.clone())));
        RemoteHost {
            name: role,
            connection: self.connections[connection].clone(),
            results: self.results.clone(),
            devices: devices.collect(),
            among: self.hosts.addresses(),
            processors: None,
        }
    }

    /// Who is who: client, left, right, server.
    fn remote_hosts(&self) -> [RemoteHost; 4] {
        let hosts = &self.hosts;
        let end = |role, own: &Option<HostSpec>, gateway: (usize, &HostSpec)| match own {
            Some(place) => {
                let index = self.places().iter().position(|(name, _)| *name == role);
                self.remote_host(role, index.unwrap_or(gateway.0), place)
            }
            None => self.remote_host(role, gateway.0, gateway.1),
        };
        [
            end("client", &hosts.client, (0, &hosts.left)),
            self.remote_host("left", 0, &hosts.left),
            self.remote_host("right", 1, &hosts.right),
            end("server", &hosts.server, (1, &hosts.right)),
        ]
    }
}

impl Testbed for Ssh {
    fn build(&mut self, spec: &TopologySpec) -> Result<Topology, Fault> {
        possible(spec)?;
        self.reconnect()?;
        let [client, mut left, mut right, server] = self.remote_hosts();
        let map = self.hosts.map(spec.layout)?;
        match spec.layout {
            Layout::Pair => {
                settings::link(&left, WAN, self.hosts.left.link(WAN)?, spec)?;
                settings::link(&right, WAN, self.hosts.right.link(WAN)?, spec)?;
            }
            Layout::Gateways => {
                self.behind_gateways(spec, [&client, &left, &right, &server], &map)?
            }
        }
        settings::tcp(&spec.tcp, &client)?;
        settings::tcp(&spec.tcp, &server)?;
        // What may not capture is named before a ping fails for the same reason.
        for gateway in [&left, &right] {
            drop(gateway.tap(WAN)?);
        }
        left.processors.clone_from(&spec.processors);
        right.processors.clone_from(&spec.processors);
        wait_until_reachable(&client, map.server)?;
        Ok(Topology {
            client: Box::new(client),
            left: Box::new(left),
            right: Box::new(right),
            server: Box::new(server),
            addresses: map,
            mtu: spec.mtu,
            machinery: Vec::new(),
            layout: spec.layout,
            path: None,
            one_clock: false,
            throttle: None,
        })
    }

    fn describe(&self) -> String {
        let named = self.places().into_iter().enumerate();
        let named: Vec<String> = named
            .map(|(index, (role, place))| {
                let machine = Provenance::of(&self.remote_host(role, index, &place));
                let Provenance {
                    cpu, cpus, kernel, ..
                } = machine;
                format!(
                    "{role} = {} ({cpu}, {cpus} processors, Linux {kernel})",
                    place.at
                )
            })
            .collect();
        format!("{REAL_MACHINES}: {}", named.join(", "))
    }
}

impl Ssh {
    fn behind_gateways(
        &self,
        spec: &TopologySpec,
        hosts: [&RemoteHost; 4],
        map: &Addresses,
    ) -> Result<(), Fault> {
        let [client, left, right, server] = hosts;
        let places = &self.hosts;
        for (gateway, place) in [(left, &places.left), (right, &places.right)] {
            settings::link(gateway, WAN, place.link(WAN)?, spec)?;
            settings::link(gateway, LAN, place.link(LAN)?, spec)?;
            settings::forward(gateway)?;
        }
        for (end, place) in [(client, &places.client), (server, &places.server)] {
            let place = place.as_ref().ok_or_else(missing_host)?;
            settings::link(end, LAN, place.link(LAN)?, spec)?;
        }
        let (near, far) = (places.left.link(LAN)?, places.right.link(LAN)?);
        settings::route(client, &map.right_network, near.address)?;
        settings::route(server, &map.left_network, far.address)?;
        let wire = |place: &HostSpec| place.link(WAN).map(|link| link.address);
        settings::route(left, &map.right_network, wire(&places.right)?)?;
        settings::route(right, &map.left_network, wire(&places.left)?)
    }
}

/// Specs with these settings are rejected earlier; this guards direct use.
fn possible(spec: &TopologySpec) -> Result<(), Fault> {
    if spec.families != Families::default() {
        return Err(Fault::failed("real machines are measured over IPv4 only"));
    }
    match (&spec.shape, &spec.impairment, &spec.path) {
        (None, None, None) => Ok(()),
        _ => Err(Fault::failed(
            "`link`, `impair` and `path` need virtual links, and cannot be set on real machines",
        )),
    }
}

/// Waits until packets pass.
fn wait_until_reachable(from: &RemoteHost, to: IpAddr) -> Result<(), Fault> {
    let ping = Command::line(&format!("ping -n -q -c 1 -W 1 {to}"));
    let started = Instant::now();
    loop {
        let finished = from.run(&ping, Duration::from_secs(5))?;
        if finished.code == 0 {
            return Ok(());
        }
        if started.elapsed() > REACH_TIMEOUT {
            return Err(Fault::failed(format!(
                "{} gets no reply from {to}. Check cable, devices, addresses and firewalls",
                from.name()
            )));
        }
    }
}
