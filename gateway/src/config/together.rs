//! What two peers of one file cannot both have.

use super::checked::{Credential, Mode, Peer};
use super::findings::Findings;
use super::gateway_options::GatewayOptions;
use ikev2::identity::Pattern;
use ipsec::setkey::{Problem, Span};

/// Compares each peer with those before it. `places` are those of their names.
pub(super) fn check(
    peers: &[Option<Peer>],
    places: &[Span],
    gateway: &GatewayOptions,
    findings: &Findings,
) {
    let named = peers.iter().zip(places);
    let known: Vec<_> = named
        .filter_map(|(peer, at)| Some((peer.as_ref()?, *at)))
        .collect();
    for (index, (peer, at)) in known.iter().enumerate() {
        for (other, _) in &known[..index] {
            findings.keep(check_pair(peer, other, *at));
        }
        if let Mode::Route { device } = &peer.mode
            && gateway.arguments.contains(&format!("--tun={device}"))
        {
            let problem = Problem::new(
                *at,
                format!("the device `{device}` is also `tun` in [gateway]"),
            );
            findings.problem(problem.advise("give one of them another name: `interface = \"…\"`"));
        }
    }
}

fn check_pair(peer: &Peer, other: &Peer, at: Span) -> Result<(), Problem> {
    let name = &other.connection.name;
    if let (Mode::Route { device }, Mode::Route { device: taken }) = (&peer.mode, &other.mode)
        && device == taken
    {
        let problem = Problem::new(
            at,
            format!("the device `{device}` belongs to the peer `{name}` already"),
        );
        return Err(problem.advise("give each peer a device of its own: `interface = \"…\"`"));
    }
    // A peer's key is found by both identities, so for one pair of them there is one.
    let same_identities = matches!(
        (&peer.connection.remote_id, &other.connection.remote_id),
        (Pattern::Exactly(one), Pattern::Exactly(two)) if one == two
    ) && peer.connection.local_id == other.connection.local_id;
    match (&peer.credential, &other.credential) {
        (Credential::SharedSecret(one), Credential::SharedSecret(two))
            if same_identities && one != two =>
        {
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
