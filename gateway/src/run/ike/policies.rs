//! The policies of a pair of networks: without an association they close it, with one they lead into it.

use super::selectors::Pair;
use ipsec::policy::{Action, Direction, Level, Policy, Template};
use ipsec::sa::{Mode, Protocol, Reqid};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Policies of setkey files have priority 0 if they name none, and go first. Among those of peers the narrower goes
/// first; the largest [`Pair::narrowness`] is below 1100.
const LOWEST_PRIORITY: i64 = -10_000;

/// The three directions of each pair.
pub(crate) const DIRECTIONS: [Direction; 3] = [Direction::Out, Direction::In, Direction::Fwd];

/// What protects the traffic of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Protection {
    /// ESP or AH.
    pub protocol: Protocol,
    /// Tunnel or transport.
    pub mode: Mode,
    /// The outer addresses, this side's first. While the peer is down they may be unspecified: no association matches.
    pub ends: (IpAddr, IpAddr),
    /// The child's number.
    pub reqid: Reqid,
}

impl Protection {
    /// The policies of a pair, one for each of [`DIRECTIONS`]. With a device its associations alone satisfy them.
    pub(crate) fn policies(&self, pair: &Pair, device: Option<&Arc<str>>) -> [Arc<Policy>; 3] {
        DIRECTIONS.map(|direction| Arc::new(self.policy(pair, direction, device)))
    }

    fn policy(&self, pair: &Pair, direction: Direction, device: Option<&Arc<str>>) -> Policy {
        let (local, remote) = self.ends;
        let endpoints = match direction {
            Direction::Out => (local, remote),
            Direction::In | Direction::Fwd => (remote, local),
        };
        let template = Template {
            protocol: self.protocol,
            mode: self.mode,
            // In transport mode the packet's own addresses are the ends.
            endpoints: (self.mode == Mode::Tunnel).then_some(endpoints),
            level: Level::Unique(Some(self.reqid)),
        };
        Policy {
            selector: pair.selector(direction),
            direction,
            action: Action::Protect(vec![template]),
            spread: 1,
            priority: LOWEST_PRIORITY + pair.narrowness(),
            is_negotiated: true,
            device: device.cloned(),
        }
    }
}

/// An address that no peer has, of the same family as `other`.
pub(crate) fn unspecified_like(other: IpAddr) -> IpAddr {
    match other {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
