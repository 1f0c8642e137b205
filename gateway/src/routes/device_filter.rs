//! The drop rules a second time, by other means: a filter on every network device that is not ours (traffic control's
//! `clsact`, classic BPF with direct action), so that whoever flushes nftables or XFRM does not open the host. It sees
//! what those never do: packet sockets, and raw sockets with headers of their own.
//!
//! ```text
//!   Plan ──► compiler ──► programs of at most 3500 instructions, each for a box of addresses
//!              │  headers     what lies before the addresses, and what selectors ask of the layer above
//!              │  judgement   the first policy that fits, by destination, source, upper layer
//!              │  exceptions  what passes all the same
//!              └─ search      an address among ranges, by halving        assembler   labels, far jumps
//! ```
//!
//! A program only ever drops; what it does not drop the next filter decides, ours or another program's.
//!
//! **Egress** drops what the first fitting `out` policy protects or discards. **Ingress** comes before routing, so it
//! does not know whether a packet is for this host or to be forwarded. It drops what both would refuse; what one of
//! them lets pass is left to nftables, which knows:
//!
//! | `in` \ `fwd`            | protects or discards | `none`, or no policy |
//! |-------------------------|----------------------|----------------------|
//! | protects or discards    | dropped              | left to nftables     |
//! | `none`, or no policy    | left to nftables     | passes               |
//!
//! Passed all the same: frames for other stations, neighbour discovery, reports of groups, leases, at egress our own
//! outer packets (marked, ESP, AH or UDP at a port of ours, between addresses of an association), at ingress ESP, AH,
//! UDP to a port of ours or in a later fragment for an outer address of ours, and complaints that one of our outer
//! packets was too big.
//!
//! A later fragment carries no ports: what drops by port drops it. A `none` policy by port lets it pass inwards, where
//! it is worth nothing without the first one, and outwards if the drop rules have seen the packet whole and marked it.
//! What hides behind more than eight extension headers counts as whatever would be dropped; behind three VLAN tags all
//! is dropped. Other encapsulations (MPLS, PPPoE, LLC) are not looked into: the device that makes them has a filter of
//! its own.

pub(crate) mod assembler;
pub(crate) mod compiler;
mod exceptions;
mod headers;
mod policies;
mod search;
mod task;

pub(crate) use headers::LinkKind;
pub(crate) use task::Target;

use std::fmt;

/// Which way packets pass a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum FilterHook {
    /// In from the wire.
    Ingress,
    /// Out to the wire.
    Egress,
}

/// A plan that no filter of bounded size can hold.
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
