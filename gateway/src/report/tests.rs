use super::*;
use crate::plane::{Plane, Recorder};
use ipsec::setkey::{Forwarding, NoNames, compile};

const TUNNEL: &str = "
    add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
    spdadd 10.1.0.0/24 10.2.0.0/24[53] udp -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;";

fn obey(plane: &mut Recorder, text: &str) -> Arc<Snapshot> {
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
    plane.apply(&lowered.commands).unwrap();
    plane.snapshot()
}

#[test]
fn changes_name_what_came_what_went_and_what_is_new_again() {
    let mut plane = Recorder::default();
    let empty = plane.snapshot();
    let first = obey(&mut plane, TUNNEL);
    let told = changes(&empty, &first);
    assert!(
        matches!(told[..], [What::SaAdded(_), What::PolicyAdded(_)]),
        "{told:?}"
    );
    assert_eq!(changes(&first, &first), []);
    // The same keys again are the same association; with others it is another one.
    let again = obey(&mut plane, &format!("flush; spdflush; {TUNNEL}"));
    assert!(matches!(changes(&first, &again)[0], What::SaUpdated(_)));
    let other = TUNNEL.replace("0x0001", "0x1001");
    assert_ne!(other, TUNNEL);
    let second = obey(&mut plane, &format!("flush; spdflush; {other}"));
    let told = changes(&again, &second);
    assert!(
        matches!(told[..2], [What::SaDeleted(_), What::SaAdded(_)]),
        "{told:?}"
    );
}

#[test]
fn status_shows_names_and_never_keys() {
    let mut plane = Recorder::default();
    obey(&mut plane, TUNNEL);
    let questions = [ipsec::command::Command::DumpSas(None)];
    let answers = plane.apply(&questions).unwrap();
    let ipsec::command::Answer::Sas(sas) = &answers[0] else {
        panic!("another answer");
    };
    let json = serde_json::to_string(&association(&sas[0])).unwrap();
    assert!(
        json.contains("\"spi\":\"0x00001001\"") && json.contains("aes-gcm-16"),
        "{json}"
    );
    assert!(!json.contains("00010203"), "{json}");
}

#[test]
fn explain_names_the_association_of_a_flow_that_is_spread() {
    let mut plane = Recorder::default();
    let second = TUNNEL.replace("0x1001", "0x1002");
    let (association, policy) = TUNNEL.split_at(TUNNEL.find("spdadd").unwrap());
    let second = &second[..association.len()];
    let policy = policy.replace("-P out", "-o spread=4 -P out");
    let snapshot = obey(&mut plane, &format!("{association} {second} {policy}"));
    let about = |source_port| Explain {
        source: "10.1.0.2".parse().unwrap(),
        destination: "10.2.0.2".parse().unwrap(),
        protocol: 17,
        source_port,
        destination_port: Some(53),
    };
    let told: Vec<_> = (0..64)
        .map(|port| explain(&snapshot, &about(Some(port))))
        .collect();
    for spi in ["0x00001001", "0x00001002"] {
        assert!(told.iter().any(|text| text.contains(spi)), "{spi}");
    }
    for text in told {
        assert!(
            text.contains("spread over 2 associations; this one takes"),
            "{text}"
        );
        assert_eq!(text.matches("association: ").count(), 1, "{text}");
    }
    let vague = explain(&snapshot, &about(None));
    assert!(vague.contains("depends on both ports"), "{vague}");
}

#[test]
fn explain_names_policy_association_and_outcome() {
    let mut plane = Recorder::default();
    let snapshot = obey(&mut plane, TUNNEL);
    let mut question = Explain {
        source: "10.1.0.2".parse().unwrap(),
        destination: "10.2.0.2".parse().unwrap(),
        protocol: 17,
        source_port: None,
        destination_port: Some(53),
    };
    let text = explain(&snapshot, &question);
    assert!(
        text.contains("it leaves protected") && text.contains("0x00001001"),
        "{text}"
    );
    assert!(text.contains("no `in` policy knows the answers"), "{text}");
    question.destination_port = Some(54);
    assert!(explain(&snapshot, &question).contains("leaves in clear"));
}
