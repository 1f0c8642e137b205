//! From ranges of addresses and ports, as IKE negotiates them, to prefixes and single ports, as policies have them.

use crate::failure::Failure;
use ikev2::connection::{Child, Traffic};
use ikev2::message::payload::{AddressRange, Ports};
use ipsec::policy::{Direction, Prefix, Selector, Upper};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most pairs of prefixes that the traffic of one child may need: each is three policies.
pub(crate) const MAX_PAIRS_PER_CHILD: usize = 256;

/// One pair of networks: what a policy of each direction matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pair {
    /// This side.
    pub local: Prefix,
    /// The peer's side.
    pub remote: Prefix,
    /// The upper layer of packets that leave.
    upper: Upper,
}

impl Pair {
    /// The selector of packets that pass in this direction.
    pub(crate) fn selector(&self, direction: Direction) -> Selector {
        match direction {
            Direction::Out => Selector {
                source: self.local,
                destination: self.remote,
                upper: self.upper,
            },
            Direction::In | Direction::Fwd => Selector {
                source: self.remote,
                destination: self.local,
                upper: reversed(self.upper),
            },
        }
    }

    /// The same as ranges of addresses and ports, this side's first: [`pairs`] makes this pair of them again.
    pub(crate) fn traffic(&self) -> Option<(Traffic, Traffic)> {
        let one = |port: Option<u16>| port.map_or(Some(Ports::ANY), |port| Ports::new(port, port));
        let (protocol, here, there) = match self.upper {
            Upper::Any => (0, Ports::ANY, Ports::ANY),
            Upper::Ports {
                source_port,
                destination_port,
            } => (0, one(source_port)?, one(destination_port)?),
            Upper::Protocol {
                number,
                source_port,
                destination_port,
            } => (number, one(source_port)?, one(destination_port)?),
            Upper::Icmp { number, kind, code } => {
                let first = |kind| u16::from_be_bytes([kind, code.unwrap_or(0)]);
                let last = |kind| u16::from_be_bytes([kind, code.unwrap_or(u8::MAX)]);
                let of = |kind| Ports::new(first(kind), last(kind));
                let types = kind.map_or(Some(Ports::ANY), of)?;
                (number, types, types)
            }
        };
        let traffic = |prefix, ports| {
            Some(Traffic {
                protocol,
                ports,
                addresses: range(prefix)?,
            })
        };
        Some((traffic(self.local, here)?, traffic(self.remote, there)?))
    }

    /// Larger for fewer packets: of two pairs that overlap, the narrower one decides.
    pub(crate) fn narrowness(&self) -> i64 {
        let ports = self.upper.ports();
        let upper = match self.upper {
            Upper::Any => 0,
            Upper::Ports { .. } | Upper::Protocol { .. } | Upper::Icmp { .. } => 1,
        };
        let ports = i64::from(ports.0.is_some()) + i64::from(ports.1.is_some());
        4 * (i64::from(self.local.len) + i64::from(self.remote.len)) + upper + ports
    }
}

/// What leaves and what arrives of a child's networks.
pub(crate) fn network_selectors(child: &Child) -> Result<Vec<(Selector, Direction)>, Failure> {
    let pairs = pairs(&child.local, &child.remote).map_err(Failure::new)?;
    let both = |pair: Pair| {
        [Direction::Out, Direction::In].map(|direction| (pair.selector(direction), direction))
    };
    Ok(pairs.into_iter().flat_map(both).collect())
}

/// Every pair of this side's and the peer's traffic; an error names what a policy cannot express. Ranges of different
/// families or protocols have no packet in common, and make no pair.
pub(crate) fn pairs(local: &[Traffic], remote: &[Traffic]) -> Result<Vec<Pair>, Failure> {
    let mut pairs = Vec::new();
    for local in local {
        for remote in remote {
            let Some(upper) = upper(local, remote)? else {
                continue;
            };
            for local in prefixes(local.addresses) {
                for remote in prefixes(remote.addresses) {
                    let is_one_family = local.address.is_ipv4() == remote.address.is_ipv4();
                    let pair = Pair {
                        local,
                        remote,
                        upper,
                    };
                    if is_one_family && !pairs.contains(&pair) {
                        pairs.push(pair);
                    }
                    if pairs.len() > MAX_PAIRS_PER_CHILD {
                        return Err(Failure::new(format!(
                            "the traffic needs more than {MAX_PAIRS_PER_CHILD} pairs of prefixes: use ranges that are \
                             prefixes"
                        )));
                    }
                }
            }
        }
    }
    if pairs.is_empty() {
        Err(Failure::new(
            "the traffic of the two sides has no packet in common",
        ))
    } else {
        Ok(pairs)
    }
}

