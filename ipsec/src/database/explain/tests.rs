//! Policies as they were printed, as they should be and with other mistakes, on both routers of the second study.

use super::*;
use crate::database::Database;
use crate::packet::FragmentKind;
use crate::setkey::{Forwarding, NoNames, compile, policy_statement};
use std::sync::Arc;

const PRINTED_CLIENT: &str = include_str!("../../../tests/setkey/study2-printed-client.setkey");
const PRINTED_SERVER: &str = include_str!("../../../tests/setkey/study2-printed-server.setkey");
const CORRECTED_CLIENT: &str = include_str!("../../../tests/setkey/study2-corrected-client.setkey");
const CORRECTED_SERVER: &str = include_str!("../../../tests/setkey/study2-corrected-server.setkey");

const CLIENT: &str = "10.37.100.40";
const SERVER: &str = "192.168.10.100";
/// The routers: of the client, of the server.
const ROUTERS: [&str; 2] = ["159.10.10.2", "159.10.10.1"];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn snapshot(text: &str) -> Arc<Snapshot> {
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
    let mut database = Database::default();
    database.apply(&lowered.commands, 1000, &mut || 7).unwrap();
    database.snapshot()
}

pub(super) fn packet(source: &str, destination: &str) -> Outline {
    Outline {
        source: address(source),
        destination: address(destination),
        protocol: 6,
        header_len: 20,
        transport_offset: 20,
        total_len: 40,
        ports: Some((40_000, 80)),
        fragment: FragmentKind::Whole,
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
    }
}

fn hop(device: u32, router: Option<&str>) -> Hop {
    let router = router.map(address);
    Hop { device, router }
}

/// A router with `near` on its own network, and `far` behind the other router.
fn router(local: &str, remote: &str, near: &str, far: &str) -> Surroundings {
    Surroundings {
        outer: Some([address(local)].into()),
        own: [address(local)].into(),
        hops: [
            (address(near), hop(1, None)),
            (address(remote), hop(2, None)),
            (address(far), hop(2, Some(remote))),
        ]
        .into(),
        kernel_forwards: true,
    }
}

fn at_client() -> Surroundings {
    router(ROUTERS[0], ROUTERS[1], CLIENT, SERVER)
}

fn at_server() -> Surroundings {
    router(ROUTERS[1], ROUTERS[0], SERVER, CLIENT)
}

/// A packet to the server and one to the client, explained.
fn both_ways(text: &str, host: &Surroundings) -> [Explanation; 2] {
    let snapshot = snapshot(text);
    [(CLIENT, SERVER), (SERVER, CLIENT)]
        .map(|(source, destination)| snapshot.explain(&packet(source, destination), host))
}

fn written(finding: &Finding) -> Vec<String> {
    finding.instead().iter().map(policy_statement).collect()
}

