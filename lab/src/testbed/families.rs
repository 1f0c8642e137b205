//! IPv4 and IPv6, inside a tunnel and outside, and the networks that follow from them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

/// What carries, and what is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Families {
    /// Of the end hosts, and of what they send.
    pub inner: Family,
    /// Of the wire between the gateways.
    pub outer: Family,
}

impl Family {
    /// That of an address.
    pub fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// Bytes of its header, without options.
    pub fn header(self) -> u32 {
        match self {
            Family::V4 => 20,
            Family::V6 => 40,
        }
    }

    /// The length of the prefix of every network of a testbed.
    pub(super) fn prefix(self) -> u8 {
        match self {
            Family::V4 => 24,
            Family::V6 => 64,
        }
    }

    /// Of the wire: left and right.
    pub(super) fn wire(self) -> [IpAddr; 2] {
        match self {
            Family::V4 => [1, 2].map(|host| Ipv4Addr::new(192, 0, 2, host).into()),
            Family::V6 => {
                [1, 2].map(|host| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into())
            }
        }
    }

    /// Of the networks behind the gateways, left and right: the gateway, and the end host.
    pub(super) fn lans(self) -> [[IpAddr; 2]; 2] {
        let lan = |network: u8| match self {
            Family::V4 => [1, 2].map(|host| Ipv4Addr::new(10, network, 0, host).into()),
            Family::V6 => {
                let network = 0xfd00_u128 << 112 | u128::from(network) << 96;
                [1, 2].map(|host| Ipv6Addr::from_bits(network | host).into())
            }
        };
        [lan(1), lan(2)]
    }

    /// The networks themselves, as `10.1.0.0/24`.
    pub(super) fn networks(self) -> [String; 2] {
        let words = match self {
            Family::V4 => ["10.1.0.0/24", "10.2.0.0/24"],
            Family::V6 => ["fd00:1::/64", "fd00:2::/64"],
        };
        words.map(str::to_owned)
    }
}

impl Families {
    /// As a spec names it: `6in4`.
    pub fn read(word: &str) -> Option<Families> {
        let family = |digit: &str| match digit {
            "4" => Some(Family::V4),
            "6" => Some(Family::V6),
            _ => None,
        };
        let (inner, outer) = word.split_once("in")?;
        Some(Families {
            inner: family(inner)?,
            outer: family(outer)?,
        })
    }

    /// Whether the same family is inside and outside.
    pub fn are_one(self) -> bool {
        self.inner == self.outer
    }
}
