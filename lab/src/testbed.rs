//! A testbed raises the same four hosts for every trial:
//!
//! ```text
//!   client ── lan ── left ── wan ── right ── lan ── server
//!   10.1.0.2    10.1.0.1  192.0.2.1  192.0.2.2  10.2.0.1    10.2.0.2
//! ```
//!
//! With an impairment a fifth host stands in the middle of the wire, and is nothing to anybody but a wire; on a path whose
//! MTU shrinks it is a router. A *pair* is two hosts alone, each its own gateway, as transport mode wants them:
//!
//! ```text
//!   client = left ── wan ── right = server
//!        192.0.2.1          192.0.2.2
//! ```
//!
//! In IPv6 the networks are fd00:1::/64 and fd00:2::/64, and the wire is 2001:db8::/64, with the same last numbers.
//!
//! Every trial gets a fresh one, so that nothing a contender leaves behind can touch the next.

mod families;
pub mod guest;
pub mod isolate;
mod links;
mod namespaces;
mod path;
pub(crate) mod process;
mod share;
pub(crate) mod ssh;
pub(crate) mod tap;

use std::net::IpAddr;
use std::path::PathBuf;

use crate::contender::{Absence, Gateway, Side};
use crate::fault::Fault;
use crate::host::{Command, Host, Process};

pub use families::{Families, Family};
pub use namespaces::Namespaces;
pub use share::{Held, Quotas, Throttle};
pub use ssh::{Hosts, Link, Place, Ssh};

/// The interface towards the end hosts, on every host that has one.
pub const LAN: &str = "lan";
/// The interface between the gateways.
pub const WAN: &str = "wan";

/// How many hosts there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Topology {
    /// Two end hosts, each behind a gateway.
    #[default]
    Gateways,
    /// Two end hosts that are their own gateways.
    Pair,
}

/// What a testbed shall be like.
#[derive(Debug, Clone, PartialEq)]
pub struct Ground {
    /// Four hosts or two.
    pub topology: Topology,
    /// What is carried by what.
    pub families: Families,
    /// MTU of every link.
    pub mtu: u32,
    /// Segmentation and checksum offloads on the wire between the gateways.
    pub wire_offloads: bool,
    /// What the wire carries at most; `None`: what the machine can.
    pub shape: Option<Shape>,
    /// TCP of the end hosts.
    pub tcp: Tcp,
    /// How long receive coalescing may hold packets back on every link.
    pub gro_flush_timeout_ns: Option<u64>,
    /// How often a quiet interface is looked at before its interrupt is switched on again.
    pub napi_defer_hard_irqs: Option<u32>,
    /// How the gateways take packets in.
    pub receiving: Receiving,
    /// A box in the middle of the wire that delays, loses, doubles and reorders.
    pub impairment: Option<Impairment>,
    /// A router in the middle of the wire, beyond which packets must suddenly be smaller. Not beside an impairment.
    pub path: Option<Path>,
    /// The processors on which programs of the gateways may run, as `0-3,8`.
    pub processors: Option<String>,
    /// What each gateway's processes may use of them, in processors; `None`: all there is.
    pub share: Option<f64>,
}

impl Default for Ground {
    fn default() -> Ground {
        Ground {
            topology: Topology::Gateways,
            families: Families::default(),
            mtu: 1500,
            wire_offloads: true,
            shape: None,
            tcp: Tcp::default(),
            gro_flush_timeout_ns: None,
            napi_defer_hard_irqs: None,
            receiving: Receiving::default(),
            impairment: None,
            path: None,
            processors: None,
            share: None,
        }
    }
}

/// A link rate as a real link has it: frame check sequence, preamble and gap take their share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// The rate printed on the link.
    pub bits_per_second: f64,
    /// How much may go at once; `None`: two milliseconds' worth, within reason.
    pub burst_bytes: Option<u32>,
    /// How long a packet may wait; `None`: 50 ms.
    pub latency_ms: Option<f64>,
}

