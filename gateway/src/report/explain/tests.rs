use super::*;
use crate::plane::Recorder;
use crate::report::tests::{TUNNEL, apply};
use ipsec::policy::Direction;
use std::sync::Arc;

/// What is printed where nothing is known of the host.
fn said(snapshot: &Snapshot, question: &Explain) -> String {
    explain(
        snapshot,
        question,
        &Surroundings::default(),
        &Directions::new(),
    )
    .text()
}

#[test]
fn explain_names_the_association_of_a_flow_that_is_spread() {
    let mut plane = Recorder::default();
    let second = TUNNEL.replace("0x1001", "0x1002");
    let (association, policy) = TUNNEL.split_at(TUNNEL.find("spdadd").unwrap());
    let second = &second[..association.len()];
    let policy = policy.replace("-P out", "-o spread=4 -P out");
    let snapshot = apply(&mut plane, &format!("{association} {second} {policy}"));
    let about = |source_port| Explain {
        source: "10.1.0.2".parse().unwrap(),
        destination: "10.2.0.2".parse().unwrap(),
        protocol: 17,
        source_port,
        destination_port: Some(53),
    };
    let shown: Vec<_> = (0..64)
        .map(|port| said(&snapshot, &about(Some(port))))
        .collect();
    for spi in ["0x00001001", "0x00001002"] {
        assert!(shown.iter().any(|text| text.contains(spi)), "{spi}");
    }
    for text in shown {
        assert!(
            text.contains("spread over 2 associations; this one uses"),
            "{text}"
        );
        assert_eq!(text.matches("association: ").count(), 1, "{text}");
    }
    let vague = said(&snapshot, &about(None));
    assert!(vague.contains("depends on both ports"), "{vague}");
}

#[test]
fn explain_names_policy_association_and_outcome() {
    let mut plane = Recorder::default();
    let snapshot = apply(&mut plane, TUNNEL);
    let mut question = Explain {
        source: "10.1.0.2".parse().unwrap(),
        destination: "10.2.0.2".parse().unwrap(),
        protocol: 17,
        source_port: None,
        destination_port: Some(53),
    };
    let text = said(&snapshot, &question);
    assert!(
        text.contains("sent protected") && text.contains("0x00001001"),
        "{text}"
    );
    assert!(
        text.contains("no `in` policy matches the answers"),
        "{text}"
    );
    assert!(
        text.starts_with("policy 1: 10.1.0.0/24[any] 10.2.0.0/24[53] udp out ipsec"),
        "{text}"
    );
    question.destination_port = Some(54);
    let text = said(&snapshot, &question);
    assert!(text.contains("no policy matches this packet"), "{text}");
    assert!(
        text.contains("sent unencrypted via normal routing"),
        "{text}"
    );
    assert!(!text.contains("association: "), "{text}");
}

#[test]
fn explain_distinguishes_what_is_dropped_from_what_is_let_through() {
    let question = Explain {
        source: "10.1.0.2".parse().unwrap(),
        destination: "10.2.0.2".parse().unwrap(),
        protocol: 17,
        source_port: None,
        destination_port: Some(53),
    };
    let with = |policy: &str| {
        let mut plane = Recorder::default();
        let snapshot = apply(
            &mut plane,
            &format!("spdadd 10.1.0.0/24 10.2.0.0/24 any -P out {policy};"),
        );
        said(&snapshot, &question)
    };
    let unprotected = ["sent protected", "association: "];
    let cases = [
        ("discard", " out discard\n", "dropped (policy-discard)"),
        ("none", " out none\n", "sent unencrypted\n"),
        (
            "ipsec esp/tunnel/192.0.2.1-192.0.2.2/require",
            " out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require\n",
            "dropped (acquire)",
        ),
    ];
    for (policy, named, outcome) in cases {
        let text = with(policy);
        assert!(
            text.contains(named) && text.contains(outcome),
            "{policy}: {text}"
        );
        assert!(
            !unprotected.iter().any(|words| text.contains(words)),
            "{policy}: {text}"
        );
    }
}

/// The client's router of the second study: the client is on its own network, the server behind the other router.
fn router() -> Surroundings {
    let address = |text: &str| -> std::net::IpAddr { text.parse().unwrap() };
    let hop = |device, router: Option<&str>| ipsec::database::Hop {
        device,
        router: router.map(address),
    };
    Surroundings {
        outer: Some([address("192.0.2.1")].into()),
        own: [address("192.0.2.1")].into(),
        hops: [
            (address("10.1.0.9"), hop(1, None)),
            (address("192.0.2.2"), hop(2, None)),
            (address("10.2.0.9"), hop(2, Some("192.0.2.2"))),
        ]
        .into(),
        kernel_forwards: true,
    }
}

/// Both associations, and the policies of this router with these selectors.
fn listing(out: &str, back: &str, near: &str) -> Arc<Snapshot> {
    let key = "-E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f101112";
    let text = format!(
        "add {near} 192.0.2.2 esp 0x750 -m tunnel -r 64 {key}13;
         add 192.0.2.2 {near} esp 0x850 -m tunnel -r 64 {key}14;
         spdadd {out} any -P out ipsec esp/tunnel/{near}-192.0.2.2/require;
         spdadd {back} any -P in ipsec esp/tunnel/192.0.2.2-{near}/require;"
    );
    apply(&mut Recorder::default(), &text)
}

