//! Next hops, and the kernel's tables that they come from.

use super::ethernet_header::LinkAddresses;
use std::net::IpAddr;

/// The next hop towards a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// Index of an Ethernet device.
    pub device: u32,
    /// The largest IP packet that device and route take.
    pub mtu: u32,
    /// The device's MAC address.
    pub local_mac: [u8; 6],
    /// The neighbour's MAC address.
    pub neighbour_mac: [u8; 6],
}

impl NextHop {
    /// Destination and source address of frames to the neighbour.
    pub(in crate::io) fn link_addresses(&self) -> LinkAddresses {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&self.neighbour_mac);
        addresses[6..].copy_from_slice(&self.local_mac);
        addresses
    }
}

/// Reads the kernel's routes and neighbours.
pub trait NextHops: Send {
    /// Whether a route, a link or a neighbour has changed since the last call, so that earlier results may be outdated.
    fn changed(&mut self) -> bool;

    /// The next hop, if the kernel has a simple one at present: an Ethernet device without a qdisc of its own, and a
    /// neighbour whose MAC address is known.
    fn find(&mut self, source: IpAddr, destination: IpAddr) -> Option<NextHop>;

    /// Whether packets to this destination are for this host at present, by its local routing table.
    fn is_ours(&mut self, destination: IpAddr) -> bool;
}
