//! The four hosts as network namespaces of this machine, joined by virtual links. The namespaces have no names: they
//! are held by descriptors of this process and vanish with it, links, routes and tables included.

mod namespace;

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::isolate::RUN;
use super::{
    Addresses, LAN, Layout, Quotas, ScheduledChange, Testbed, Throttle, Topology, TopologySpec,
    WAN, links, path,
};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::{Command, Host, Process};
use crate::stop::Stop;
use namespace::new_network;

pub(super) use namespace::{Namespace, refused};

/// Builds topologies of network namespaces. Needs [`super::isolate::enter`].
pub struct Namespaces {
    results: PathBuf,
    stop: Stop,
    built: u32,
    quotas: Result<Quotas, Absence>,
}

/// A setting up of links takes milliseconds.
const IP_TIMEOUT: Duration = Duration::from_secs(10);

impl Namespaces {
    /// `results` is where [`Host::write_file`] puts files.
    pub fn new(results: &Path, stop: Stop) -> Namespaces {
        Namespaces {
            results: results.to_owned(),
            stop,
            built: 0,
            quotas: Err(Absence::new(
                "this testbed has no CPU quotas",
                "create the quotas before the lab enters its namespaces",
            )),
        }
    }

    /// The same, with CPU quotas, or the reason why there are none.
    pub fn with_quotas(self, quotas: Result<Quotas, Absence>) -> Namespaces {
        Namespaces { quotas, ..self }
    }

    /// What holds the gateways to the share of this topology.
    fn throttle(&self, spec: &TopologySpec) -> Result<Option<Throttle>, Fault> {
        let Some(share) = spec.share else {
            return Ok(None);
        };
        match &self.quotas {
            Ok(quotas) => quotas.throttle(share).map(Some),
            Err(absence) => Err(Fault::failed(&absence.why)),
        }
    }

    fn host(&self, name: &'static str) -> Result<Namespace, Fault> {
        let folder = Path::new(RUN).join(format!("topology-{}/{name}", self.built));
        Ok(Namespace {
            name,
            network: new_network().map_err(|error| refused("create a network namespace", error))?,
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
        one.0.must(&command, IP_TIMEOUT).map(drop)
    }

    /// The wire between the gateways, with the box or the router in its middle if there is one.
    fn wire(
        &self,
        spec: &TopologySpec,
        left: &Namespace,
        right: &Namespace,
    ) -> Result<Wire, Fault> {
        let mut wire = Wire::default();
        if spec.impairment.is_none() && spec.path.is_none() {
            self.link(spec.mtu, (left, WAN), (right, WAN))?;
            return Ok(wire);
        }
        let middle = self.host("middle")?;
        self.link(spec.mtu, (left, WAN), (&middle, path::ROUTER_INTERFACES[0]))?;
        self.link(
            spec.mtu,
            (&middle, path::ROUTER_INTERFACES[1]),
            (right, WAN),
        )?;
        if let Some(impairment) = &spec.impairment {
            wire.machinery.push(links::impair(&middle, impairment)?);
        } else if let Some(narrow) = spec.path {
            path::route(&middle)?;
            wire.change = Some(path::narrowing(narrow, middle)?);
        }
        Ok(wire)
    }

    /// Four hosts: the end hosts, and what leads to them.
    fn behind_gateways(
        &self,
        spec: &TopologySpec,
        left: &Namespace,
        right: &Namespace,
    ) -> Result<(Namespace, Namespace), Fault> {
        let families = spec.families;
        let map = Addresses::of(Layout::Gateways, families);
        let (client, server) = (self.host("client")?, self.host("server")?);
        self.link(spec.mtu, (&client, LAN), (left, LAN))?;
        self.link(spec.mtu, (right, LAN), (&server, LAN))?;
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
        spec: &TopologySpec,
        left: &Namespace,
        right: &Namespace,
    ) -> Result<(Namespace, Namespace), Fault> {
        let [near, far] = spec.families.outer.wire();
        left.configure(&[(WAN, near)], None)?;
        right.configure(&[(WAN, far)], None)?;
        Ok((left.also_called("client")?, right.also_called("server")?))
    }
}

/// What is inserted into a wire.
#[derive(Default)]
struct Wire {
    machinery: Vec<Box<dyn Process>>,
    change: Option<ScheduledChange>,
}

impl Testbed for Namespaces {
    fn build(&mut self, spec: &TopologySpec) -> Result<Topology, Fault> {
        self.built += 1;
        let (mut left, mut right) = (self.host("left")?, self.host("right")?);
        let wire = self.wire(spec, &left, &right)?;
        let (client, server) = match spec.layout {
            Layout::Gateways => self.behind_gateways(spec, &left, &right)?,
            Layout::Pair => self.alone(spec, &left, &right)?,
        };
        for end in [&client, &server] {
            links::tcp(&spec.tcp, end)?;
        }
        let names: &[&str] = match spec.layout {
            Layout::Gateways => &[LAN, WAN],
            Layout::Pair => &[WAN],
        };
        for gateway in [&left, &right] {
            links::wire(spec, gateway)?;
            links::coalesce(spec, gateway, names)?;
            links::receive(&spec.receiving, gateway, names)?;
        }
        if spec.layout == Layout::Gateways {
            links::coalesce(spec, &client, &[LAN])?;
            links::coalesce(spec, &server, &[LAN])?;
            for host in [&client, &left, &right, &server] {
                links::before_tunnel(spec, host)?;
            }
        }
        left.processors.clone_from(&spec.processors);
        right.processors.clone_from(&spec.processors);
        Ok(Topology {
            client: Box::new(client),
            left: Box::new(left),
            right: Box::new(right),
            server: Box::new(server),
            addresses: Addresses::of(spec.layout, spec.families),
            mtu: spec.mtu,
            machinery: wire.machinery,
            layout: spec.layout,
            path: wire.change,
            one_clock: true,
            throttle: self.throttle(spec)?,
        })
    }

    fn presence(&self, spec: &TopologySpec) -> Result<(), Absence> {
        if let Some(list) = &spec.processors {
            links::processors_exist(list)?;
        }
        match (spec.share, &self.quotas) {
            (None, _) => Ok(()),
            (Some(share), Ok(quotas)) => quotas.tried(share),
            (Some(_), Err(absence)) => Err(absence.clone()),
        }
    }

    fn describe(&self) -> String {
        "client - gateway - gateway - server (or a pair of hosts) in network namespaces of one machine".into()
    }
}
