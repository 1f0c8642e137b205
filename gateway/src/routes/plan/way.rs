//! Where protected traffic leaves when the kernel's own IPsec carries it: the route that the kernel looks up before it
//! seals a packet.

use std::net::IpAddr;
use std::sync::Arc;

/// The way to the peer of a policy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Way {
    /// The device by which outer packets leave.
    pub device: Arc<str>,
    /// The router; none if the peer is on the link, or if the policy's addresses are of another family than the outer
    /// ones: then the device is enough, because the kernel looks up the outer packets' own route.
    pub next_hop: Option<IpAddr>,
    /// The source of packets of this host that have none yet: one of its addresses inside the policy's source prefix.
    pub source: Option<IpAddr>,
}
