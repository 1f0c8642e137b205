//! Which packets: what policies select, and what associations were negotiated for (RFC 4301 4.4.1.1).

use std::net::IpAddr;

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

impl Upper {
    /// The same of the packets that answer: ports change their places.
    fn exchanged(self) -> Self {
        match self {
            Self::Any | Self::Icmp { .. } => self,
            Self::Protocol {
                number,
                source_port,
                destination_port,
            } => Self::Protocol {
                number,
                source_port: destination_port,
                destination_port: source_port,
            },
            Self::Ports {
                source_port,
                destination_port,
            } => Self::Ports {
                source_port: destination_port,
                destination_port: source_port,
            },
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

impl Selector {
    /// Source and destination in each other's place.
    pub fn exchanged(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            upper: self.upper.exchanged(),
        }
    }
}
