//! The Internet Protocol, both versions: IPv4 (RFC 791) in [`v4`], IPv6 (RFC 8200) in [`v6`], and the numbers of what
//! they carry.

pub mod v4;
pub mod v6;

pub use v4::{Ipv4, Ipv4Fields};
pub use v6::{Chain, Ipv6, Ipv6Fields};

use crate::Dropped;

/// IP protocol numbers, which are IPv6's next-header values too (IANA "Assigned Internet Protocol Numbers").
pub mod number {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 inside IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 inside IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating Security Payload.
    pub const ESP: u8 = 50;
    /// Authentication Header.
    pub const AH: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// Nothing follows.
    pub const NO_NEXT: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
}

/// A packet of either version.
#[derive(Clone, Copy, Debug)]
pub enum Ip<'a> {
    /// IPv4.
    V4(Ipv4<'a>),
    /// IPv6.
    V6(Ipv6<'a>),
}

impl<'a> Ip<'a> {
    /// Reads the version and the fixed header of it.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Dropped> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(4) => Ipv4::new_checked(bytes).map(Self::V4),
            Some(6) => Ipv6::new_checked(bytes).map(Self::V6),
            Some(_) => Err(Dropped::Unsupported),
            None => Err(Dropped::Malformed),
        }
    }

    /// Bytes of the packet by its own header.
    pub fn total_len(&self) -> usize {
        match self {
            Self::V4(ipv4) => ipv4.total_len(),
            Self::V6(ipv6) => ipv6.total_len(),
        }
    }
}
