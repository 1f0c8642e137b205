//! The drop rules a second time, by another mechanism: a filter on every network device but the gateway's own (traffic
//! control's `clsact`, classic BPF with direct action), so that traffic stays blocked if another program flushes
//! nftables or XFRM. It also sees what those do not: packet sockets, and raw sockets with their own IP headers.
//!
//! ```text
//!   Plan ──► compiler ──► programs of at most 3500 instructions, each for one area of addresses
//!              │  headers     parses up to the addresses, and the upper-layer fields that selectors match
//!              │  policies    the first policy that matches, by destination, source, upper layer
//!              │  exceptions  what passes nevertheless
//!              └─ search      binary search of an address among ranges   assembler   labels, far jumps
//! ```
//!
//! A program only drops; packets that it does not drop go on to the next filter, of the gateway or another program.
//!
//! **Egress** drops what the first matching `out` policy protects or discards. **Ingress** comes before routing, so it
//! is not known yet whether a packet is for this host or to be forwarded. It drops what both `in` and `fwd` policies
//! refuse; what one of them lets pass is left to nftables, which runs after routing:
//!
//! | `in` \ `fwd`            | protects or discards | `none`, or no policy |
//! |-------------------------|----------------------|----------------------|
//! | protects or discards    | dropped              | left to nftables     |
//! | `none`, or no policy    | left to nftables     | passes               |
//!
//! Where the kernel's own IPsec opens packets there are no programs for ingress.
//!
//! Exceptions that pass nevertheless: frames for other stations, neighbour discovery, multicast group reports and DHCP;
//! at egress the gateway's own outer packets (marked, ESP, AH or UDP with one of its ports, between addresses of an
//! SA); at ingress ESP, AH, UDP to one of the gateway's ports or in a later fragment for one of its outer addresses,
//! and ICMP "too big" about its outer packets.
//!
//! A later fragment carries no ports, so a policy with ports that drops applies to it. A `none` policy with ports lets
//! it pass at ingress, because it is useless without the first fragment, and at egress if the drop rules have seen the
//! whole packet and marked it. A packet with more than eight extension headers is taken to match every policy that
//! drops; one with three VLAN tags in the frame is dropped. Other encapsulations (MPLS, PPPoE, LLC) are not parsed: the
//! device that adds them has its own filter.

pub(crate) mod assembler;
pub(crate) mod compiler;
mod exceptions;
mod headers;
mod policies;
mod search;
mod task;

pub(crate) use headers::LinkKind;
pub(crate) use task::{Target, in_and_fwd_differ};

use std::fmt;

/// Direction of packets through a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum FilterHook {
    /// Received.
    Ingress,
    /// Sent.
    Egress,
}

/// The plan does not fit filters of the maximum size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many policies between the same addresses for a filter on devices")
    }
}

impl std::error::Error for TooMany {}

#[cfg(test)]
mod tests;
