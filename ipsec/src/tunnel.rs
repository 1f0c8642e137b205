//! The outer header around an inner packet (RFC 4301 5.1.2): what is copied, what is set, and back again.

use crate::Dropped;
use crate::packet::Outline;
use crate::sa::SaConfig;
use std::net::IpAddr;

/// The meaning of an outer IP header, and of the UDP header behind it if there is one. A sink either writes it
/// ([`Outer::emit`]) or asks the kernel to (socket options).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// 50, 51, or 17 for encapsulation.
    pub protocol: u8,
    /// UDP ports of encapsulation.
    pub ports: Option<(u16, u16)>,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// IPv4's don't-fragment bit.
    pub dont_fragment: bool,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

impl Outer {
    /// The outer header for `inner` under `sa` (RFC 4301 5.1.2.1, RFC 6040 4.1).
    pub fn around(sa: &SaConfig, inner: &Outline) -> Self {
        todo!()
    }

    /// Reads the outer headers of a whole packet; also says where ESP or AH begins. RFC 3948 2.2, 2.3: a UDP payload
    /// that starts with four zero bytes is IKE's, one byte 0xff a keepalive; neither is ours.
    pub fn read(packet: &[u8]) -> Result<(Self, usize), Dropped> {
        todo!()
    }

    /// Bytes of IP header and UDP header.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Writes IP (and UDP) headers for `payload_len` bytes to the start of `out`. `identification` is IPv4's.
    /// RFC 3948 2.1: the UDP checksum is 0 over IPv4; over IPv6 as well (RFC 6935).
    pub fn emit(&self, payload_len: usize, identification: u16, out: &mut [u8]) {
        todo!()
    }
}

/// Carries the outer ECN field into the inner header (RFC 6040 4.2), mending an IPv4 header checksum.
/// A combination that RFC 6040 forbids drops the packet.
pub fn decapsulate_ecn(outer_traffic_class: u8, inner: &mut [u8]) -> Result<(), Dropped> {
    todo!()
}
