//! Handshakes that fail, and what both sides then know.

use super::*;
use crate::message::payload::Protocol;

/// Lets a failing pair exchange messages; neither end is up afterwards.
fn fail(pair: &mut Pair, left: Connection, right: Connection) {
    pair.configure(left, right);
    // A refusal in IKE_SA_INIT is accepted when nothing better has come.
    let until = pair.now + Duration::from_millis(700);
    pair.run_until(until, &mut Some);
    assert!(!pair.left.is_up() && !pair.right.is_up());
    assert!(pair.left.installed.is_empty() && pair.right.installed.is_empty());
    assert_eq!(pair.left.ups() + pair.right.ups(), 0);
}

#[test]
fn another_secret_is_refused_and_the_responder_logs_why() {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"Secret");
    fail(&mut pair, left, right);
    let story = pair.right.story(pair.now);
    assert!(
        story.contains("the shared secrets of both sides differ"),
        "{story}"
    );
    let story = pair.left.story(pair.now);
    assert!(story.contains("AUTHENTICATION_FAILED"), "{story}");
}

#[test]
fn an_unknown_initiator_is_refused_and_named() {
    let mut pair = Pair::new();
    let (mut left, right) = by_secret(&mut pair, b"secret", b"secret");
    left.local_id = "other.example.org".parse().unwrap();
    fail(&mut pair, left, right);
    let refused = pair.right.events.iter().find_map(|event| match event {
        Event::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let refused = refused.expect("an event");
    assert!(
        refused.contains("no connection fits the peer other.example.org"),
        "{refused}"
    );
    assert!(
        refused.contains("it is for the peer left.example.org"),
        "{refused}"
    );
}

#[test]
fn a_responder_of_another_name_is_refused_and_gets_a_notification() {
    let mut pair = Pair::new();
    let (left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    let left = Connection {
        remote_id: "*.example.net".parse().unwrap(),
        ..left
    };
    right.dpd = None;
    pair.configure(left, right);
    pair.settle();
    assert!(!pair.left.is_up() && !pair.right.is_up());
    let story = pair.left.story(pair.now);
    let expected = "the peer says that it is right.example.org, but *.example.net is expected";
    assert!(story.contains(expected), "{story}");
    let story = pair.right.story(pair.now);
    assert!(story.contains("does not accept the proof"), "{story}");
}

#[test]
fn without_a_common_proposal_both_sides_report_the_difference() {
    let mut pair = Pair::new();
    let (mut left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    left.ike = vec![Offer::parse("aes128gcm16-prfsha256-x25519", Protocol::IKE).unwrap()];
    right.ike = vec![Offer::parse("aes256gcm16-prfsha256-x25519", Protocol::IKE).unwrap()];
    fail(&mut pair, left, right);
    let story = pair.right.story(pair.now);
    let expected = "encryption: the peer offers aes128gcm16, we offer aes256gcm16";
    assert!(story.contains(expected), "{story}");
    let story = pair.left.story(pair.now);
    assert!(
        story.contains("NO_PROPOSAL_CHOSEN; it was offered aes128gcm16"),
        "{story}"
    );
    assert_eq!(pair.right.secrets.held(), (0, 0));
}

#[test]
fn a_forged_refusal_does_not_win_against_the_answer() {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    pair.configure(left, right);
    let request = pair.left.outbox.front().expect("a request").clone();
    let (header, _) = crate::message::Header::parse(&request.bytes).unwrap();
    let refusal = crate::message::payload::NotifyType::NoProposalChosen;
    let mut forged = crate::exchange::init::responder::stateless(&header, refusal, &[]);
    let (from, to, bytes) = (request.to, request.from, &mut forged);
    pair.left
        .give(Input::Datagram { from, to, bytes }, pair.now);
    pair.settle();
    pair.assert_agreed(1);
}

#[test]
fn a_certificate_of_another_name_is_refused_though_its_ca_is_trusted() {
    let mut pair = Pair::new();
    let (mut left, mut right) = by_certificate(&mut pair, "ecdsa", "rsa");
    left.local_id = "ed25519.example.org".parse().unwrap();
    right.remote_id = "ed25519.example.org".parse().unwrap();
    fail(&mut pair, left, right);
    let story = pair.right.story(pair.now);
    assert!(
        story.contains("it does not name ed25519.example.org"),
        "{story}"
    );
}

#[test]
fn an_untrusted_or_expired_certificate_is_refused_by_its_check() {
    let mut pair = Pair::new();
    let (left, right) = by_certificate(&mut pair, "ecdsa", "rsa");
    let mut trust = Trust::default();
    trust.add_roots(&bytes(&vectors()["other_ca"])).unwrap();
    pair.right.verifier.add_trust(TRUST, trust);
    fail(&mut pair, left, right);
    let story = pair.right.story(pair.now);
    assert!(story.contains("neither trusted here nor among"), "{story}");

    let mut pair = Pair::new();
    let (left, right) = by_certificate(&mut pair, "ecdsa", "rsa");
    pair.right.unix_time = 4_000_000_000;
    fail(&mut pair, left, right);
    let story = pair.right.story(pair.now);
    assert!(story.contains("it has expired"), "{story}");
}

#[test]
fn a_secret_where_a_certificate_is_wanted_is_refused() {
    let mut pair = Pair::new();
    let (left, _) = by_secret(&mut pair, b"secret", b"secret");
    let (_, mut right) = by_certificate(&mut pair, "ecdsa", "rsa");
    right.remote_id = "left.example.org".parse().unwrap();
    right.local_id = "right.example.org".parse().unwrap();
    fail(&mut pair, left, right);
    let reasons: Vec<_> = pair.right.events.iter().map(ToString::to_string).collect();
    assert!(
        reasons.join("\n").contains("it wants a certificate"),
        "{reasons:?}"
    );
}

#[test]
fn the_ike_sa_comes_up_without_a_child_that_is_refused() {
    let mut pair = Pair::new();
    let (left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    right.children[0].remote = vec![network("10.3.0.0-10.3.0.255")];
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(0);
    let story = pair.left.story(pair.now);
    assert!(
        story.contains("the peer does not want this traffic"),
        "{story}"
    );
    let story = pair.right.story(pair.now);
    assert!(story.contains("net: no common traffic"), "{story}");
}

#[test]
fn a_child_that_the_responder_cannot_install_is_not_agreed_on() {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    pair.right.refuses_children = true;
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(0);
    assert!(pair.left.story(pair.now).contains("TEMPORARY_FAILURE"));
}

#[test]
fn a_silent_peer_is_tried_again_for_ever_with_growing_pauses_and_at_each_address() {
    let mut pair = Pair::new();
    let (mut left, right) = by_secret(&mut pair, b"secret", b"secret");
    left.remote = vec![
        "203.0.113.1".parse().unwrap(),
        "203.0.113.2".parse().unwrap(),
    ];
    pair.configure(left, right);
    let mut begun = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let until = pair.now + Duration::from_secs(3600);
    pair.run_until(until, &mut |packet| {
        if seen.insert(packet.bytes[..8].to_vec()) {
            begun.push(packet.to.ip().to_string());
        }
        None
    });
    assert!(begun.len() > 20, "{}", begun.len());
    for (index, address) in begun.iter().enumerate() {
        assert_eq!(*address, format!("203.0.113.{}", index % 2 + 1));
    }
    let report = &pair.left.reports(pair.now)[0];
    assert!(!matches!(report.state, PeerState::Up));
    assert!(
        pair.left
            .story(pair.now)
            .contains("the peer does not answer")
    );
    // Of all these attempts nothing is left but the one in progress.
    assert!(pair.left.secrets.held().0 <= 1 && pair.left.secrets.held().1 == 0);
}

#[test]
fn the_second_address_is_taken_where_the_first_is_silent() {
    let mut pair = Pair::new();
    let (mut left, right) = by_secret(&mut pair, b"secret", b"secret");
    left.remote.insert(0, "203.0.113.1".parse().unwrap());
    pair.configure(left, right);
    pair.run_for(90);
    pair.assert_agreed(1);
}