/// Options of TCP; `None`: the kernel's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tcp {
    /// RFC 7323 3.
    pub timestamps: Option<bool>,
    /// RFC 7323 2.
    pub window_scaling: Option<bool>,
    /// RFC 2018.
    pub sack: Option<bool>,
    /// The most a socket may buffer, each way.
    pub buffer_bytes: Option<u64>,
}

/// How gateways take packets in; `None`: as the kernel does by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receiving {
    /// Looks for a local socket before it routes.
    pub early_demux: Option<bool>,
    /// Puts UDP that is only forwarded together into trains.
    pub udp_gro_forwarding: Option<bool>,
    /// Chains packets that belong together instead of joining them.
    pub gro_list: Option<bool>,
    /// The processors that flows are spread over (RPS), as `0-3,8`.
    pub steered_to: Option<String>,
}

/// What the box in the middle does to each frame, each way.
#[derive(Debug, Clone, PartialEq)]
pub struct Impairment {
    /// `esplanade-lab`, which is also the box.
    pub program: PathBuf,
    /// Every frame waits so long; a round trip takes twice that.
    pub delay_ms: f64,
    /// Share of frames that vanish.
    pub loss: f64,
    /// Share of frames that arrive twice.
    pub duplicate: f64,
    /// Share of frames that wait a little longer than those behind them.
    pub reorder: f64,
    /// Seed of its choices.
    pub seed: u64,
}

/// How a path narrows while it is used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// What passes the router from then on.
    pub mtu: u32,
    /// Seconds after the load began.
    pub after_s: f64,
    /// Whether the router says so (ICMP, RFC 1191 4); a silent one swallows what is too large.
    pub answers: bool,
}

/// A change that waits for its moment.
pub struct Change {
    /// Where it happens.
    pub host: Box<dyn Host>,
    /// What makes it happen, its delay included.
    pub command: Command,
}

/// Raises beds.
pub trait Testbed {
    /// A fresh set of hosts on this ground, connected and routed, with no tunnel. Dropping it takes it away.
    fn raise(&mut self, ground: &Ground) -> Result<Bed, Fault>;

    /// Whether it can be like this ground at all.
    fn presence(&self, _ground: &Ground) -> Result<(), Absence> {
        Ok(())
    }

    /// One line on what this is, for the record.
    fn describe(&self) -> String;
}

/// Four hosts in a row; of a pair, two hosts under two names each.
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
    /// MTU of the wire between the gateways.
    pub mtu: u32,
    /// What runs as long as the bed stands, such as a box in the wire.
    pub machinery: Vec<Box<dyn Process>>,
    /// Four hosts, or two under two names each.
    pub topology: Topology,
    /// What happens to the path while a load runs.
    pub path: Option<Change>,
    /// What holds the gateways' processes to their share, where they have one.
    pub throttle: Option<Throttle>,
}

impl Bed {
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

    /// Holds the processes of a contender that is up to the ground's share. Where one side has none, the kernel carries its
    /// packets, and a share would be a lie.
    pub fn hold(&self, gateways: &[Gateway]) -> Result<(), Fault> {
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
                    "no process carries the packets of the {} gateway, so no share holds it back",
                    side.name()
                )));
            }
            own.try_for_each(|gateway| throttle.hold(gateway))?;
        }
        Ok(())
    }

    /// Lets them run as they like again.
    pub fn let_go(&self) -> Result<(), Fault> {
        self.throttle.as_ref().map_or(Ok(()), Throttle::let_go)
    }

    /// The interface on which the client's packets are seen before any gateway takes them. A pair has none.
    pub fn client_side(&self) -> Option<&'static str> {
        match self.topology {
            Topology::Gateways => Some(LAN),
            Topology::Pair => None,
        }
    }
}

/// The addresses of a bed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The client's own.
    pub client: IpAddr,
    /// The server's own.
    pub server: IpAddr,
    /// The network behind the left gateway, as `10.1.0.0/24`.
    pub left_network: String,
    /// The network behind the right gateway.
    pub right_network: String,
    /// The left gateway's on the wire.
    pub left: IpAddr,
    /// The right gateway's on the wire.
    pub right: IpAddr,
}
