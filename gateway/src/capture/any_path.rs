//! Policies for a file that has none: `open` then accepts what its associations open, as a reader of captures expects.

use dataplane::outbound::MAX_NESTED_SAS;
use ipsec::command::Command;
use ipsec::database::Snapshot;
use ipsec::policy::{Action, Direction, Level, Policy, Prefix, Selector, Template, Upper};
use ipsec::sa::{Mode, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Whether a file has no policy at all. One alone makes `open` judge as the gateway does.
pub(super) fn has_no_policies(snapshot: &Snapshot) -> bool {
    let mut directions = [Direction::In, Direction::Fwd, Direction::Out].into_iter();
    directions.all(|direction| snapshot.policies(direction).next().is_none())
}

/// Policies that accept every packet, whichever associations it came through.
pub(super) fn policies() -> Vec<Command> {
    let families = [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    let both = |address| {
        [Direction::In, Direction::Fwd]
            .map(|direction| policy(Prefix { address, len: 0 }, direction))
    };
    let all = families.into_iter().flat_map(both);
    all.map(|policy| Command::AddPolicy(Arc::new(policy)))
        .collect()
}

fn policy(everywhere: Prefix, direction: Direction) -> Policy {
    Policy {
        selector: Selector {
            source: everywhere,
            destination: everywhere,
            upper: Upper::Any,
        },
        direction,
        action: Action::Protect(templates()),
        spread: 1,
        priority: 0,
        is_negotiated: false,
        device: None,
    }
}

/// Each kind of association for each layer that a packet can have; all of them may be missing.
fn templates() -> Vec<Template> {
    let protocols = [Protocol::Esp, Protocol::Ah].into_iter();
    let kinds =
        protocols.flat_map(|protocol| [Mode::Tunnel, Mode::Transport].map(|mode| (protocol, mode)));
    let of_one_layer = kinds.map(|(protocol, mode)| Template {
        protocol,
        mode,
        endpoints: None,
        level: Level::Use,
    });
    let of_one_layer: Vec<_> = of_one_layer.collect();
    // What is compressed is inside all others.
    let compressed = [Mode::Tunnel, Mode::Transport].map(|mode| Template {
        protocol: Protocol::IpComp,
        mode,
        endpoints: None,
        level: Level::Use,
    });
    let mut all = compressed.to_vec();
    all.extend(of_one_layer.repeat(MAX_NESTED_SAS));
    all
}
