//! What `explain` needs to know of the host: its addresses, and by which way others are reached.

use super::Host;
use crate::plane::Kernel;
use ipsec::database::Surroundings;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

impl Host {
    /// The facts about the host and these addresses. What the kernel does not tell is missing.
    pub(in crate::run) fn surroundings(&mut self, addresses: &[IpAddr]) -> Surroundings {
        let outer = self.addresses().ok();
        let own = self.installed.netlink().addresses().unwrap_or_default();
        Surroundings {
            outer: outer.map(|all| all.into_iter().collect()),
            own: own.into_iter().collect(),
            hops: self.hops(addresses),
            kernel_forwards: self.forward().is_none(),
        }
    }

    /// None where tunnels use another network: its devices are not those of the packets inside.
    fn hops(&mut self, addresses: &[IpAddr]) -> HashMap<IpAddr, ipsec::database::Hop> {
        if self.outside.is_elsewhere() || self.outside.device.is_some() {
            return HashMap::new();
        }
        let mark = self.installed.site().outside_mark();
        let netlink = self.installed.netlink();
        let hop = |address: &IpAddr| {
            let found = netlink.first_hop(*address, mark).ok().flatten();
            found.map(|hop| (*address, hop))
        };
        addresses.iter().filter_map(hop).collect()
    }

    /// The devices to IPv4 peers whose own address is protected too.
    pub(in crate::run) fn devices_to_gateway_peers(&mut self) -> BTreeSet<String> {
        let mark = self.installed.site().outside_mark();
        let peers = self.installed.plan().map(|plan| &plan.gateway_peers);
        let peers = peers.into_iter().flatten().copied();
        let peers: Vec<_> = peers.filter(|(source, _)| source.is_ipv4()).collect();
        let netlink = self.installed.netlink();
        let mut device = |(source, destination)| {
            let path = netlink.path((source, destination), mark, None).ok()?;
            netlink.link_by_index(path.device).ok()
        };
        let devices = peers.into_iter().filter_map(&mut device);
        devices.map(|(name, _)| name).collect()
    }
}
