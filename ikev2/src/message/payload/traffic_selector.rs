//! TSi and TSr (RFC 7296 3.13): which packets a child SA carries, as ranges of addresses and ports.

use super::super::{
    Malformed,
    reader::Reader,
    writer::{Overflow, count, with_length},
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4_RANGE: u8 = 7;
const IPV6_RANGE: u8 = 8;
const HEAD_LEN: usize = 4;

/// One selector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficSelector<'a> {
    /// TS_IPV4_ADDR_RANGE or TS_IPV6_ADDR_RANGE.
    Range {
        /// The IP protocol, 0 for any.
        protocol: u8,
        /// The ports, or type and code of ICMP.
        ports: Ports,
        /// The addresses.
        addresses: AddressRange,
    },
    /// Another type, such as TS_SECLABEL (RFC 9478), which is not read any further.
    Other {
        /// TS Type.
        kind: u8,
        /// What is in the place of the protocol.
        second: u8,
        /// What is behind the length.
        bytes: &'a [u8],
    },
}

/// From one address to another of the same family, both included. INVARIANT: the first is not above the last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "(IpAddr, IpAddr)", into = "(IpAddr, IpAddr)")]
pub enum AddressRange {
    /// IPv4.
    V4 {
        /// The first address.
        first: Ipv4Addr,
        /// The last address.
        last: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// The first address.
        first: Ipv6Addr,
        /// The last address.
        last: Ipv6Addr,
    },
}

/// Which ports. ICMP has its type in the high and its code in the low half (RFC 7296 3.13.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "(u16, u16)", into = "(u16, u16)")]
pub enum Ports {
    /// From one to another, both included. INVARIANT: the first is not above the last.
    Range {
        /// The first port.
        first: u16,
        /// The last port.
        last: u16,
    },
    /// Only packets of which the ports cannot be seen.
    Opaque,
}

impl Ports {
    /// All ports, seen or not.
    pub const ANY: Self = Self::Range {
        first: 0,
        last: u16::MAX,
    };

    /// The ports from `first` to `last`, if there are any. RFC 7296 3.13.1 writes OPAQUE as 65535 to 0.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        match (first, last) {
            (u16::MAX, 0) => Some(Self::Opaque),
            _ => (first <= last).then_some(Self::Range { first, last }),
        }
    }

    fn bounds(self) -> (u16, u16) {
        match self {
            Self::Range { first, last } => (first, last),
            Self::Opaque => (u16::MAX, 0),
        }
    }
}

impl AddressRange {
    /// From `first` to `last`, if these are of one family and in order.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                Some(Self::V4 { first, last })
            }
            (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                Some(Self::V6 { first, last })
            }
            _ => None,
        }
    }

    /// The first and the last address.
    pub fn bounds(self) -> (IpAddr, IpAddr) {
        match self {
            Self::V4 { first, last } => (first.into(), last.into()),
            Self::V6 { first, last } => (first.into(), last.into()),
        }
    }

    fn parse(kind: u8, mut reader: Reader<'_>) -> Result<Self, Malformed> {
        let here = reader;
        let range = if kind == IPV4_RANGE {
            let expected = "two IPv4 addresses";
            let (first, last) = (reader.array::<4>(expected)?, reader.array::<4>(expected)?);
            Self::new(Ipv4Addr::from(first).into(), Ipv4Addr::from(last).into())
        } else {
            let expected = "two IPv6 addresses";
            let (first, last) = (reader.array::<16>(expected)?, reader.array::<16>(expected)?);
            Self::new(Ipv6Addr::from(first).into(), Ipv6Addr::from(last).into())
        };
        if !reader.is_empty() {
            return Err(reader.malformed("the end behind the last address"));
        }
        range.ok_or(here.malformed("a first address that is not above the last"))
    }

    fn emit(self, out: &mut Vec<u8>) {
        match self {
            Self::V4 { first, last } => {
                out.extend(first.octets());
                out.extend(last.octets());
            }
            Self::V6 { first, last } => {
                out.extend(first.octets());
                out.extend(last.octets());
            }
        }
    }
}

