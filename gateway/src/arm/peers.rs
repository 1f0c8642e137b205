//! The networks of a configuration's peers as policies in setkey's language: what is armed for them, and kept without a
//! key.

use crate::config::{Config, ConfiguredPeer, Mode};
use crate::failure::Failure;
use crate::run::network_selectors;
use ipsec::policy::{Direction, Prefix, Selector, Upper};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Outer addresses that no peer has: what is armed has no association.
const NO_ENDS: &str = "0.0.0.0-0.0.0.0";

/// One statement for each pair of networks and each direction, and which peers these leave out, and why. Peers to which
/// nothing leads but the administrator's own routes have none.
pub(super) fn statements(config: &Config) -> Result<(String, Vec<String>), Failure> {
    let (mut text, mut left_out) = (String::new(), Vec::new());
    for peer in config.peers.iter().filter(|peer| closes_networks(peer)) {
        let name = &peer.connection.name;
        for child in &peer.connection.children {
            let selectors = network_selectors(child)
                .map_err(|why| Failure::new(format!("peer {name}: {why}")))?;
            if selectors.iter().any(|(selector, _)| is_unknown(selector)) {
                left_out.push(format!(
                    "peer {name}: what the two gateways themselves send each other is not armed, because no name is \
                     looked up then: write addresses in `local` and `remote`"
                ));
                break;
            }
            for (selector, direction) in selectors {
                write_statement(&mut text, peer, &selector, direction);
            }
        }
    }
    Ok((text, left_out))
}

/// Whether a gateway drops the peer's networks elsewhere: not with `routes = "none"`.
fn closes_networks(peer: &ConfiguredPeer) -> bool {
    let only_by_routes = matches!(
        peer.mode,
        Mode::Route {
            by_networks: false,
            ..
        }
    );
    !only_by_routes
}

/// Whether a network is the address of a name that was not looked up.
fn is_unknown(selector: &Selector) -> bool {
    let is_unspecified = |prefix: &Prefix| {
        let whole = if prefix.address.is_ipv4() { 32 } else { 128 };
        prefix.len == whole
            && [
                IpAddr::from(Ipv4Addr::UNSPECIFIED),
                IpAddr::from(Ipv6Addr::UNSPECIFIED),
            ]
            .contains(&prefix.address)
    };
    is_unspecified(&selector.source) || is_unspecified(&selector.destination)
}

fn write_statement(
    text: &mut String,
    peer: &ConfiguredPeer,
    selector: &Selector,
    direction: Direction,
) {
    let (source_port, destination_port) = selector.upper.ports();
    let way = if direction == Direction::Out {
        "out"
    } else {
        "in"
    };
    let protection = match peer.mode {
        Mode::Transport => "esp/transport//require".to_owned(),
        Mode::Route { .. } | Mode::Policy => format!("esp/tunnel/{NO_ENDS}/require"),
    };
    // Two peers, or a peer and a file, may have the same networks. Writing into a text cannot fail.
    let _ = writeln!(
        text,
        "spdupdate {} {} {} -P {way} ipsec {protection};",
        range(selector.source, source_port),
        range(selector.destination, destination_port),
        upper(selector.upper),
    );
}

fn range(prefix: Prefix, port: Option<u16>) -> String {
    let port = port.map_or(String::new(), |port| format!("[{port}]"));
    format!("{}/{}{port}", prefix.address, prefix.len)
}

/// Types and codes of ICMP are left out: more is closed than with them.
fn upper(upper: Upper) -> String {
    match upper {
        Upper::Any | Upper::Ports { .. } => "any".to_owned(),
        Upper::Protocol { number, .. } | Upper::Icmp { number, .. } => number.to_string(),
    }
}
