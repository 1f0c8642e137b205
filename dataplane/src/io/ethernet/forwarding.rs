//! Which packets a router may forward, and the source address of its ICMP errors.

use std::collections::HashSet;
use std::net::IpAddr;

/// Addresses of this host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalAddresses {
    /// All of them: packets to these are left to the kernel.
    pub all: HashSet<IpAddr>,
    /// Those of the device: the source of ICMP errors.
    pub on_device: Vec<IpAddr>,
}

impl LocalAddresses {
    /// The source address of ICMP errors to `other`.
    pub(super) fn source_towards(&self, other: IpAddr) -> Option<IpAddr> {
        let mut own = self.on_device.iter();
        own.find(|own| own.is_ipv4() == other.is_ipv4() && !is_link_local(**own))
            .copied()
    }
}

/// Whether a router may forward packets between these addresses: unicast, not link-local (RFC 1812 5.3.7, RFC 3927 7,
/// RFC 4291 2.5.6).
pub(super) fn may_be_forwarded(source: IpAddr, destination: IpAddr) -> bool {
    let is_forwardable = |address: IpAddr| {
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        !(is_broadcast
            || address.is_multicast()
            || address.is_loopback()
            || address.is_unspecified()
            || is_link_local(address))
    };
    is_forwardable(source) && is_forwardable(destination)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
