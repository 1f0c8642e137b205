//! A testbed builds the same four hosts for every trial:
//!
//! ```text
//!   client ── lan ── left ── wan ── right ── lan ── server
//!   10.1.0.2    10.1.0.1  192.0.2.1  192.0.2.2  10.2.0.1    10.2.0.2
//! ```
//!
//! With an impairment a fifth host bridges the middle of the wire; on a path whose MTU shrinks it is a router. A *pair*
//! is two hosts alone, each its own gateway, as transport mode needs them:
//!
//! ```text
//!   client = left ── wan ── right = server
//!        192.0.2.1          192.0.2.2
//! ```
//!
//! In IPv6 the networks are fd00:1::/64 and fd00:2::/64, and the wire is 2001:db8::/64, with the same last numbers.
//!
//! Every trial gets a fresh one, so that nothing a contender leaves behind affects the next.

mod addresses;
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
mod topology;
mod topology_spec;

pub use addresses::Addresses;
pub use families::{Families, Family};
pub use namespaces::Namespaces;
pub use share::{Quotas, Throttle, ThrottleCounts};
pub(crate) use ssh::{HostSpec, Hosts, LinkSpec, REAL_MACHINES, Ssh};
pub use topology::{ScheduledChange, Testbed, Topology};
pub use topology_spec::{
    Impairment, LAN, Layout, PathMtuChange, Receiving, Shape, Tcp, TopologySpec, WAN,
};
