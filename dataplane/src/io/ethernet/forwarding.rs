//! Which packets a router may forward, and from which of its addresses it reports about them.

use std::collections::HashSet;
use std::net::IpAddr;

/// Addresses of this host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalAddresses {
    /// All of them: what is sent to these is the kernel's.
    pub all: HashSet<IpAddr>,
    /// Those of the device: reports about packets come from here.
    pub on_device: Vec<IpAddr>,
}

impl LocalAddresses {
    /// The address by which this router speaks to `other`.
    pub(super) fn source_towards(&self, other: IpAddr) -> Option<IpAddr> {
        let mut own = self.on_device.iter();
        own.find(|own| own.is_ipv4() == other.is_ipv4() && !is_link_local(**own))
            .copied()
    }
}

/// Whether packets from one of these to the other may pass a router: single hosts, beyond a link (RFC 1812 5.3.7, RFC 3927
/// 7, RFC 4291 2.5.6).
pub(super) fn may_be_forwarded(source: IpAddr, destination: IpAddr) -> bool {
    let may_stand = |address: IpAddr| {
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        !(is_broadcast
            || address.is_multicast()
            || address.is_loopback()
            || address.is_unspecified()
            || is_link_local(address))
    };
    may_stand(source) && may_stand(destination)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
