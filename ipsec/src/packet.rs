//! The facts of an IP packet that policy decides by: its outline.

mod flow_template;

pub use flow_template::{FlowTemplate, have_same_flow};

use crate::Dropped;
use crate::wire::ip::{Chain, Ip, Ipv4, Ipv6, number};
use std::net::IpAddr;

/// The facts of one IPv4 or IPv6 packet that selectors, tunnels and trains need, read once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outline {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The upper-layer protocol behind all extension headers.
    pub protocol: u8,
    /// Where the upper layer starts: bytes of IP header, options and extension headers.
    pub header_len: usize,
    /// Where the IPsec headers of transport mode go (RFC 4303 3.1.1): behind hop-by-hop, routing and fragment headers.
    pub transport_offset: usize,
    /// The whole packet's length by its own header.
    pub total_len: usize,
    /// Ports of TCP, UDP, UDP-Lite, SCTP, DCCP; type and code of ICMP; absent in later fragments.
    pub ports: Option<(u16, u16)>,
    /// Whether it is a fragment at all, and whether a later one.
    pub fragment: FragmentKind,
    /// DSCP and ECN as in the header.
    pub traffic_class: u8,
    /// IPv4's don't-fragment bit; true for IPv6.
    pub dont_fragment: bool,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// A packet's place among fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FragmentKind {
    /// No fragment.
    #[default]
    Whole,
    /// Offset 0 and more to come: has ports.
    First,
    /// Offset above 0: has none.
    Later,
}

impl Outline {
    /// Reads a packet's headers; every length it reports lies inside `packet`. Bytes behind the packet's own length
    /// are link padding and do no harm. Checksums are not looked at: a train's are not finished yet.
    #[inline]
    pub fn read(packet: &[u8]) -> Result<Self, Dropped> {
        match Ip::new_checked(packet)? {
            Ip::V4(ipv4) => Self::of_v4(&ipv4),
            Ip::V6(ipv6) => Self::of_v6(&ipv6),
        }
    }

    #[inline]
    fn of_v4(ipv4: &Ipv4<'_>) -> Result<Self, Dropped> {
        let fragment = FragmentKind::of(ipv4.fragment_offset(), ipv4.more_fragments());
        Ok(Self {
            source: ipv4.source().into(),
            destination: ipv4.destination().into(),
            protocol: ipv4.protocol(),
            header_len: ipv4.header_len(),
            transport_offset: ipv4.header_len(),
            total_len: ipv4.total_len(),
            ports: ports(ipv4.protocol(), fragment, ipv4.payload())?,
            fragment,
            traffic_class: ipv4.traffic_class(),
            dont_fragment: ipv4.dont_fragment(),
            hop_limit: ipv4.hop_limit(),
        })
    }

    #[inline]
    fn of_v6(ipv6: &Ipv6<'_>) -> Result<Self, Dropped> {
        let chain = Chain::read(ipv6)?;
        let fragment = chain.fragment.map_or(FragmentKind::Whole, |header| {
            FragmentKind::of(header.offset, header.more)
        });
        Ok(Self {
            source: ipv6.source().into(),
            destination: ipv6.destination().into(),
            protocol: chain.protocol,
            header_len: chain.upper_at,
            transport_offset: chain.transport_at,
            total_len: ipv6.total_len(),
            ports: ports(chain.protocol, fragment, chain.upper(ipv6))?,
            fragment,
            traffic_class: ipv6.traffic_class(),
            dont_fragment: true,
            hop_limit: ipv6.hop_limit(),
        })
    }
}

/// The addresses of a packet, unchecked: enough for prefetching.
#[inline]
pub fn hosts(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let (halves, _) = packet.get(12..20)?.as_chunks::<4>();
            Some((halves[0].into(), halves[1].into()))
        }
        6 => {
            let (halves, _) = packet.get(8..40)?.as_chunks::<16>();
            Some((halves[0].into(), halves[1].into()))
        }
        _ => None,
    }
}

impl FragmentKind {
    fn of(offset: usize, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::Whole,
            (0, true) => Self::First,
            _ => Self::Later,
        }
    }
}

/// The ports, or type and code, at the start of an upper layer. RFC 4301 4.4.1.1: a later fragment's are opaque. A
/// packet that ends before them is refused, lest it slip past a policy that names them.
#[inline]
fn ports(
    protocol: u8,
    fragment: FragmentKind,
    upper: &[u8],
) -> Result<Option<(u16, u16)>, Dropped> {
    if fragment == FragmentKind::Later {
        return Ok(None);
    }
    match (protocol, upper) {
        (number::TCP | number::UDP | number::UDP_LITE | number::SCTP | number::DCCP, upper) => {
            let &[a, b, c, d] = upper.first_chunk().ok_or(Dropped::Malformed)?;
            Ok(Some((
                u16::from_be_bytes([a, b]),
                u16::from_be_bytes([c, d]),
            )))
        }
        (number::ICMP | number::ICMPV6, &[kind, code, ..]) => Ok(Some((kind.into(), code.into()))),
        (number::ICMP | number::ICMPV6, _) => Err(Dropped::Malformed),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
