//! The kinds of policies that a device has in the kernel.

use ipsec::policy::{Action, Direction, Level, Policy, Prefix, Selector, Template, Upper};
use ipsec::sa::{Mode, Protocol, Reqid, SaConfig};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Policies of one device: the first of these goes first, so none is hidden by one that closes the rest.
pub(super) const FIRST_PRIORITY: i64 = 1_000;
const LAST_PRIORITY: i64 = -100_000;

/// The policy that an association of a device satisfies.
pub(super) fn opened(config: &SaConfig, selector: Selector, direction: Direction) -> Policy {
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
pub(super) fn narrowness(selector: &Selector) -> i64 {
    let prefixes = i64::from(selector.source.len) + i64::from(selector.destination.len);
    2 * prefixes + i64::from(selector.upper != Upper::Any)
}

/// A policy that leads into a device, for packets that none of the device's associations was negotiated for.
pub(super) fn closed(policy: &Policy) -> Policy {
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

/// The last policies of a device into which none leads, for packets that none of its associations was negotiated for:
/// an acquire.
pub(super) fn acquiring(device: &Arc<str>) -> Vec<Arc<Policy>> {
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
pub(super) fn no_ends(near: Option<IpAddr>, like: IpAddr) -> (IpAddr, IpAddr) {
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
pub(super) fn everything() -> [Selector; 2] {
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