/// The policies of a file, each on one line.
fn statements(text: &str) -> Vec<String> {
    let joined = text.replace("\n\t", " ");
    let lines = joined.lines().filter(|line| line.starts_with("spdadd"));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_printed_listing_has_its_selectors_exchanged_on_either_router_whichever_way_is_asked() {
    let cases = [
        (PRINTED_CLIENT, CORRECTED_CLIENT, at_client()),
        (PRINTED_SERVER, CORRECTED_SERVER, at_server()),
    ];
    for (printed, corrected, host) in cases {
        for explanation in both_ways(printed, &host) {
            let [finding] = &explanation.findings[..] else {
                panic!("{explanation:?}");
            };
            let Finding::SelectorsExchanged { policies, .. } = finding else {
                panic!("{finding:?}");
            };
            let numbers: Vec<_> = policies.iter().map(|(id, _)| *id).collect();
            assert_eq!(numbers, [1, 2]);
            assert_eq!(written(finding), statements(corrected));
            let advice = finding.advice();
            assert!(
                advice.contains("`out` policy 1 and `in` policy 2"),
                "{advice}"
            );
        }
    }
}

#[test]
fn what_happens_under_the_printed_listing_is_what_the_gateway_does() {
    let [to_server, to_client] = both_ways(PRINTED_CLIENT, &at_client());
    assert_eq!(to_server.way, Way::Leaving);
    assert_eq!(to_server.policy, None);
    // The kernel does not forward it: `fwd` wants it protected.
    assert_eq!(to_server.outcome, Outcome::NotForwarded);
    assert_eq!(to_client.way, Way::Arriving);
    assert_eq!(to_client.outcome, Outcome::Protected);
    // A packet of the host's own meets no `fwd` policy.
    let mut host = at_client();
    host.own.insert(address(CLIENT));
    let [to_server, _] = both_ways(PRINTED_CLIENT, &host);
    assert_eq!(to_server.outcome, Outcome::Dropped(Dropped::NoPolicy));
}

#[test]
fn a_correct_file_is_found_right_on_either_router_and_arriving_traffic_is_expected() {
    let cases = [
        (CORRECTED_CLIENT, at_client(), 0, 1),
        (CORRECTED_SERVER, at_server(), 1, 0),
    ];
    for (text, host, leaving, arriving) in cases {
        let both = both_ways(text, &host);
        let (leaves, arrives) = (&both[leaving], &both[arriving]);
        assert_eq!((leaves.way, arrives.way), (Way::Leaving, Way::Arriving));
        assert_eq!(leaves.outcome, Outcome::Protected);
        assert_eq!(arrives.outcome, Outcome::AcceptedProtected);
        assert_eq!((leaves.path.len(), arrives.path.len()), (1, 1));
        assert_ne!(leaves.path, arrives.path);
        let number = |explanation: &Explanation| explanation.policy.as_ref().map(|(id, _)| *id);
        assert_eq!((number(leaves), number(arrives)), (Some(1), Some(2)));
        assert_eq!((&leaves.findings, &arrives.findings), (&vec![], &vec![]));
    }
}

#[test]
fn without_facts_about_the_host_nothing_is_called_exchanged() {
    let offline = Surroundings::default();
    let [leaves, arrives] = both_ways(CORRECTED_CLIENT, &offline);
    assert_eq!(leaves.findings, []);
    assert_eq!(leaves.outcome, Outcome::Protected);
    assert_eq!(arrives.outcome, Outcome::AcceptedProtected);
    let [Finding::OnlyInbound { policy }] = &arrives.findings[..] else {
        panic!("{arrives:?}");
    };
    assert_eq!(policy.0, 2);
}

#[test]
fn the_other_gateways_file_has_its_directions_exchanged() {
    for (text, host) in [
        (CORRECTED_SERVER, at_client()),
        (CORRECTED_CLIENT, at_server()),
    ] {
        for explanation in both_ways(text, &host) {
            let [finding @ Finding::DirectionsExchanged { policies }] = &explanation.findings[..]
            else {
                panic!("{explanation:?}");
            };
            assert_eq!(policies.len(), 2);
            let instead = written(finding);
            let right = if text == CORRECTED_SERVER {
                CORRECTED_CLIENT
            } else {
                CORRECTED_SERVER
            };
            let mut right = statements(right);
            right.reverse();
            assert_eq!(instead, right);
        }
    }
}

#[test]
fn a_tunnel_with_its_ends_exchanged_is_named_with_both_policies() {
    let text = CORRECTED_CLIENT
        .replace("tunnel/159.10.10.2-159.10.10.1", "tunnel/ENDS")
        .replace(
            "tunnel/159.10.10.1-159.10.10.2",
            "tunnel/159.10.10.2-159.10.10.1",
        )
        .replace("tunnel/ENDS", "tunnel/159.10.10.1-159.10.10.2");
    let [to_server, _] = both_ways(&text, &at_client());
    let [out, back] = &to_server.findings[..] else {
        panic!("{to_server:?}");
    };
    let written = [written(out), written(back)].concat();
    assert_eq!(written, statements(CORRECTED_CLIENT));
    for finding in [out, back] {
        let advice = finding.advice();
        assert!(
            advice.contains("ends of the tunnel") && advice.contains("at 159.10.10.2"),
            "{advice}"
        );
    }
    assert_eq!(to_server.outcome, Outcome::Dropped(Dropped::SendFailed));
}

#[test]
fn a_tunnel_that_starts_at_another_hosts_address_does_not_leave_protected() {
    let text = CORRECTED_CLIENT.replace("159.10.10.2", "192.0.2.9");
    let [to_server, to_client] = both_ways(&text, &at_client());
    assert_eq!(to_server.outcome, Outcome::Dropped(Dropped::SendFailed));
    let advice: Vec<_> = to_server.findings.iter().map(Finding::advice).collect();
    assert!(
        advice[0].starts_with("192.0.2.9 is not an address of this host"),
        "{advice:?}"
    );
    assert!(
        advice[0].contains("`out` policy 1 starts there"),
        "{advice:?}"
    );
    let inbound = to_client.findings[0].advice();
    assert!(inbound.contains("`in` policy 2 ends there"), "{inbound}");
    // AH leaves nevertheless, by raw sockets that take any source.
    let ah = "
        add 192.0.2.9 159.10.10.1 ah 0x750 -m tunnel -A hmac-sha1 0x0001020304050607080910111213141516171819;
        spdadd 10.37.100.40 192.168.10.100 any -P out ipsec ah/tunnel/192.0.2.9-159.10.10.1/require;
        spdadd 192.168.10.100 10.37.100.40 any -P in none;";
    let [by_ah, _] = both_ways(ah, &at_client());
    assert_eq!(by_ah.outcome, Outcome::Protected);
    assert_eq!(by_ah.findings[0].name(), "not-of-this-host");
    // Where nothing is known of the host, nothing is said about its addresses.
    let [offline, _] = both_ways(&text, &Surroundings::default());
    assert_eq!(
        (offline.outcome, offline.findings),
        (Outcome::Protected, vec![])
    );
}

#[test]
fn traffic_between_two_spokes_is_right_at_their_hub() {
    let text = "
        add 192.0.2.2 192.0.2.1 esp 0x1001 -m tunnel -E null -A hmac-sha1 0x0001020304050607080910111213141516171819;
        add 192.0.2.1 192.0.2.3 esp 0x1002 -m tunnel -E null -A hmac-sha1 0x0001020304050607080910111213141516171819;
        spdadd 10.2.0.0/16 10.3.0.0/16 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.3/require;
        spdadd 10.2.0.0/16 10.3.0.0/16 any -P in ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;
        spdadd 10.3.0.0/16 10.2.0.0/16 any -P in ipsec esp/tunnel/192.0.2.3-192.0.2.1/require;";
    let behind = |router: &str| hop(2, Some(router));
    let host = Surroundings {
        outer: Some([address("192.0.2.1")].into()),
        own: [address("192.0.2.1")].into(),
        hops: [
            (address("192.0.2.2"), hop(2, None)),
            (address("192.0.2.3"), hop(2, None)),
            (address("10.2.0.5"), behind("192.0.2.2")),
            (address("10.3.0.5"), behind("192.0.2.3")),
        ]
        .into(),
        kernel_forwards: true,
    };
    let explanation = snapshot(text).explain(&packet("10.2.0.5", "10.3.0.5"), &host);
    assert_eq!(explanation.way, Way::Unknown);
    assert_eq!(explanation.outcome, Outcome::Protected);
    assert_eq!(explanation.findings, []);
}

#[test]
fn a_selector_that_has_both_ways_is_no_mistake() {
    let text = "spdadd 0.0.0.0/0 0.0.0.0/0 any -P in ipsec esp/transport//require;";
    let mut host = at_client();
    host.own.insert(address(CLIENT));
    let [to_server, _] = both_ways(text, &host);
    assert_eq!(to_server.way, Way::Leaving);
    assert_eq!(to_server.findings, []);
}

#[test]
fn what_an_inbound_policy_expects_is_said_for_each_action_and_level() {
    let cases = [
        ("none", Outcome::AcceptedInClear, 0),
        ("discard", Outcome::Dropped(Dropped::PolicyDiscard), 0),
        (
            "ipsec esp/tunnel/159.10.10.1-159.10.10.2/use",
            Outcome::AcceptedEitherWay,
            0,
        ),
        (
            "ipsec esp/tunnel/159.10.10.1-159.10.10.2/require",
            Outcome::AcceptedProtected,
            1,
        ),
    ];
    for (action, outcome, findings) in cases {
        let text = format!("spdadd {SERVER} {CLIENT} any -P in {action};");
        let mut host = at_client();
        host.own.insert(address(CLIENT));
        let [_, to_client] = both_ways(&text, &host);
        assert_eq!(to_client.outcome, outcome, "{action}");
        assert_eq!(to_client.findings.len(), findings, "{action}");
        assert!(
            to_client
                .findings
                .iter()
                .all(|finding| *finding == Finding::NoAssociation)
        );
    }
}

#[test]
fn a_forwarded_packet_that_fwd_wants_protected_does_not_reach_its_tunnel() {
    let text = format!(
        "{CORRECTED_CLIENT} spdadd 10.37.100.0/24 0.0.0.0/0 any -P fwd ipsec \
         esp/tunnel/159.10.10.1-159.10.10.2/require;"
    );
    let [to_server, _] = both_ways(&text, &at_client());
    assert_eq!(to_server.outcome, Outcome::NotForwarded);
    // A gateway that takes packets before the kernel does is not stopped by it.
    let mut host = at_client();
    host.kernel_forwards = false;
    let [to_server, _] = both_ways(&text, &host);
    assert_eq!(to_server.outcome, Outcome::Protected);
}

/// A policy of a file, as a peer of IKE would have negotiated it.
fn negotiated(text: &str) -> Arc<Snapshot> {
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
    let of_peer = |command: crate::command::Command| match command {
        crate::command::Command::AddPolicy(policy) => {
            let is_negotiated = true;
            let policy = Policy {
                is_negotiated,
                ..(*policy).clone()
            };
            crate::command::Command::AddPolicy(Arc::new(policy))
        }
        other => other,
    };
    let commands: Vec<_> = lowered.commands.into_iter().map(of_peer).collect();
    let mut database = Database::default();
    database.apply(&commands, 1000, &mut || 7).unwrap();
    database.snapshot()
}

#[test]
fn policies_that_were_negotiated_are_in_no_file_that_could_be_corrected() {
    let snapshot = negotiated(PRINTED_CLIENT);
    for host in [at_client(), Surroundings::default()] {
        for (source, destination) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
            let explanation = snapshot.explain(&packet(source, destination), &host);
            assert_eq!(explanation.findings, []);
        }
    }
}
