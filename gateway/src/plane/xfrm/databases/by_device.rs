//! The policies of a gateway as the kernel is to have them. Those of devices, which are XFRM interfaces, count for
//! packets of their device alone:
//!
//! ```text
//!   each association of the device ──► one for each selector that it was negotiated for, to or from its own ends
//!   each policy of the databases that leads there ──► behind those: an acquire, or nothing is let in
//!   none leads there ──► in front: nothing is let in that `in` or `fwd` policies protect otherwise ([`inbound`])
//!                        behind: an acquire
//! ```
//!
//! A packet that no association was negotiated for finds none, and none is opened for it, as on the user plane.

mod entries;
mod inbound;

use super::super::policy::PolicyName;
use entries::{acquiring, closed, everything, opened};
use ipsec::database::{Interface, Snapshot};
use ipsec::policy::{Direction, Policy};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

const DIRECTIONS: [Direction; 3] = [Direction::Out, Direction::In, Direction::Fwd];

/// Every policy, of each name once, and these names. `local` are this host's addresses, `devices` the names of those
/// that exist.
pub(super) fn policies(
    snapshot: &Snapshot,
    local: &[IpAddr],
    devices: &[Arc<str>],
) -> (Vec<Arc<Policy>>, HashSet<PolicyName>) {
    let mut policies = Vec::new();
    for interface in snapshot.interfaces() {
        outbound(snapshot, interface, &mut policies);
    }
    inbound::policies(snapshot, local, &mut policies);
    for direction in DIRECTIONS {
        let listed = snapshot.policies(direction).map(|(_, policy)| policy);
        policies.extend(listed.map(|policy| match policy.device {
            Some(_) => Arc::new(closed(policy)),
            None => Arc::clone(policy),
        }));
    }
    let interfaces = snapshot.interfaces().iter();
    let (following, others): (Vec<_>, Vec<_>) =
        interfaces.partition(|interface| interface.follows_policies);
    let following: HashSet<_> = following.into_iter().map(|known| &known.name).collect();
    let others = others.into_iter().map(|interface| &interface.name);
    let all = others.chain(devices.iter().filter(|name| !following.contains(name)));
    policies.extend(all.flat_map(acquiring));
    let mut names = HashSet::new();
    policies.retain(|policy| names.insert(PolicyName::of(policy)));
    (policies, names)
}

/// Of several associations for the same packets the kernel takes the youngest; if they have different ends, the first
/// that the databases would try is named.
fn outbound(snapshot: &Snapshot, interface: &Interface, policies: &mut Vec<Arc<Policy>>) {
    for (selector, index) in snapshot.choices_of(interface.number) {
        let config = &snapshot.sa(index).config;
        let selectors = selector.map_or_else(|| everything().to_vec(), |one| vec![one]);
        let each = selectors.into_iter();
        policies.extend(each.map(|selector| Arc::new(opened(config, selector, Direction::Out))));
    }
}

#[cfg(test)]
mod tests;
