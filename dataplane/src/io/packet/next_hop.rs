//! Next hops, and the kernel's tables that name them.

use std::net::IpAddr;

/// The way to a peer over one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// Index of an Ethernet device.
    pub device: u32,
    /// The largest IP packet that device and route take.
    pub mtu: u32,
    /// The device's address.
    pub ours: [u8; 6],
    /// The neighbour's address.
    pub theirs: [u8; 6],
}

/// Who knows the kernel's routes and neighbours.
pub trait NextHops: Send {
    /// Whether a route, a link or a neighbour has changed since the last call: what was found before is not true any more.
    fn changed(&mut self) -> bool;

    /// The way, if the kernel has one of the simple kind just now: an Ethernet device without queueing of its own, and a
    /// neighbour whose address is known.
    fn find(&mut self, source: IpAddr, destination: IpAddr) -> Option<NextHop>;

    /// Whether packets to this destination are for this host just now, by its local table: an address, or any route there.
    fn is_ours(&mut self, destination: IpAddr) -> bool;
}
