//! The hosts of a trial, as a testbed builds them.

use super::addresses::Addresses;
use super::share::Throttle;
use super::topology_spec::{LAN, Layout, TopologySpec};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::gateway::{Gateway, Side};
use crate::host::{Command, Host, Process};

/// A change that waits for its moment.
pub struct ScheduledChange {
    /// Where it happens.
    pub host: Box<dyn Host>,
    /// What makes it happen, its delay included.
    pub command: Command,
}

/// Builds topologies.
pub trait Testbed {
    /// A fresh set of hosts on this topology, connected and routed, with no tunnel. Dropping it takes it away.
    fn build(&mut self, spec: &TopologySpec) -> Result<Topology, Fault>;

    /// Whether it can be like this topology at all.
    fn presence(&self, _spec: &TopologySpec) -> Result<(), Absence> {
        Ok(())
    }

    /// One line on what this is, for the record.
    fn describe(&self) -> String;
}

/// Four hosts in a row; of a pair, two hosts under two names each.
pub struct Topology {
    /// Where the load starts.
    pub client: Box<dyn Host>,
    /// The client's gateway.
    pub left: Box<dyn Host>,
    /// The server's gateway.
    pub right: Box<dyn Host>,
    /// Where the load ends.
    pub server: Box<dyn Host>,
    /// Who has which address.
    pub addresses: Addresses,
    /// MTU of the wire between the gateways.
    pub mtu: u32,
    /// What runs as long as the topology stands, such as a box in the wire.
    pub machinery: Vec<Box<dyn Process>>,
    /// Four hosts, or two under two names each.
    pub layout: Layout,
    /// What happens to the path while a load runs.
    pub path: Option<ScheduledChange>,
    /// Whether all hosts read one monotonic clock; it is never assumed of machines.
    pub one_clock: bool,
    /// What holds the gateways' processes to their share, where they have one.
    pub throttle: Option<Throttle>,
}

impl Topology {
    /// The gateway of a side.
    pub fn gateway(&self, side: Side) -> &dyn Host {
        match side {
            Side::Left => &*self.left,
            Side::Right => &*self.right,
        }
    }

    /// Starts what happens to the path while a load runs; it ends with the returned value.
    pub fn change(&self) -> Result<Option<Box<dyn Process>>, Fault> {
        let change = self.path.as_ref();
        change
            .map(|change| change.host.start(&change.command))
            .transpose()
    }

    /// Holds the processes of a contender that is up to the topology's share. Where one side has none, the kernel
    /// carries its packets, and a share would be a lie.
    pub fn limit(&self, gateways: &[Gateway]) -> Result<(), Fault> {
        let Some(throttle) = &self.throttle else {
            return Ok(());
        };
        for side in Side::BOTH {
            let mut own = gateways
                .iter()
                .filter(|gateway| gateway.side == side)
                .peekable();
            if own.peek().is_none() {
                return Err(Fault::failed(format!(
                    "the {} gateway has no process, so no CPU quota limits it",
                    side.name()
                )));
            }
            own.try_for_each(|gateway| throttle.limit(gateway))?;
        }
        Ok(())
    }

    /// Lets them run as they like again.
    pub fn remove_quotas(&self) -> Result<(), Fault> {
        self.throttle
            .as_ref()
            .map_or(Ok(()), Throttle::remove_quotas)
    }

    /// The interface on which the client's packets are seen before any gateway takes them. A pair has none.
    pub fn client_side(&self) -> Option<&'static str> {
        match self.layout {
            Layout::Gateways => Some(LAN),
            Layout::Pair => None,
        }
    }
}
