//! IKE SAs that are up: liveness, deletes, moves, commands.

use super::*;

fn up() -> Pair {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    pair.configure(left, right);
    pair.settle();
    pair.assert_agreed(1);
    pair
}

/// The host loses all that it knew, and is configured as before but for a change.
fn start_again(host: &mut Host, now: Duration, change: &dyn Fn(&mut Connection)) {
    let record = &host.endpoint.shared.peers.records["peer"];
    let mut connection = (*record.connection).clone();
    change(&mut connection);
    *host = Host::new(&host.address.to_string(), Settings::default());
    host.dice = Dice(99);
    let secret = Secret::new(b"secret".to_vec());
    host.secrets.add_shared_secret(SECRET, secret);
    host.configure(vec![connection], now);
}

#[test]
fn a_connection_that_is_taken_down_is_down_on_both_sides_and_nothing_is_left() {
    let mut pair = up();
    pair.left.give(Input::Down { connection: "peer" }, pair.now);
    pair.run_for(60);
    assert!(!pair.left.is_up() && !pair.right.is_up());
    pair.assert_clean();
    let is_down = |event: &Event| matches!(event, Event::Down { .. });
    assert!(pair.left.events.iter().any(is_down) && pair.right.events.iter().any(is_down));
    pair.left.give(Input::Up { connection: "peer" }, pair.now);
    pair.run_for(1);
    pair.assert_agreed(1);
}

#[test]
fn a_connection_that_is_taken_down_carries_nothing_though_the_peer_never_answers() {
    let mut pair = up();
    pair.left.give(Input::Down { connection: "peer" }, pair.now);
    assert!(pair.left.installed.is_empty());
    let until = pair.now + Duration::from_secs(70);
    pair.run_until(until, &mut |_| None);
    assert!(pair.left.endpoint.sas.is_empty());
    assert!(matches!(
        pair.left.reports(pair.now)[0].state,
        PeerState::Down { next_in: None, .. }
    ));
}

#[test]
fn a_connection_that_the_peer_takes_down_stays_down_until_the_peer_lets_it_up_again() {
    let mut pair = up();
    pair.right
        .give(Input::Down { connection: "peer" }, pair.now);
    pair.run_for(100);
    assert!(!pair.left.is_up() && !pair.right.is_up());
    // A reload, or `up`, lets the peer in again.
    let connection = pair.right.endpoint.shared.peers.records["peer"]
        .connection
        .clone();
    pair.right.configure(vec![(*connection).clone()], pair.now);
    pair.run_for(120);
    pair.assert_agreed(1);
}

#[test]
fn a_silent_peer_is_asked_and_lives() {
    let mut pair = up();
    let mut informational = 0;
    let until = pair.now + Duration::from_secs(100);
    pair.run_until(until, &mut |packet| {
        informational += usize::from(packet.bytes[18] == 37);
        Some(packet)
    });
    // Every 30 s one side asks and the other answers.
    assert!((6..=8).contains(&informational), "{informational}");
    pair.assert_agreed(1);
    assert_eq!((pair.left.ups(), pair.right.ups()), (1, 1));
}

#[test]
fn packets_of_child_sas_are_a_sign_of_life() {
    let mut pair = up();
    let mut informational = 0;
    for _ in 0..20 {
        for host in [&mut pair.left, &mut pair.right] {
            let child = *host.installed.keys().next().unwrap();
            let uses = [ChildUse {
                child,
                what: Use::Received,
            }];
            host.give(Input::ChildUse(&uses), pair.now);
        }
        let until = pair.now + Duration::from_secs(10);
        pair.run_until(until, &mut |packet| {
            informational += 1;
            Some(packet)
        });
    }
    assert_eq!(informational, 0);
}

#[test]
fn a_dead_peer_is_noticed_and_tried_again() {
    let mut pair = up();
    let until = pair.now + Duration::from_secs(30 + 8 + 64);
    pair.run_until(until, &mut |_| None);
    assert!(!pair.left.is_up() && !pair.right.is_up());
    assert!(pair.left.installed.is_empty() && pair.right.installed.is_empty());
    pair.run_for(120);
    pair.assert_agreed(1);
}