/// The upper layer of packets from `local` to `remote`; none if no protocol is in both.
fn upper(local: &Traffic, remote: &Traffic) -> Result<Option<Upper>, Failure> {
    let number = match (local.protocol, remote.protocol) {
        (0, number) | (number, 0) => number,
        (one, other) if one == other => one,
        _ => return Ok(None),
    };
    if matches!(number, ICMP | ICMPV6) {
        return icmp(number, local.ports, remote.ports).map(Some);
    }
    let (source_port, destination_port) = (one_port(local.ports)?, one_port(remote.ports)?);
    Ok(Some(match (number, source_port, destination_port) {
        (0, None, None) => Upper::Any,
        (0, ..) => Upper::Ports {
            source_port,
            destination_port,
        },
        _ => Upper::Protocol {
            number,
            source_port,
            destination_port,
        },
    }))
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A single port, or `None` for all of them.
fn one_port(ports: Ports) -> Result<Option<u16>, Failure> {
    match ports {
        Ports::ANY => Ok(None),
        Ports::Range { first, last } if first == last => Ok(Some(first)),
        Ports::Range { first, last } => Err(Failure::new(format!(
            "a policy matches one port or all, not the ports {first} to {last}"
        ))),
        Ports::Opaque => Err(Failure::new(
            "a policy cannot match packets by having no visible port",
        )),
    }
}

/// RFC 7296 3.13.1: the type of ICMP is the high half of a port, the code its low half. RFC 4301 4.4.1.1: either side's
/// selector may have them.
fn icmp(number: u8, local: Ports, remote: Ports) -> Result<Upper, Failure> {
    let ports = match (local, remote) {
        (Ports::ANY, ports) | (ports, Ports::ANY) => ports,
        (one, other) if one == other => one,
        _ => return Err(Failure::new("the two sides name different types of ICMP")),
    };
    let (kind, code) = match ports {
        Ports::ANY => (None, None),
        Ports::Range { first, last } if first == last => {
            let [kind, code] = first.to_be_bytes();
            (Some(kind), Some(code))
        }
        Ports::Range { first, last } if first & 0xff == 0 && last == first | 0xff => {
            (Some(first.to_be_bytes()[0]), None)
        }
        Ports::Range { .. } | Ports::Opaque => {
            let why = "a policy matches one type of ICMP with one code, one type, or all";
            return Err(Failure::new(why));
        }
    };
    Ok(Upper::Icmp { number, kind, code })
}

fn reversed(upper: Upper) -> Upper {
    match upper {
        Upper::Any | Upper::Icmp { .. } => upper,
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => Upper::Protocol {
            number,
            source_port: destination_port,
            destination_port: source_port,
        },
        Upper::Ports {
            source_port,
            destination_port,
        } => Upper::Ports {
            source_port: destination_port,
            destination_port: source_port,
        },
    }
}

/// The addresses of a prefix.
fn range(prefix: Prefix) -> Option<AddressRange> {
    let width = if prefix.address.is_ipv4() { 32 } else { 128 };
    let host_bits = width - u32::from(prefix.len).min(width);
    let hosts = 1u128
        .checked_shl(host_bits)
        .map_or(u128::MAX, |count| count - 1);
    let bits = bits(prefix.address);
    AddressRange::new(address(bits & !hosts, width), address(bits | hosts, width))
}

/// The fewest prefixes that cover a range and nothing else.
fn prefixes(range: AddressRange) -> Vec<Prefix> {
    let (first, last) = range.bounds();
    let (mut first, last, width) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            (first.to_bits().into(), last.to_bits().into(), 32)
        }
        (first, last) => (bits(first), bits(last), 128),
    };
    let mut prefixes = Vec::new();
    loop {
        // As long as the alignment of the first address and the rest of the range allow.
        let aligned = first.trailing_zeros().min(width);
        let rest = u128::checked_ilog2((last - first).saturating_add(1)).unwrap_or(0);
        let host_bits = if last - first == u128::MAX {
            128
        } else {
            aligned.min(rest)
        };
        prefixes.push(Prefix {
            address: address(first, width),
            len: (width - host_bits) as u8,
        });
        let next = 1u128
            .checked_shl(host_bits)
            .and_then(|count| first.checked_add(count));
        match next {
            Some(next) if next <= last => first = next,
            _ => return prefixes,
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(bits: u128, width: u32) -> IpAddr {
    match width {
        32 => Ipv4Addr::from_bits(bits as u32).into(),
        _ => Ipv6Addr::from_bits(bits).into(),
    }
}

#[cfg(test)]
mod tests;
