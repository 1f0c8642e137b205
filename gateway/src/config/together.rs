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
    let mut arguments = gateway.arguments.iter();
    let tun = arguments
        .find_map(|word| word.strip_prefix("--tun="))
        .unwrap_or(DEFAULT_TUN);
    let (mut devices, mut pairs) = (HashMap::new(), HashMap::new());
    for (peer, at) in &known {
        if let Mode::Route { device } = &peer.mode {
            let first = *devices.entry(device).or_insert(*peer);
            findings.keep(check_device(peer, first, *at));
            if device == tun {
                let message =
                    format!("the device `{device}` is that of policies (`tun` in [gateway])");
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
