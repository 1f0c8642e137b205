//! Handshakes that succeed.

use super::*;
use crate::message::payload::Protocol;

#[test]
fn two_sides_with_the_same_secret_come_up_with_a_child() {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
    assert_eq!((pair.left.ups(), pair.right.ups()), (1, 1));
    let child = pair.left.installed.values().next().unwrap();
    assert_eq!(child.local_traffic, [network(LEFT_NETWORK)]);
    assert_eq!(
        (child.peer.as_str(), child.encapsulation),
        ("right.example.org", None)
    );
    assert_eq!(child.outbound_state, Outbound::Active);
}

#[test]
fn every_kind_of_certificate_proves_an_identity_to_every_other() {
    let kinds = ["rsa", "ecdsa", "ecdsa384", "ed25519"];
    for (left, right) in kinds.into_iter().zip(kinds.into_iter().cycle().skip(1)) {
        let mut pair = Pair::new();
        let (one, other) = by_certificate(&mut pair, left, right);
        pair.configure(one, other);
        pair.settle();
        pair.assert_agreed(1);
        let story = pair.left.story(pair.now);
        assert!(
            story.contains(&format!("{right}.example.org is authenticated")),
            "{story}"
        );
    }
}

#[test]
fn one_side_may_have_a_certificate_and_the_other_a_secret() {
    let mut pair = Pair::new();
    let (name, (proof, _)) = certified(&mut pair.left, "ecdsa", RsaPadding::Pss);
    let (_, (_, trusted)) = certified(&mut pair.right, "rsa", RsaPadding::Pss);
    for host in [&mut pair.left, &mut pair.right] {
        let secret = Secret::new(b"secret".to_vec());
        host.secrets.add_shared_secret(SECRET, secret);
    }
    let left = (proof, RemoteProof::SharedSecret(SECRET));
    let right = (LocalProof::SharedSecret(SECRET), trusted);
    let (left, right) = connections(&pair, (&name, left), ("right.example.org", right));
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
}

#[test]
fn every_named_suite_and_group_brings_up_the_same_keys() {
    let suites = [
        ("aes128gcm16-prfsha256-x25519", "aes128gcm16-esn"),
        ("aes256-sha512-modp2048", "aes256-sha256-noesn"),
        ("chacha20poly1305-prfsha384-ecp384", "chacha20poly1305"),
        ("aes128ctr-sha1-ecp521", "aes128ctr-sha1"),
        ("3des-aesxcbc-ecp256", "3des-sha1"),
        ("aes256ccm16-prfaescmac-modp1024", "aes256ccm16"),
    ];
    for (ike, esp) in suites {
        let mut pair = Pair::new();
        let (mut left, mut right) = by_secret(&mut pair, b"secret", b"secret");
        for connection in [&mut left, &mut right] {
            connection.ike = vec![Offer::parse(ike, Protocol::IKE).unwrap()];
            connection.children[0].offers = vec![Offer::parse(esp, Protocol::ESP).unwrap()];
        }
        pair.configure(left, right);
        pair.settle();
        pair.assert_agreed(1);
    }
}

