//! Security policy: which traffic is protected, how, and what happens to the rest (RFC 4301 4.4.1).

pub(crate) use crate::selector::network;
pub use crate::selector::{Prefix, Selector, Upper};

use crate::sa::{Mode, Protocol, Reqid};
use std::net::IpAddr;
use std::sync::Arc;

/// Which way traffic goes, seen from this gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Leaving: own or forwarded.
    Out,
    /// Arriving for this host.
    In,
    /// Arriving to be forwarded; Linux keeps it apart, and `in` creates it too unless `-k` forbids.
    Fwd,
}

/// How insistent a template is (setkey's level).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// As the system's default: here, `require`.
    Default,
    /// Protect if an association exists, else pass in clear.
    Use,
    /// Protect or do not pass.
    Require,
    /// Like `require`, and only with associations of this reqid; `None` lets the gateway choose one.
    Unique(Option<Reqid>),
}

/// One transformation that a policy demands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Template {
    /// ESP or AH.
    pub protocol: Protocol,
    /// Transport or tunnel, never `Any`.
    pub mode: Mode,
    /// Outer source and destination: always in tunnel mode, optional in transport mode.
    pub endpoints: Option<(IpAddr, IpAddr)>,
    /// How insistent.
    pub level: Level,
}

/// What happens to the traffic.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Drop it.
    Discard,
    /// Pass it unencrypted by normal routing (`none`).
    Bypass,
    /// Leave it to the socket's own policy (`entrust`); here the same as bypass, with a warning.
    Entrust,
    /// Protect it by these, the first applied innermost.
    Protect(Vec<Template>),
}

/// One entry of the SPD.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    /// Which packets.
    pub selector: Selector,
    /// Which way.
    pub direction: Direction,
    /// What to do.
    pub action: Action,
    /// Over how many associations the flows that leave are spread, each flow through one of them; 1 for none but the
    /// youngest. Only with a single template (`-o spread=N`).
    pub spread: u8,
    /// Higher goes first; equal ones in the order in which they were added (setkey's `prio`, default 0).
    pub priority: i64,
    /// Whether it belongs to a peer of IKE, and so to no setkey file.
    pub is_negotiated: bool,
    /// The device by whose associations its packets leave and have to arrive; none if any association serves it that
    /// has no device.
    pub device: Option<Arc<str>>,
}
