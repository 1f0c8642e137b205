//! The policies of a gateway as the kernel is to have them. Those of devices, which are XFRM interfaces, count for packets
//! of their device alone:
//!
//! ```text
//!   each association of the device ──► one for each selector that it was negotiated for, to or from its own ends
//!   each policy of the databases that leads there ──► behind those: an acquire, or nothing is let in
//!   none leads there ──► in front: nothing is let in that `in` or `fwd` policies protect otherwise ([`inbound`])
//!                        behind: an acquire
//! ```
//!
//! A packet that no association was negotiated for finds none, and none is opened for it, as on the user plane.

mod inbound;

use super::is_carried;
use ipsec::database::{Interface, Snapshot};
use ipsec::policy::{Action, Direction, Level, Policy, Prefix, Selector, Template, Upper};
use ipsec::sa::{Mode, Protocol, Reqid, SaConfig};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const DIRECTIONS: [Direction; 3] = [Direction::Out, Direction::In, Direction::Fwd];

/// Policies of one device: the first of these goes first, so none is hidden by one that closes the rest.
const FIRST_PRIORITY: i64 = 1_000;
const LAST_PRIORITY: i64 = -100_000;

/// Every policy, of each name once. `local` are this host's addresses, `devices` the names of those that exist.
pub(super) fn policies(
    snapshot: &Snapshot,
    local: &[IpAddr],
    devices: &[Arc<str>],
) -> Vec<Arc<Policy>> {
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
    let (following, others): (Vec<_>, Vec<_>) = snapshot
        .interfaces()
        .iter()
        .partition(|interface| interface.follows_policies);
    let is_following = |name: &Arc<str>| following.iter().any(|known| known.name == *name);
    let others = others.into_iter().map(|interface| &interface.name);
    let all = others.chain(devices.iter().filter(|name| !is_following(name)));
    policies.extend(all.flat_map(acquiring));
    let mut names = HashSet::new();
    policies
        .retain(|policy| names.insert((policy.selector, policy.direction, policy.device.clone())));
    policies
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

/// The policy that an association of a device satisfies.
fn opened(config: &SaConfig, selector: Selector, direction: Direction) -> Policy {
    let level = match config.reqid {
        Reqid(0) => Level::Require,
        reqid => Level::Unique(Some(reqid)),
    };
    let template = Template {
        protocol: config.id.protocol,
        mode: Mode::Tunnel,
        endpoints: Some((config.source, config.id.destination)),
        level,
    };
    Policy {
        selector,
        direction,
        action: Action::Protect(vec![template]),
        spread: 1,
        priority: FIRST_PRIORITY + narrowness(&selector),
        is_negotiated: config.is_negotiated,
        device: config.interface.clone(),
    }
}

/// Larger for fewer packets.
fn narrowness(selector: &Selector) -> i64 {
    let prefixes = i64::from(selector.source.len) + i64::from(selector.destination.len);
    2 * prefixes + i64::from(selector.upper != Upper::Any)
}

/// A policy that leads into a device, for packets that none of the device's associations was negotiated for.
fn closed(policy: &Policy) -> Policy {
    let mut closed = policy.clone();
    match (&mut closed.action, policy.direction) {
        (Action::Protect(templates), Direction::Out) => {
            for template in templates {
                let near = template.endpoints.map(|(near, _)| near);
                template.endpoints = Some(no_ends(near, policy.selector.source.address));
            }
        }
        (action, _) => *action = Action::Discard,
    }
    closed
}

/// The last policies of a device into which none leads, for packets that none of its associations was negotiated for: an
/// acquire.
fn acquiring(device: &Arc<str>) -> Vec<Arc<Policy>> {
    let policy = |selector: Selector| {
        let template = Template {
            protocol: Protocol::Esp,
            mode: Mode::Tunnel,
            endpoints: Some(no_ends(None, selector.source.address)),
            level: Level::Require,
        };
        Arc::new(Policy {
            selector,
            direction: Direction::Out,
            action: Action::Protect(vec![template]),
            spread: 1,
            priority: LAST_PRIORITY,
            is_negotiated: true,
            device: Some(Arc::clone(device)),
        })
    };
    everything().map(policy).to_vec()
}

/// Ends that no association has. The near one must not be unspecified: the kernel would look for a route.
fn no_ends(near: Option<IpAddr>, like: IpAddr) -> (IpAddr, IpAddr) {
    let near = near.filter(|near| !near.is_unspecified());
    match near.unwrap_or(like) {
        IpAddr::V4(_) => (
            near.unwrap_or(Ipv4Addr::LOCALHOST.into()),
            Ipv4Addr::UNSPECIFIED.into(),
        ),
        IpAddr::V6(_) => (
            near.unwrap_or(Ipv6Addr::LOCALHOST.into()),
            Ipv6Addr::UNSPECIFIED.into(),
        ),
    }
}

/// All packets of each family.
fn everything() -> [Selector; 2] {
    let all = |address: IpAddr| Prefix { address, len: 0 };
    [
        all(Ipv4Addr::UNSPECIFIED.into()),
        all(Ipv6Addr::UNSPECIFIED.into()),
    ]
    .map(|prefix| Selector {
        source: prefix,
        destination: prefix,
        upper: Upper::Any,
    })
}

#[cfg(test)]
mod tests;