#[test]
fn a_peer_that_starts_again_replaces_what_it_had() {
    let mut pair = up();
    let before: Vec<_> = pair.right.installed.keys().copied().collect();
    start_again(&mut pair.left, pair.now, &|_| {});
    pair.settle();
    // Its data plane may have gone on: the old pair is kept as after a rekey.
    assert!(pair.right.installed.contains_key(&before[0]));
    pair.run_for(8);
    pair.assert_agreed(1);
    assert!(!pair.right.installed.contains_key(&before[0]));
}

/// The side that waits.
fn recover(pair: &mut Pair, remote: &str) {
    let remote = remote.parse().unwrap();
    let connection = "peer";
    let input = Input::Recover { connection, remote };
    pair.right.give(input, pair.now);
}

#[test]
fn a_side_that_waits_begins_once_where_its_child_sas_have_lost_their_ike_sa() {
    let mut pair = up();
    start_again(&mut pair.right, pair.now, &|_| {});
    pair.run_for(1);
    assert!(!pair.right.is_up());
    recover(&mut pair, "192.0.2.1:500");
    pair.run_for(9);
    pair.assert_agreed(1);
    assert!(
        pair.left
            .events
            .iter()
            .all(|event| !matches!(event, Event::Failed { .. }))
    );

    // Up, or taken down by command: nothing begins.
    recover(&mut pair, "192.0.2.1:500");
    assert!(pair.right.outbox.is_empty());
    let connection = "peer";
    pair.right.give(Input::Down { connection }, pair.now);
    pair.run_for(30);
    recover(&mut pair, "192.0.2.1:500");
    assert!(pair.right.outbox.is_empty());
}

#[test]
fn a_side_that_waits_gives_up_where_nothing_answers() {
    let mut pair = up();
    start_again(&mut pair.right, pair.now, &|_| {});
    recover(&mut pair, "192.0.2.99:500");
    let until = pair.now + Duration::from_secs(600);
    pair.run_until(until, &mut |_| None);
    let reports = pair.right.reports(pair.now);
    assert!(matches!(
        reports[0].state,
        PeerState::Down { next_in: None, .. }
    ));
}

#[test]
fn a_child_that_a_peer_does_not_bring_up_again_is_closed_after_a_while() {
    let mut pair = up();
    start_again(&mut pair.left, pair.now, &|connection| {
        connection.children[0].on_demand = true;
        connection.childless = true;
    });
    pair.settle();
    assert_eq!(pair.right.installed.len(), 1);
    pair.run_for(11);
    assert!(pair.right.installed.is_empty());
    let is_down = |event: &Event| matches!(event, Event::ChildDown { .. });
    assert_eq!(
        pair.right
            .events
            .iter()
            .filter(|event| is_down(event))
            .count(),
        1
    );
}

