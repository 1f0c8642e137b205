//! What is rare: the last sequence number, packets that carry nothing, peers behind a NAT.

use crate::world::*;
use dataplane::dummy;
use dataplane::io::Arrival;
use dataplane::iv::{IvSource, SEED_LEN};
use dataplane::train::Offload;
use ipsec::Dropped;
use ipsec::packet::Outline;
use ipsec::sa::{LifetimeEvent, SequenceNumber};
use ipsec::tunnel::Outer;
use std::net::SocketAddr;

const NOW: u64 = 1_800_000_000;

/// RFC 4303 3.3.3: the counter never wraps; the packet that would wrap it is not sent, and an event is raised.
#[test]
fn after_the_last_sequence_number_nothing_is_sent_and_an_event_is_published() {
    for suite in [gcm(), cbc_sha1()] {
        let mut world = World::tunnel(&suite, "esp");
        let snapshot = world.left_databases.load_full();
        let sa = snapshot.sas().find(|sa| sa.config.id.spi.get() == 0x1001);
        let sa = sa.unwrap();
        let (first, granted) = sa.state.reserve(&sa.config, u32::MAX - 3, 0, NOW).unwrap();
        assert_eq!((first, granted), (SequenceNumber(1), u32::MAX - 3));
        for number in 0..5 {
            world.left_in.put(datagram(number, 100), Offload::default());
        }
        world.send();
        world.receive();
        assert_eq!(world.delivered_numbers(), [0, 1, 2]);
        let (left, _) = world.balance();
        assert_eq!(left.drops[Dropped::SequenceOver.index()], 2);
        assert_eq!(sa.state.usage().sequence, u32::MAX.into());
        let events = sa.state.take_events(&sa.config, NOW);
        assert_eq!(events, [LifetimeEvent::SequenceOver]);
        assert!(sa.state.is_dead());
    }
}

