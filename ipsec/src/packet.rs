//! What an IP packet says about itself: the outline that policy decides by.

use crate::Dropped;
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
    /// Reads a packet's headers; every length it reports lies inside `packet`.
    pub fn read(packet: &[u8]) -> Result<Self, Dropped> {
        todo!()
    }
}