#[test]
fn a_peer_behind_a_nat_is_called_by_the_mapping_that_it_has() {
    let mut pair = Pair::new();
    let (left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    right.remote.clear();
    pair.configure(left, right);
    let inside = pair.left.address;
    let mut ports = Vec::new();
    let until = |pair: &Pair, seconds| pair.now + Duration::from_secs(seconds);
    pair.settle_over(&mut |packet| behind_nat(inside, packet, 10_000));
    start_again(&mut pair.right, pair.now, &|_| {});
    recover(&mut pair, &format!("{OUTSIDE}:14500"));
    let end = until(&pair, 8);
    pair.run_until(end, &mut |packet| {
        ports.push((packet.from.port(), packet.to.port()));
        behind_nat(inside, packet, 10_000)
    });
    pair.assert_agreed(1);
    let is_mapped = |ports: &(u16, u16)| [(4500, 14_500), (4500, 4500)].contains(ports);
    assert!(ports.iter().all(is_mapped), "{ports:?}");
    let right = pair.right.installed.values().next().unwrap();
    assert_eq!(right.encapsulation, Some((4500, 14_500)));
    let left = pair.left.installed.values().next().unwrap();
    assert!(left.sends_keepalives && !right.sends_keepalives);
}

#[test]
fn a_peer_behind_a_nat_is_followed_and_a_liar_is_not() {
    let mut pair = Pair::new();
    let (left, mut right) = by_secret(&mut pair, b"secret", b"secret");
    right.remote.clear();
    right.dpd = None;
    pair.configure(left, right);
    let inside = pair.left.address;
    let translate = |packet, offset| behind_nat(inside, packet, offset);
    let mut offset = 10_000;
    pair.settle_over(&mut |packet| translate(packet, offset));
    let remote = |pair: &Pair| pair.right.reports(pair.now)[0].ike[0].remote.port();
    assert_eq!(remote(&pair), 14_500);

    // The mapping changes: the next request of the left side comes from another port.
    offset = 20_000;
    let until = pair.now + Duration::from_secs(31);
    let mut last = None;
    pair.run_until(until, &mut |packet| {
        if packet.from.ip() == inside {
            last = Some(packet.clone());
        }
        translate(packet, offset)
    });
    assert_eq!(remote(&pair), 24_500);
    let is_moved =
        |event: &Event| matches!(event, Event::Moved { children, .. } if children.len() == 1);
    assert!(pair.right.events.iter().any(is_moved));

    // The same message from elsewhere, and a changed one: the peer's address stays.
    let mut packet = last.expect("a request");
    let to = packet.to;
    let from = "203.0.113.66:4500".parse().unwrap();
    let mut changed = packet.bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    for bytes in [&mut packet.bytes, &mut changed] {
        pair.right
            .give(Input::Datagram { from, to, bytes }, pair.now);
    }
    assert_eq!(remote(&pair), 24_500);
}

#[test]
fn a_reload_changes_only_what_differs() {
    let mut pair = up();
    let connection = pair.left.endpoint.shared.peers.records["peer"]
        .connection
        .clone();
    pair.left.configure(vec![(*connection).clone()], pair.now);
    pair.settle();
    pair.assert_agreed(1);
    assert_eq!(pair.left.ups(), 1);

    let mut changed = (*connection).clone();
    changed.dpd = None;
    pair.left.configure(vec![changed], pair.now);
    pair.run_for(5);
    pair.assert_agreed(1);
    assert_eq!(pair.left.ups(), 2);

    pair.left.configure(vec![], pair.now);
    pair.run_for(60);
    assert!(pair.left.reports(pair.now).is_empty());
    pair.assert_clean();
}

#[test]
fn a_packet_brings_up_a_connection_on_demand() {
    let mut pair = Pair::new();
    let (mut left, right) = by_secret(&mut pair, b"secret", b"secret");
    left.start = Start::OnDemand;
    pair.configure(left, right);
    pair.settle();
    assert!(!pair.left.is_up());
    let packet = Some((network("10.1.0.5-10.1.0.5"), network("10.2.0.6-10.2.0.6")));
    let acquire = Input::Acquire {
        connection: "peer",
        child: "net",
        packet,
    };
    pair.left.give(acquire, pair.now);
    pair.settle();
    pair.assert_agreed(1);
    let child = pair.left.installed.values().next().unwrap();
    assert_eq!(child.local_traffic, [network(LEFT_NETWORK)]);
}

#[test]
fn a_gateway_that_stops_deletes_what_it_has() {
    let mut pair = up();
    pair.left.give(Input::Stop, pair.now);
    pair.settle();
    assert!(pair.left.installed.is_empty() && pair.right.installed.is_empty());
    let mut sent = 0;
    let until = pair.now + Duration::from_secs(300);
    pair.run_until(until, &mut |packet| {
        sent += 1;
        Some(packet)
    });
    assert_eq!(sent, 0);
    pair.assert_clean();
}

#[test]
fn a_report_of_what_has_changed_names_each_connection_once_for_each_change() {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    let (mut other, idle) = (left.clone(), pair.now);
    (other.name, other.start) = ("other".to_owned(), Start::Wait);
    pair.left.configure(vec![left, other], pair.now);
    pair.right.configure(vec![right], pair.now);
    let changed = |pair: &mut Pair| {
        let reports = pair.left.endpoint.report_changed(pair.now);
        let now = pair.left.endpoint.report(pair.now);
        for report in &reports {
            assert!(now.contains(report), "{report:?}");
        }
        let names = reports.into_iter().map(|report| report.connection);
        names.collect::<Vec<_>>()
    };
    assert_eq!(changed(&mut pair), ["other", "peer"]);
    assert!(pair.now >= idle && changed(&mut pair).is_empty());
    pair.settle();
    assert_eq!(changed(&mut pair), ["peer"]);
    assert!(changed(&mut pair).is_empty());
    pair.left.give(Input::Down { connection: "peer" }, pair.now);
    assert_eq!(changed(&mut pair), ["peer"]);
}

/// The names of the connections of the left host whose state has changed, which is compared with its report.
fn state_changes(pair: &mut Pair) -> Vec<(String, PeerState)> {
    let changes = pair.left.endpoint.take_state_changes(pair.now);
    let reports = pair.left.endpoint.report(pair.now);
    let changes = changes.into_iter().map(|change| {
        let mut same = reports.iter();
        let report = same.find(|report| report.connection == change.connection);
        assert_eq!(report.map(|report| &report.state), Some(&change.state));
        (change.connection, change.state)
    });
    changes.collect()
}

#[test]
fn a_state_is_told_once_and_again_when_it_has_changed() {
    let mut pair = Pair::new();
    let (left, right) = by_secret(&mut pair, b"secret", b"secret");
    let mut other = left.clone();
    (other.name, other.start) = ("other".to_owned(), Start::Wait);
    pair.left.configure(vec![left, other], pair.now);
    pair.right.configure(vec![right], pair.now);
    let told = state_changes(&mut pair);
    assert_eq!(told.len(), 2, "every connection at first: {told:?}");
    let is_connecting = |(_, state): &(String, PeerState)| match state {
        PeerState::Connecting { step, .. } => step.starts_with("IKE_SA_INIT"),
        _ => false,
    };
    assert!(told.iter().any(is_connecting), "{told:?}");
    assert_eq!(state_changes(&mut pair), []);
    pair.settle();
    let up = ("peer".to_owned(), PeerState::Up);
    assert_eq!(state_changes(&mut pair), [up]);
    // It stays up: dead peer detection, rekeys and time are no change of state.
    let rekey = Input::Rekey {
        connection: "peer",
        ike: true,
    };
    pair.left.give(rekey, pair.now);
    pair.run_for(600);
    assert_eq!(state_changes(&mut pair), []);
    pair.left.give(Input::Down { connection: "peer" }, pair.now);
    pair.settle();
    let told = state_changes(&mut pair);
    let [(name, PeerState::Down { why, next_in })] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((&**name, *next_in), ("peer", None));
    assert!(why.contains("taken down by command"), "{why}");
}

#[test]
fn each_new_time_of_the_next_attempt_is_told_and_a_removed_connection_is_not() {
    let mut pair = Pair::new();
    let (left, _) = by_secret(&mut pair, b"secret", b"secret");
    pair.left.configure(vec![left.clone()], pair.now);
    assert_eq!(state_changes(&mut pair).len(), 1);
    let mut nexts = Vec::new();
    // The peer does not answer.
    while nexts.len() < 2 {
        let until = pair.now + Duration::from_secs(1);
        pair.run_until(until, &mut |_| None);
        let told = state_changes(&mut pair);
        nexts.extend(told.into_iter().filter_map(|(_, state)| match state {
            PeerState::Down { next_in, .. } => Some(next_in),
            _ => None,
        }));
    }
    assert!(nexts.iter().all(Option::is_some), "{nexts:?}");
    pair.left.give(Input::Up { connection: "peer" }, pair.now);
    pair.left.configure(Vec::new(), pair.now);
    assert_eq!(state_changes(&mut pair), []);
    pair.left.configure(vec![left], pair.now);
    assert_eq!(state_changes(&mut pair).len(), 1);
}

#[test]
fn a_report_of_some_names_leaves_out_others_and_unknown_ones() {
    let pair = up();
    let names = ["not-configured", "peer"].map(str::to_owned);
    let reports = pair.left.endpoint.report_named(&names, pair.now);
    assert_eq!(reports, pair.left.endpoint.report(pair.now));
    assert_eq!(pair.left.endpoint.report_named(&names[..1], pair.now), []);
}