#[test]
fn ah_and_transport_mode_come_up_where_both_allow_them() {
    let mut pair = Pair::new();
    let (mut left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    for (connection, own, peer) in [
        (
            &mut left,
            "192.0.2.1-192.0.2.1",
            "198.51.100.7-198.51.100.7",
        ),
        (
            &mut right,
            "198.51.100.7-198.51.100.7",
            "192.0.2.1-192.0.2.1",
        ),
    ] {
        let child = &mut connection.children[0];
        child.mode = ChildMode::Transport;
        child.offers = vec![Offer::parse("sha256", Protocol::AH).unwrap()];
        (child.local, child.remote) = (vec![network(own)], vec![network(peer)]);
    }
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
    let child = pair.left.installed.values().next().unwrap();
    assert_eq!(
        (child.mode, child.protocol),
        (ChildMode::Transport, Protocol::AH)
    );
}

#[test]
fn traffic_is_narrowed_to_what_both_sides_allow() {
    let mut pair = Pair::new();
    let (mut left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    left.children[0].remote = vec![network("0.0.0.0-255.255.255.255")];
    right.children[0].remote = vec![network("10.1.7.0-10.1.7.255"), network("10.9.0.0-10.9.0.9")];
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
    let child = pair.left.installed.values().next().unwrap();
    assert_eq!(child.local_traffic, [network("10.1.7.0-10.1.7.255")]);
    assert_eq!(child.remote_traffic, [network(RIGHT_NETWORK)]);
}

#[test]
fn another_group_is_asked_for_and_given() {
    let mut pair = Pair::new();
    let (mut left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    left.ike = vec![Offer::parse("aes128gcm16-prfsha256-x25519-ecp256", Protocol::IKE).unwrap()];
    right.ike = vec![Offer::parse("aes128gcm16-prfsha256-ecp256", Protocol::IKE).unwrap()];
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
    let story = pair.left.story(pair.now);
    assert!(
        story.contains("the peer wants the key exchange in ecp256"),
        "{story}"
    );
    assert_eq!(pair.left.secrets.held(), (0, 1));
}

#[test]
fn large_messages_go_in_fragments_that_fit() {
    let mut pair = Pair::new();
    let (left, right) = by_certificate(&mut pair, "rsa", "rsa");
    pair.configure(
        Connection {
            fragment_bytes: 500,
            ..left
        },
        Connection {
            fragment_bytes: 500,
            ..right
        },
    );
    let mut fragments = 0;
    pair.settle_over(&mut |packet| {
        let is_first = packet.bytes[18] == 34;
        assert!(
            is_first || packet.bytes.len() <= 500,
            "{}",
            packet.bytes.len()
        );
        fragments += usize::from(packet.bytes[16] == 53);
        Some(packet)
    });
    pair.assert_agreed(1);
    assert!(fragments > 4, "{fragments}");
}

#[test]
fn a_nat_in_front_of_the_initiator_moves_both_to_port_4500_and_esp_into_udp() {
    let mut pair = Pair::new();
    let (left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    right.remote.clear();
    pair.configure(left, right);
    let inside = pair.left.address;
    let mut ports = Vec::new();
    pair.settle_over(&mut |packet| {
        if packet.from.ip() == inside {
            ports.push(packet.to.port());
        }
        behind_nat(inside, packet, 10_000)
    });
    pair.assert_agreed(1);
    assert_eq!(ports, [500, 4500]);
    let left = pair.left.installed.values().next().unwrap();
    assert_eq!(left.encapsulation, Some((4500, 4500)));
    assert!(left.sends_keepalives);
    let right = pair.right.installed.values().next().unwrap();
    assert_eq!(right.encapsulation, Some((4500, 14500)));
    assert!(!right.sends_keepalives);
    assert_eq!(right.remote, OUTSIDE);
    let report = &pair.right.reports(pair.now)[0].ike[0];
    assert_eq!(report.nat, (false, true));
}

#[test]
fn encapsulation_may_be_forced_by_either_side() {
    for forced_left in [true, false] {
        let mut pair = Pair::new();
        let (mut left, mut right) = by_secret(&mut pair, b"secret", b"secret");
        let forced = if forced_left { &mut left } else { &mut right };
        forced.encapsulation = Encapsulation::Forced;
        pair.configure(left, right);
        pair.settle();
        pair.assert_agreed(1);
        for (host, is_forced) in [(&pair.left, forced_left), (&pair.right, !forced_left)] {
            let child = host.installed.values().next().unwrap();
            assert_eq!(child.encapsulation, Some((4500, 4500)));
            assert_eq!(child.sends_keepalives, is_forced);
        }
    }
}

#[test]
fn an_initiator_without_a_local_address_learns_it_from_the_answer() {
    let mut pair = Pair::new();
    let (mut left, right) = by_secret(&mut pair, b"secret", b"secret");
    left.local.clear();
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
    let child = pair.left.installed.values().next().unwrap();
    assert_eq!(child.local, pair.left.address);
}

#[test]
fn any_message_may_be_lost_and_is_sent_again() {
    for lost in 0..4 {
        let mut pair = Pair::new();
        let (left, right) = by_secret(&mut pair, b"secret", b"secret");
        pair.configure(left, right);
        let mut count = 0;
        let until = pair.now + Duration::from_secs(3);
        pair.run_until(until, &mut |packet| {
            count += 1;
            (count != lost + 1).then_some(packet)
        });
        pair.assert_agreed(1);
        assert_eq!((pair.left.ups(), pair.right.ups()), (1, 1));
        assert_eq!(pair.right.secrets.held(), (0, 1));
    }
}

#[test]
fn every_message_may_come_twice_and_gets_the_same_answer() {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    pair.configure(left, right);
    let mut answers: Map<Vec<u8>, usize> = Map::new();
    let (address, now) = (pair.right.address, pair.now);
    for _ in 0..20 {
        let Some(packet) = pair.left.outbox.pop_front() else {
            break;
        };
        for _ in 0..2 {
            let (from, to) = (packet.from, packet.to);
            let bytes = &mut packet.bytes.clone();
            pair.right.give(Input::Datagram { from, to, bytes }, now);
        }
        for mut packet in std::mem::take(&mut pair.right.outbox) {
            assert_eq!(packet.from.ip(), address);
            *answers.entry(packet.bytes.clone()).or_default() += 1;
            let (from, to) = (packet.from, packet.to);
            let bytes = &mut packet.bytes;
            pair.left.give(Input::Datagram { from, to, bytes }, now);
        }
    }
    pair.assert_agreed(1);
    assert_eq!(answers.len(), 2);
    assert!(answers.values().all(|count| *count == 2));
    assert_eq!((pair.left.ups(), pair.right.ups()), (1, 1));
}

#[test]
fn without_a_child_where_both_support_that() {
    let mut pair = Pair::new();
    let (mut left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    left.childless = true;
    left.children.clear();
    right.children.clear();
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(0);
}

#[test]
fn both_sides_may_begin_at_once_and_one_of_the_two_ike_sas_goes() {
    let mut pair = Pair::new();
    let (left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    right.start = Start::AtStart;
    pair.configure(left, right);
    pair.settle();
    pair.run_for(5);
    pair.assert_agreed(1);
    for host in [&pair.left, &pair.right] {
        assert_eq!(host.reports(pair.now)[0].ike.len(), 1);
        let is_down = |event: &Event| matches!(event, Event::Down { .. });
        assert!(!host.events.iter().any(is_down));
    }
}