impl TryFrom<(IpAddr, IpAddr)> for AddressRange {
    type Error = &'static str;

    fn try_from((first, last): (IpAddr, IpAddr)) -> Result<Self, Self::Error> {
        Self::new(first, last).ok_or("two addresses of one family in order")
    }
}

impl From<AddressRange> for (IpAddr, IpAddr) {
    fn from(range: AddressRange) -> Self {
        range.bounds()
    }
}

impl TryFrom<(u16, u16)> for Ports {
    type Error = &'static str;

    fn try_from((first, last): (u16, u16)) -> Result<Self, Self::Error> {
        Self::new(first, last).ok_or("two ports in order")
    }
}

impl From<Ports> for (u16, u16) {
    fn from(ports: Ports) -> Self {
        ports.bounds()
    }
}

pub(super) fn parse(mut reader: Reader<'_>) -> Result<Vec<TrafficSelector<'_>>, Malformed> {
    let here = reader;
    let [selectors, _, _, _] = reader.array("the number of selectors and three reserved bytes")?;
    // RFC 7296 3.13: at least one.
    if selectors == 0 {
        return Err(here.malformed("at least one selector"));
    }
    let parsed = (0..selectors).map(|_| TrafficSelector::parse(&mut reader));
    let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
    if reader.is_empty() {
        Ok(parsed)
    } else {
        Err(reader.malformed("the end behind the last selector"))
    }
}

pub(super) fn emit(selectors: &[TrafficSelector<'_>], out: &mut Vec<u8>) -> Result<(), Overflow> {
    out.extend([count(selectors.len())?, 0, 0, 0]);
    for selector in selectors {
        with_length(out, |out| {
            selector.emit(out);
            Ok(())
        })?;
    }
    Ok(())
}

impl<'a> TrafficSelector<'a> {
    /// All of IPv4, any protocol and port.
    pub const ANY_IPV4: Self = Self::Range {
        protocol: 0,
        ports: Ports::ANY,
        addresses: AddressRange::V4 {
            first: Ipv4Addr::UNSPECIFIED,
            last: Ipv4Addr::BROADCAST,
        },
    };
    /// All of IPv6, any protocol and port.
    pub const ANY_IPV6: Self = Self::Range {
        protocol: 0,
        ports: Ports::ANY,
        addresses: AddressRange::V6 {
            first: Ipv6Addr::UNSPECIFIED,
            last: Ipv6Addr::from_bits(u128::MAX),
        },
    };

    fn parse(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let [kind, second] = reader.array("a traffic selector")?;
        let len = usize::from(reader.u16("the selector's length")?);
        let len = len
            .checked_sub(HEAD_LEN)
            .ok_or(reader.malformed("a length of at least 4"))?;
        let mut body = reader.part(len, "as many bytes as the selector's length says")?;
        if kind != IPV4_RANGE && kind != IPV6_RANGE {
            return Ok(Self::Other {
                kind,
                second,
                bytes: body.rest(),
            });
        }
        let here = body;
        let (first, last) = (body.u16("a first port")?, body.u16("a last port")?);
        let ports = Ports::new(first, last)
            .ok_or(here.malformed("a first port that is not above the last"))?;
        let addresses = AddressRange::parse(kind, body)?;
        Ok(Self::Range {
            protocol: second,
            ports,
            addresses,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Range {
                protocol,
                ports,
                addresses,
            } => {
                let kind = match addresses {
                    AddressRange::V4 { .. } => IPV4_RANGE,
                    AddressRange::V6 { .. } => IPV6_RANGE,
                };
                let (first, last) = ports.bounds();
                out.extend([kind, *protocol, 0, 0]);
                out.extend(first.to_be_bytes());
                out.extend(last.to_be_bytes());
                addresses.emit(out);
            }
            Self::Other {
                kind,
                second,
                bytes,
            } => {
                out.extend([*kind, *second, 0, 0]);
                out.extend_from_slice(bytes);
            }
        }
    }
}
