//! A testbed raises the same four hosts for every trial:
//!
//! ```text
//!   client ── lan ── left ── wan ── right ── lan ── server
//!   10.1.0.2    10.1.0.1  192.0.2.1  192.0.2.2  10.2.0.1    10.2.0.2
//! ```
//!
//! Every trial gets a fresh one, so that nothing a contender leaves behind can touch the next.

pub mod isolate;
mod namespaces;
mod process;
mod tap;

use std::net::Ipv4Addr;

use crate::contender::Side;
use crate::fault::Fault;
use crate::host::Host;

pub use namespaces::Namespaces;

/// The interface towards the end hosts, on every host that has one.
pub const LAN: &str = "lan";
/// The interface between the gateways.
pub const WAN: &str = "wan";

/// What a testbed shall be like.
#[derive(Debug, Clone, PartialEq)]
pub struct Ground {
    /// MTU of every link.
    pub mtu: u32,
}

impl Default for Ground {
    fn default() -> Ground {
        Ground { mtu: 1500 }
    }
}

/// Raises beds.
pub trait Testbed {
    /// A fresh set of hosts on this ground, connected and routed, with no tunnel. Dropping it takes it away.
    fn raise(&mut self, ground: &Ground) -> Result<Bed, Fault>;

    /// One line on what this is, for the record.
    fn describe(&self) -> String;
}

/// Four hosts in a row.
pub struct Bed {
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
}

impl Bed {
    /// The gateway of a side.
    pub fn gateway(&self, side: Side) -> &dyn Host {
        match side {
            Side::Left => &*self.left,
            Side::Right => &*self.right,
        }
    }
}

/// The addresses of a bed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The client's own.
    pub client: Ipv4Addr,
    /// The server's own.
    pub server: Ipv4Addr,
    /// The network behind the left gateway, as `10.1.0.0/24`.
    pub left_network: String,
    /// The network behind the right gateway.
    pub right_network: String,
    /// The left gateway's on the wire.
    pub left: Ipv4Addr,
    /// The right gateway's on the wire.
    pub right: Ipv4Addr,
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses {
            client: Ipv4Addr::new(10, 1, 0, 2),
            server: Ipv4Addr::new(10, 2, 0, 2),
            left_network: "10.1.0.0/24".into(),
            right_network: "10.2.0.0/24".into(),
            left: Ipv4Addr::new(192, 0, 2, 1),
            right: Ipv4Addr::new(192, 0, 2, 2),
        }
    }
}
