//! What strangers can cause: little.

use super::*;
use crate::message::{Body, Message, payload::NotifyType};

/// First requests as the left side would send them, each with another SPI and nonce.
fn first_requests(count: usize) -> Vec<Packet> {
    let mut requests = Vec::new();
    for seed in 0..count {
        let mut pair = Pair::new();
        pair.left.dice = Dice(seed as u64 + 77);
        let (left, right) = by_secret(&mut pair, b"secret", b"secret");
        pair.configure(left, right);
        requests.extend(pair.left.outbox.pop_front());
    }
    requests
}

fn responder(settings: Settings) -> Pair {
    let mut pair = Pair::with_settings(settings);
    let (_, mut right) = by_secret(&mut pair, b"secret", b"secret");
    right.remote.clear();
    pair.right.configure(vec![right], pair.now);
    pair
}

fn receive(pair: &mut Pair, from: SocketAddr, packet: &Packet) -> Option<Packet> {
    let (to, bytes) = (packet.to, &mut packet.bytes.clone());
    pair.right
        .give(Input::Datagram { from, to, bytes }, pair.now);
    pair.right.outbox.pop_front()
}

fn cookie(packet: &Packet) -> Option<Vec<u8>> {
    let message = Message::parse(&packet.bytes).unwrap();
    message
        .payloads
        .iter()
        .find_map(|payload| match &payload.body {
            Body::Notify(notify) if notify.kind == NotifyType::Cookie => Some(notify.data.to_vec()),
            _ => None,
        })
}

#[test]
fn above_the_threshold_strangers_get_a_cookie_and_nothing_is_kept() {
    let settings = Settings {
        cookie_threshold: 2,
        ..Settings::default()
    };
    let mut pair = responder(settings);
    let requests = first_requests(8);
    for (number, request) in requests.iter().enumerate() {
        let from = SocketAddr::from(([203, 0, 113, number as u8], 500));
        let answer = receive(&mut pair, from, request).expect("an answer");
        assert_eq!(cookie(&answer).is_some(), number >= 2, "{number}");
        if number >= 2 {
            assert_eq!(answer.bytes.len(), 28 + 8 + crate::cookie::COOKIE_BYTES);
        }
    }
    assert_eq!(pair.right.endpoint.sas.len(), 2);
    assert_eq!(pair.right.secrets.held(), (0, 2));
    // Without an answer from them nothing stays.
    pair.run_for(31);
    assert_eq!(pair.right.endpoint.sas.len(), 0);
    assert_eq!(pair.right.secrets.held(), (0, 0));
}

#[test]
fn a_peer_that_gives_its_cookie_back_comes_up() {
    let settings = Settings {
        cookie_threshold: 0,
        ..Settings::default()
    };
    let mut pair = Pair::with_settings(settings);
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
    let story = pair.left.story(pair.now);
    assert!(story.contains("asks for a cookie"), "{story}");
}

#[test]
fn with_a_cookie_all_other_payloads_are_unchanged() {
    let settings = Settings {
        cookie_threshold: 0,
        ..Settings::default()
    };
    let mut pair = Pair::with_settings(settings);
    let (mut left, right) = by_secret(&mut pair, b"secret", b"secret");
    left.encapsulation = Encapsulation::Forced;
    pair.configure(left, right);
    let mut requests = Vec::new();
    pair.settle_over(&mut |packet| {
        if packet.bytes[18] == 34 && packet.bytes[19] & 0x20 == 0 {
            requests.push(packet.bytes.clone());
        }
        Some(packet)
    });
    pair.assert_agreed(1);
    let cookie_len = 8 + crate::cookie::COOKIE_BYTES;
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0][28..], requests[1][28 + cookie_len..]);
}

#[test]
fn a_cookie_and_another_group_together_come_up_too() {
    let settings = Settings {
        cookie_threshold: 0,
        ..Settings::default()
    };
    let mut pair = Pair::with_settings(settings);
    let (left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    let protocol = crate::message::payload::Protocol::IKE;
    right.ike = vec![Offer::parse("aes256gcm16-prfsha384-ecp384", protocol).unwrap()];
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
}

#[test]
fn one_address_takes_no_more_than_its_share() {
    let settings = Settings {
        max_half_open_per_address: 3,
        ..Settings::default()
    };
    let mut pair = responder(settings);
    let from = SocketAddr::from(([203, 0, 113, 1], 500));
    let requests = first_requests(6);
    let answers = requests
        .iter()
        .filter_map(|request| receive(&mut pair, from, request));
    assert_eq!(answers.count(), 3);
    let other = SocketAddr::from(([203, 0, 113, 2], 500));
    assert!(receive(&mut pair, other, &requests[5]).is_some());
}

#[test]
fn a_first_request_that_comes_again_gets_the_same_answer_and_no_second_ike_sa() {
    let mut pair = responder(Settings::default());
    let from = SocketAddr::from(([203, 0, 113, 1], 500));
    let request = &first_requests(1)[0];
    let first = receive(&mut pair, from, request).expect("an answer");
    let second = receive(&mut pair, from, request).expect("an answer");
    assert_eq!(first.bytes, second.bytes);
    assert_eq!(pair.right.endpoint.sas.len(), 1);
}

#[test]
fn an_address_without_a_connection_gets_silence() {
    let mut pair = Pair::new();
    let (_, right) = by_secret(&mut pair, b"secret", b"secret");
    pair.right.configure(vec![right], pair.now);
    let from = SocketAddr::from(([203, 0, 113, 1], 500));
    assert!(receive(&mut pair, from, &first_requests(1)[0]).is_none());
    assert!(matches!(pair.right.events[0], Event::Refused { .. }));
}

#[test]
fn what_is_no_message_of_a_known_ike_sa_has_no_effect() {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    pair.configure(left, right);
    let mut seen = Vec::new();
    pair.settle_over(&mut |packet| {
        seen.push(packet.clone());
        Some(packet)
    });
    let mut dice = Dice(5);
    for packet in &seen {
        for _ in 0..500 {
            let mut bytes = packet.bytes.clone();
            let mut drawn = [0; 4];
            dice.fill(&mut drawn);
            let at = usize::from(u16::from_be_bytes([drawn[0], drawn[1]])) % bytes.len();
            bytes[at] ^= drawn[2] | 1;
            if drawn[3] < 32 {
                bytes.truncate(at);
            }
            // A changed first request may begin another handshake, as any host may.
            if packet.bytes[18] == 34 {
                continue;
            }
            for host in [&mut pair.left, &mut pair.right] {
                let (from, to) = (packet.from, packet.to);
                let bytes = &mut bytes.clone();
                host.give(Input::Datagram { from, to, bytes }, pair.now);
                assert!(host.outbox.is_empty());
            }
        }
    }
    pair.assert_agreed(1);
    assert_eq!((pair.left.ups(), pair.right.ups()), (1, 1));
}