const THERE: &str = "10.1.0.9 10.2.0.9";
const BACK: &str = "10.2.0.9 10.1.0.9";

fn question((source, destination): (&str, &str)) -> Explain {
    Explain {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol: 17,
        source_port: None,
        destination_port: None,
    }
}

/// The answer on a router whose own plane carries.
fn on_router(snapshot: &Snapshot, way: (&str, &str)) -> Explained {
    explain(snapshot, &question(way), &router(), &Directions::new())
}

#[test]
fn exchanged_selectors_are_printed_with_what_to_write_instead() {
    let snapshot = listing(BACK, THERE, "192.0.2.1");
    for way in [("10.1.0.9", "10.2.0.9"), ("10.2.0.9", "10.1.0.9")] {
        let explained = on_router(&snapshot, way);
        let text = explained.text();
        for words in [
            "hint: the selectors of `out` policy 1 and `in` policy 2 have source and destination exchanged",
            "10.1.0.9 is on this side and 10.2.0.9 on the peer's",
            "the tunnel's ends are right\n",
            "  instead of  spdadd 10.2.0.9 10.1.0.9 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;\n",
            "  write       spdadd 10.1.0.9 10.2.0.9 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;\n",
            "  write       spdadd 10.2.0.9 10.1.0.9 any -P in ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;\n",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let json = serde_json::to_value(&explained).unwrap();
        let finding = &json["findings"][0];
        assert_eq!(finding["finding"], "selectors-exchanged");
        assert_eq!(finding["policies"], serde_json::json!([1, 2]));
        assert_eq!(
            finding["corrections"][0]["write"],
            "spdadd 10.1.0.9 10.2.0.9 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;"
        );
    }
}

#[test]
fn traffic_that_arrives_under_a_correct_file_is_expected_and_not_called_exchanged() {
    let snapshot = listing(THERE, BACK, "192.0.2.1");
    let explained = on_router(&snapshot, ("10.2.0.9", "10.1.0.9"));
    assert_eq!(
        explained.text(),
        "policy 2: 10.2.0.9/32[any] 10.1.0.9/32[any] any in ipsec esp/tunnel/192.0.2.2-192.0.2.1/require\n\
         association: 192.0.2.2 192.0.2.1 esp 0x00000850 aes-gcm-16\n\
         expected from the peer, protected; dropped if it arrives unencrypted\n"
    );
    assert_eq!(
        (&*explained.way, &*explained.outcome),
        ("arriving", "accepted-protected")
    );
    let leaves = on_router(&snapshot, ("10.1.0.9", "10.2.0.9"));
    assert_eq!((&*leaves.outcome, &*leaves.way), ("protected", "leaving"));
    assert_eq!(leaves.findings, []);
}

#[test]
fn a_tunnel_that_starts_elsewhere_is_not_said_to_leave_protected() {
    let snapshot = listing(THERE, BACK, "192.0.2.9");
    let explained = on_router(&snapshot, ("10.1.0.9", "10.2.0.9"));
    let text = explained.text();
    assert!(
        text.contains("hint: 192.0.2.9 is not an address of this host"),
        "{text}"
    );
    assert!(!text.contains("sent protected"), "{text}");
    let told = (&*explained.outcome, explained.reason.as_deref());
    assert_eq!(told, ("dropped", Some("send-failed")));
    // A gateway that cannot list its addresses says nothing about them.
    let text = said(&snapshot, &question(("10.1.0.9", "10.2.0.9")));
    assert!(text.contains("sent protected"), "{text}");
}

#[test]
fn what_options_make_of_an_association_is_shown_with_it() {
    let mut plane = Recorder::default();
    let options = "-o aggfrag -o aggfrag-size=1400 -o cpu=2";
    let text = TUNNEL.replace("-r 64", &format!("-r 64 {options}"));
    let text = text.replace("esp-udp", "esp").replace("[53] udp", " any");
    let snapshot = apply(&mut plane, &text);
    let id = snapshot.sas().next().unwrap().config.id;
    let outbound = Directions::from([(id, Direction::Out)]);
    let asked = question(("10.1.0.9", "10.2.0.9"));
    let explained = explain(&snapshot, &asked, &Surroundings::default(), &outbound);
    let shown = "esp 0x00001001 aes-gcm-16\n  direction out · processor 2 · AGGFRAG (IPTFS) by packets of 1400 bytes; ";
    assert!(explained.text().contains(shown), "{}", explained.text());
    let json = serde_json::to_value(&explained).unwrap();
    let sa = &json["associations"][0];
    assert_eq!((&sa["direction"], &sa["cpu"]), (&"out".into(), &2.into()));
    assert_eq!(sa["aggfrag"]["size"], 1400);
    let text = said(&snapshot, &asked);
    assert!(
        text.contains("\n  processor 2 · ") && !text.contains("direction"),
        "{text}"
    );
}

#[test]
fn the_answer_survives_the_control_socket() {
    let snapshot = listing(BACK, THERE, "192.0.2.1");
    let explained = on_router(&snapshot, ("10.1.0.9", "10.2.0.9"));
    let line = serde_json::to_string(&explained).unwrap();
    let back: Explained = serde_json::from_str(&line).unwrap();
    assert_eq!(back, explained);
}