/// With 64 bits the low half starts over and the high half travels only in the ICV.
#[test]
fn extended_numbers_go_on_behind_the_low_half() {
    let text = |right| tunnel(&gcm(), "esp", right).replace("-r 1024", "-r 1024 -o esn=yes");
    let mut world = World::new(&text(false), &text(true), ALL_TRAINS, 65_535);
    for databases in [&world.left_databases, &world.right_databases] {
        let snapshot = databases.load_full();
        let sa = snapshot.sas().find(|sa| sa.config.id.spi.get() == 0x1001);
        let sa = sa.unwrap();
        // The receiver has seen the number that the sender has used last.
        sa.state.reserve(&sa.config, u32::MAX - 3, 0, NOW).unwrap();
        let seen = SequenceNumber(u64::from(u32::MAX) - 3);
        sa.state.admit(&sa.config, seen, 0, NOW).unwrap();
    }
    for number in 0..6 {
        world.left_in.put(datagram(number, 100), Offload::default());
    }
    world.send();
    world.receive();
    assert_eq!(world.delivered_numbers(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_dummy_packet_is_dropped_moves_the_window_and_is_not_distinguishable_on_the_wire() {
    for suite in [gcm(), cbc_sha1()] {
        let mut world = World::tunnel(&suite, "esp");
        let snapshot = world.left_databases.load_full();
        let sa = snapshot.sas().find(|sa| sa.config.id.spi.get() == 0x1001);
        let sa = sa.unwrap();
        let mut random = IvSource::seeded(&[3; SEED_LEN]);
        let mut lengths = Vec::new();
        for number in 0..20 {
            let packet = dummy::seal(sa, &mut random, NOW).unwrap();
            lengths.push(packet.len());
            let arrival = Arrival {
                outer: Outer::without_inner(&sa.config),
                stride: packet.len(),
            };
            world.wire.put(packet.clone(), arrival);
            // The same packet again is a replay: the first one was admitted.
            world.wire.put(packet, arrival);
            world.left_in.put(datagram(number, 100), Offload::default());
            world.send();
        }
        world.receive();
        assert_eq!(world.delivered_numbers(), (0..20).collect::<Vec<_>>());
        let (_, right) = world.balance();
        assert_eq!(right.drops[Dropped::Dummy.index()], 20);
        assert_eq!(right.drops[Dropped::Replayed.index()], 20);
        lengths.sort_unstable();
        lengths.dedup();
        assert!(lengths.len() > 5, "always as long: {lengths:?}");
    }
}

#[test]
fn an_association_that_is_over_sends_no_dummies_either() {
    let text = tunnel(&gcm(), "esp", false).replace("-r 1024", "-r 1024 -o hard-packets=2");
    let snapshot = published(&text).load_full();
    let sa = snapshot.sas().next().unwrap();
    let mut random = IvSource::seeded(&[3; SEED_LEN]);
    let sent = (0..5).filter(|_| dummy::seal(sa, &mut random, NOW).is_ok());
    assert_eq!(sent.count(), 2);
}

/// Transport mode in UDP between two hosts, the left one behind a NAT that shows another address.
fn behind_a_nat(authenticated: bool) -> World {
    let suite = if authenticated {
        gcm()
    } else {
        format!("-E aes-cbc {}", bytes("b2", 16))
    };
    let end = |address, out| {
        format!(
            "add {address} 10.2.0.1 esp-udp 0x1001 -m transport -r 1024 {suite};
             spdadd {address} 10.2.0.1 any -P {out} ipsec esp/transport//require;"
        )
    };
    let (left, right) = (end("10.1.0.1", "out"), end("192.0.2.9", "in"));
    World::new(&left, &right, ALL_TRAINS, 65_535)
}

/// What the NAT makes of the packets on the wire.
fn translate(world: &World, to: SocketAddr) {
    for (packet, mut arrival) in world.wire.take_all() {
        arrival.outer.source = to.ip();
        arrival.outer.ports = Some((to.port(), 4500));
        world.wire.put(packet, arrival);
    }
}

/// By an independent parser with its own checksum.
fn checksum_is_right(packet: &[u8]) -> bool {
    let sliced = etherparse::SlicedPacket::from_ip(packet).unwrap();
    let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else {
        panic!("not IPv4");
    };
    let ip = ip.header().to_header();
    match sliced.transport {
        Some(etherparse::TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            header.calc_checksum_ipv4(&ip, udp.payload()).unwrap() == header.checksum
        }
        Some(etherparse::TransportSlice::Tcp(tcp)) => {
            let header = tcp.to_header();
            header.calc_checksum_ipv4(&ip, tcp.payload()).unwrap() == header.checksum
        }
        _ => panic!("neither UDP nor TCP"),
    }
}

#[test]
fn transport_mode_behind_a_nat_arrives_with_checksums_that_fit_the_new_address() {
    let mut world = behind_a_nat(true);
    world.left_in.put(datagram(1, 101), Offload::default());
    world
        .left_in
        .put(tcp(false, 7, b"text"), Offload::default());
    world.send();
    translate(&world, "192.0.2.9:4500".parse().unwrap());
    world.receive();
    let delivered = world.delivered();
    assert_eq!(delivered.len(), 2);
    for (packet, _) in delivered {
        let outline = Outline::read(&packet).unwrap();
        assert_eq!(outline.source.to_string(), "192.0.2.9");
        assert!(checksum_is_right(&packet));
    }
}

/// RFC 3948 3.1.2: without an ICV only the checksum inside shows whether the packet was changed, so that it must not be
/// recomputed behind a NAT.
#[test]
fn without_authentication_a_checksum_is_left_to_the_receiver() {
    let mut world = behind_a_nat(false);
    world.left_in.put(datagram(1, 101), Offload::default());
    world.send();
    translate(&world, "192.0.2.9:4500".parse().unwrap());
    world.receive();
    let delivered = world.delivered();
    assert_eq!(delivered.len(), 1);
    assert!(!checksum_is_right(&delivered[0].0));
}

#[test]
fn only_an_authentic_packet_moves_its_sender() {
    let mut world = World::tunnel(&gcm(), "esp-udp");
    let snapshot = world.right_databases.load_full();
    let sa = snapshot.sas().find(|sa| sa.config.id.spi.get() == 0x1001);
    let state = &sa.unwrap().state;
    let elsewhere: SocketAddr = "198.51.100.7:40000".parse().unwrap();
    let at_home: SocketAddr = "192.0.2.1:4500".parse().unwrap();
    let mut receive = |from, forged: bool| {
        world.left_in.put(datagram(1, 100), Offload::default());
        world.send();
        translate(&world, from);
        if forged {
            let (mut packet, arrival) = world.wire.take_all().remove(0);
            *packet.last_mut().unwrap() ^= 1;
            world.wire.put(packet, arrival);
        }
        world.receive();
    };
    receive(at_home, false);
    assert_eq!(state.observed_peer_endpoint(), None);
    receive(elsewhere, true);
    assert_eq!(state.observed_peer_endpoint(), None);
    receive(elsewhere, false);
    assert_eq!(state.observed_peer_endpoint(), Some(elsewhere));
    receive(at_home, false);
    assert_eq!(state.observed_peer_endpoint(), None);
}
