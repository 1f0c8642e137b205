//! Security policy: which traffic is protected, how, and what happens to the rest (RFC 4301 4.4.1).

use crate::sa::{Mode, Protocol, Reqid};
use std::net::IpAddr;

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

/// An address prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    /// Any address of it; host bits may be set, as setkey allows, and are ignored.
    pub address: IpAddr,
    /// 0 to 32 or 128.
    pub len: u8,
}

impl Prefix {
    /// Whether `address` lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv6() == address.is_ipv6()
            && network(self.address, self.len) == network(address, self.len)
    }

    /// Whether it is a single address.
    pub fn is_host(&self) -> bool {
        self.len == if self.address.is_ipv6() { 128 } else { 32 }
    }
}

/// The network part of an address as a number: the same for all addresses of a prefix of this length.
pub(crate) fn network(address: IpAddr, len: u8) -> u128 {
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let host = u32::from(width - len.min(width));
    bits.checked_shr(host)
        .and_then(|network| network.checked_shl(host))
        .unwrap_or(0)
}

/// The upper layer that a selector matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Upper {
    /// Whatever it is.
    #[default]
    Any,
    /// This protocol number; `None` ports match any (RFC 4301 4.4.1.1).
    Protocol {
        /// IP protocol number.
        number: u8,
        /// Source port of TCP, UDP, SCTP, DCCP, UDP-Lite.
        source_port: Option<u16>,
        /// Destination port.
        destination_port: Option<u16>,
    },
    /// ICMP (1) or ICMPv6 (58) of a type and code, `None` for any.
    Icmp {
        /// 1 or 58.
        number: u8,
        /// Message type.
        kind: Option<u8>,
        /// Message code.
        code: Option<u8>,
    },
    /// Ports without a protocol, as setkey's `addr[port] … any` writes it: TCP, UDP, DCCP, SCTP, UDP-Lite.
    Ports {
        /// Source port.
        source_port: Option<u16>,
        /// Destination port.
        destination_port: Option<u16>,
    },
}

impl Upper {
    /// Source and destination port that it matches; `None` for any port, and where the protocol has none.
    pub fn ports(self) -> (Option<u16>, Option<u16>) {
        match self {
            Self::Protocol {
                source_port,
                destination_port,
                ..
            }
            | Self::Ports {
                source_port,
                destination_port,
            } => (source_port, destination_port),
            Self::Any | Self::Icmp { .. } => (None, None),
        }
    }
}

/// Which packets a policy is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Selector {
    /// Source addresses.
    pub source: Prefix,
    /// Destination addresses.
    pub destination: Prefix,
    /// Upper layer.
    pub upper: Upper,
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
}
