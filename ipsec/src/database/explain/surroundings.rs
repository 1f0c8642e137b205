//! What is known of the host around a packet: its own addresses, and by which way it reaches others.
//!
//! ```text
//!   lan ──► this host ──► wan ──► far end of the tunnel      reached by another device than the far end: on this side
//!   10.1.0.9                      10.2.0.9                   reached over the far end, or as it is: on the other
//! ```

use crate::packet::Outline;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// The facts about a host that an explanation needs. With none of them it judges the policies alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Surroundings {
    /// The addresses at which tunnels can start and end here; `None` if they are not known.
    pub outer: Option<HashSet<IpAddr>>,
    /// The addresses of this host for packets that are not protected.
    pub own: HashSet<IpAddr>,
    /// How other addresses are reached without a tunnel. What is missing is not known.
    pub hops: HashMap<IpAddr, Hop>,
    /// Whether the kernel forwards what enters a tunnel, and so checks `fwd` policies first.
    pub kernel_forwards: bool,
}

/// The first hop on the way to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Number of the device.
    pub device: u32,
    /// The router, unless the address is on the device's own network.
    pub router: Option<IpAddr>,
}

/// Which way a packet goes, seen from this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From this side to the peer's.
    Leaving,
    /// From the peer's side to this one.
    Arriving,
    /// The addresses do not tell.
    Unknown,
}

/// On which side of the tunnel an address is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    This,
    Other,
}

impl Surroundings {
    /// Whether tunnels can start and end here at `address`; `None` if that is not known.
    pub(super) fn has_outer(&self, address: IpAddr) -> Option<bool> {
        self.outer
            .as_ref()
            .map(|addresses| addresses.contains(&address))
    }

    /// Which way a packet goes whose tunnels lead to one of `far_ends`.
    pub(super) fn way(&self, packet: &Outline, far_ends: &[IpAddr]) -> Way {
        if self.own.contains(&packet.source) {
            return Way::Leaving;
        }
        if self.own.contains(&packet.destination) {
            return Way::Arriving;
        }
        let side = |address| self.side(address, far_ends);
        match (side(packet.source), side(packet.destination)) {
            (Some(Side::This), None | Some(Side::Other)) | (None, Some(Side::Other)) => {
                Way::Leaving
            }
            (Some(Side::Other), None | Some(Side::This)) | (None, Some(Side::This)) => {
                Way::Arriving
            }
            (None, None)
            | (Some(Side::This), Some(Side::This))
            | (Some(Side::Other), Some(Side::Other)) => Way::Unknown,
        }
    }

    fn side(&self, address: IpAddr, far_ends: &[IpAddr]) -> Option<Side> {
        let hop = self.hops.get(&address)?;
        let sides = far_ends.iter().map(|far_end| {
            let beside = self.hops.get(far_end)?;
            beside_or_beyond(hop, beside, *far_end)
        });
        let sides: Vec<_> = sides.collect();
        if sides.contains(&Some(Side::Other)) {
            return Some(Side::Other);
        }
        let all_here = !sides.is_empty() && sides.iter().all(|side| *side == Some(Side::This));
        all_here.then_some(Side::This)
    }
}

/// The side of an address that is reached by `hop`, where the far end of the tunnel is reached by `beside`. Of a
/// neighbour of the far end it cannot be told.
fn beside_or_beyond(hop: &Hop, beside: &Hop, far_end: IpAddr) -> Option<Side> {
    if hop.device != beside.device {
        return Some(Side::This);
    }
    let is_behind_it = hop.router == Some(far_end);
    let same_router = hop.router.is_some() && hop.router == beside.router;
    (is_behind_it || same_router).then_some(Side::Other)
}

#[cfg(test)]
mod tests;
