//! What two peers of one file cannot both have.

use super::checked::{ConfiguredPeer, Credential, Mode};
use super::findings::Findings;
use super::gateway_options::GatewayOptions;
use crate::routes::DEFAULT_TUN;
use ipsec::setkey::{Problem, Span};
use std::collections::HashMap;

/// Compares each peer with the first one that has the same. `places` are those of their names.
pub(super) fn check(
    peers: &[Option<ConfiguredPeer>],
    places: &[Span],
    gateway: &GatewayOptions,
    findings: &Findings,
) {
    let named = peers.iter().zip(places);
    let known: Vec<_> = named
        .filter_map(|(peer, at)| Some((peer.as_ref()?, *at)))
        .collect();
    let argument = |name: &str| {
        let mut arguments = gateway.arguments.iter();
        arguments.find_map(|word| word.strip_prefix(name))
    };
    let tun = argument("--tun=").unwrap_or(DEFAULT_TUN);
    let forward = argument("--forward=");
    let (mut devices, mut pairs) = (HashMap::new(), HashMap::new());
    for (peer, at) in &known {
        if let Mode::Route { device, .. } = &peer.mode {
            let first = *devices.entry(device).or_insert(*peer);
            findings.keep(check_device(peer, first, *at));
            if let Some(forward) = forward {
                findings.problem(without_tun(*at, forward));
            }
            if device == tun || is_reserved(device, tun) {
                let message = format!(
                    "the device `{device}` is one of those of policies (`tun` in [gateway]), or the loopback device"
                );
                let advice = "give one of them another name: `interface = \"…\"`";
                findings.problem(Problem::new(*at, message).advise(advice));
            }
        }
        let similar: &mut Vec<&ConfiguredPeer> = pairs.entry(identities(peer)).or_default();
        let first = similar.iter().find(|other| has_identities_of(peer, other));
        findings.keep(first.map_or(Ok(()), |first| check_key(peer, first, *at)));
        similar.push(peer);
    }
}

/// The devices beside that of policies, and the loopback device.
fn is_reserved(device: &str, tun: &str) -> bool {
    let beside = device.strip_prefix(tun);
    device == "lo" || matches!(beside, Some("-in" | "-fwd"))
}

fn without_tun(at: Span, forward: &str) -> Problem {
    let message = format!(
        "`mode = \"route\"`, the default, needs a TUN device, but `forward = \"{forward}\"` works without one"
    );
    Problem::new(at, message)
        .advise("write `mode = \"policy\"`, or remove `forward` from [gateway]")
}

fn check_device(peer: &ConfiguredPeer, first: &ConfiguredPeer, at: Span) -> Result<(), Problem> {
    let name = &first.connection.name;
    if peer.connection.name == *name {
        return Ok(());
    }
    let problem = Problem::new(
        at,
        format!("this peer would have the device of the peer `{name}`"),
    );
    Err(problem.advise("give each peer a device of its own: `interface = \"…\"`"))
}

/// Both identities, in a form that is equal for those that are the same.
fn identities(peer: &ConfiguredPeer) -> (String, String) {
    let form = |text: String| text.trim_end_matches('.').to_lowercase();
    let connection = &peer.connection;
    (
        form(connection.local_id.to_string()),
        form(connection.remote_id.to_string()),
    )
}

fn has_identities_of(peer: &ConfiguredPeer, other: &ConfiguredPeer) -> bool {
    let (one, two) = (&peer.connection, &other.connection);
    (&one.local_id, &one.remote_id) == (&two.local_id, &two.remote_id)
}

/// A peer's key is found by both identities, so for one pair of them there is one.
fn check_key(peer: &ConfiguredPeer, first: &ConfiguredPeer, at: Span) -> Result<(), Problem> {
    match (&peer.credential, &first.credential) {
        (Credential::SharedSecret(one), Credential::SharedSecret(two)) if one != two => {
            let name = &first.connection.name;
            let problem = Problem::new(
                at,
                format!("the peer `{name}` has the same two identities and another pre-shared key"),
            );
            Err(problem.advise(
                "use one key for both, or another `local_id` or `remote_id` in one of them",
            ))
        }
        _ => Ok(()),
    }
}
