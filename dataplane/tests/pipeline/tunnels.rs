//! What goes in on the left comes out on the right, byte for byte.

use crate::world::*;
use dataplane::train::{Offload, TrainKinds};
use ipsec::Dropped;

fn suites() -> [String; 5] {
    [
        gcm(),
        cbc_sha1(),
        format!("-E null -A hmac-sha2-256 {}", bytes("d4", 32)),
        format!("-E chacha20-poly1305 {}", bytes("e5", 36)),
        format!(
            "-o esn -E 3des-cbc {} -A hmac-sha1 {}",
            bytes("f6", 24),
            bytes("17", 20)
        ),
    ]
}

#[test]
fn single_packets_of_every_length_arrive_as_they_were() {
    for suite in suites() {
        for protocol in ["esp", "esp-udp"] {
            let mut world = World::tunnel(&suite, protocol);
            let sent: Vec<_> = (0..200)
                .map(|number| datagram(number, 8 + 7 * number as usize))
                .collect();
            for packet in &sent {
                world.left_in.put(packet.clone(), Offload::default());
            }
            world.send();
            world.receive();
            let delivered: Vec<_> = world
                .delivered()
                .into_iter()
                .map(|(packet, _)| packet)
                .collect();
            assert!(delivered == sent, "{suite} {protocol}");
            let (left, right) = world.balance();
            assert_eq!((left.packets, right.packets), (200, 200));
            assert_eq!(left.bytes, right.bytes);
        }
    }
}

#[test]
fn a_super_packet_leaves_as_one_parcel_and_arrives_as_one_train() {
    for v6 in [false, true] {
        let mut world = World::tunnel(&gcm(), "esp-udp");
        let payload = Chance(5).bytes(60_000);
        let whole = tcp(v6, 1_000_000, &payload);
        world.left_in.put(whole.clone(), tso(1400));
        world.send();
        let bursts = world.wire.0.lock().unwrap().len();
        assert_eq!(bursts, 1);
        world.receive();
        let delivered = world.delivered();
        assert_eq!(delivered.len(), 1);
        let (train, offload) = &delivered[0];
        assert_eq!(segments(train, *offload), segments(&whole, tso(1400)));
        let (left, right) = world.balance();
        assert_eq!((left.packets, right.packets, right.trains), (43, 43, 1));
    }
}

#[test]
fn a_sink_without_offloads_gets_the_segments_that_the_sender_would_have_sent() {
    let text = |right| tunnel(&cbc_sha1(), "esp", right);
    let mut world = World::new(&text(false), &text(true), TrainKinds::default(), 65_535);
    let whole = tcp(false, 77, &Chance(6).bytes(20_000));
    world.left_in.put(whole.clone(), tso(1200));
    world.send();
    world.receive();
    let delivered = world.delivered();
    assert!(
        delivered
            .iter()
            .all(|(_, offload)| *offload == Offload::default())
    );
    let packets: Vec<_> = delivered.into_iter().map(|(packet, _)| packet).collect();
    assert_eq!(packets, segments(&whole, tso(1200)));
}

#[test]
fn a_forged_segment_is_cut_out_of_its_train_and_never_exposed() {
    let mut world = World::tunnel(&gcm(), "esp-udp");
    let whole = tcp(false, 0, &Chance(7).bytes(14_000));
    world.left_in.put(whole.clone(), tso(1400));
    world.send();
    let mut bursts = world.wire.take_all();
    let stride = bursts[0].1.stride;
    bursts[0].0[4 * stride + 100] ^= 1;
    let (bytes, arrival) = bursts.remove(0);
    world.wire.put(bytes, arrival);
    world.receive();
    let mut expected = segments(&whole, tso(1400));
    expected.remove(4);
    let got: Vec<_> = world
        .delivered()
        .into_iter()
        .flat_map(|(train, offload)| segments(&train, offload))
        .collect();
    assert_eq!(got, expected);
    let (_, right) = world.balance();
    assert_eq!(right.drops[ipsec::Dropped::BadIcv.index()], 1);
    assert_eq!(right.trains, 2);
}

#[test]
fn transport_mode_gives_each_packet_its_own_header_back() {
    for protocol in ["esp", "esp-udp"] {
        for mode in ["-m transport", ""] {
            let text = |direction| {
                format!(
                    "add 10.1.0.1 10.2.0.1 {protocol} 0x2001 {mode} {};
                     spdadd 10.1.0.1 10.2.0.1 any -P {direction} ipsec esp/transport//require;",
                    gcm()
                )
            };
            let mut world = World::new(&text("out"), &text("in"), ALL_TRAINS, 65_535);
            let single = datagram(1, 500);
            let whole = tcp(false, 9, &Chance(8).bytes(10_000));
            world.left_in.put(single.clone(), Offload::default());
            world.left_in.put(whole.clone(), tso(1000));
            world.send();
            world.receive();
            let delivered = world.delivered();
            world.balance();
            assert_eq!(delivered.len(), 2);
            // Identifications are new, so that the header checksum differs; the other bytes must be equal.
            let anonymous = |packet: &[u8]| {
                let mut packet = packet.to_vec();
                packet[4..6].fill(0);
                packet[10..12].fill(0);
                packet
            };
            assert_eq!(anonymous(&delivered[0].0), anonymous(&single));
            let (train, offload) = &delivered[1];
            let again: Vec<_> = segments(train, *offload)
                .iter()
                .map(|packet| anonymous(packet))
                .collect();
            let expected: Vec<_> = segments(&whole, tso(1000))
                .iter()
                .map(|packet| anonymous(packet))
                .collect();
            assert_eq!(again, expected);
        }
    }
}

/// Two ends of a transport association, and what sends in fragments through it.
fn transport_world() -> World {
    let text = |direction| {
        format!(
            "add 10.1.0.1 10.2.0.1 esp 0x2001 -m transport {};
             spdadd 10.1.0.1 10.2.0.1 any -P {direction} ipsec esp/transport//require;",
            gcm()
        )
    };
    World::new(&text("out"), &text("in"), ALL_TRAINS, 1500)
}

/// A datagram that may be cut, and its fragments.
fn cut_datagram(identification: u16) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut whole = datagram(1, 4000);
    whole[4..6].copy_from_slice(&identification.to_be_bytes());
    whole[6] &= !0x40;
    let sum = etherparse::Ipv4Header::from_slice(&whole)
        .unwrap()
        .0
        .calc_header_checksum();
    whole[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut cutter = ipsec::fragment::Cutter::new(&whole, 1440, 77).unwrap();
    let (mut bytes, mut pieces) = (Vec::new(), Vec::new());
    while let Some(len) = cutter.next_into(&mut bytes) {
        pieces.push(bytes[bytes.len() - len..].to_vec());
    }
    (whole, pieces)
}

#[test]
fn transport_mode_joins_what_the_kernel_cut_before_it_protects() {
    let mut world = transport_world();
    let (whole, pieces) = cut_datagram(1);
    assert_eq!(pieces.len(), 3);
    for piece in pieces {
        world.left_in.put(piece, Offload::default());
    }
    world.send();
    assert_eq!(
        world.wire.0.lock().unwrap().len(),
        1,
        "one protected packet, for the socket to cut"
    );
    world.receive();
    let delivered = world.delivered();
    let (left, _) = world.balance();
    assert_eq!((left.arrived, left.packets, delivered.len()), (1, 1, 1));
    assert_eq!(delivered[0].0[20..], whole[20..]);
}

#[test]
fn what_is_never_joined_is_counted_once_it_is_given_up() {
    const BROKEN: u16 = 4000;
    let mut world = transport_world();
    for identification in 0..BROKEN {
        let (_, pieces) = cut_datagram(identification);
        world.left_in.put(pieces[0].clone(), Offload::default());
    }
    let (_, pieces) = cut_datagram(BROKEN);
    for piece in pieces {
        world.left_in.put(piece, Offload::default());
    }
    world.send();
    let (left, _) = world.balance();
    let incomplete = left.drops[Dropped::Incomplete.index()];
    // 4 MiB of them are still waited for.
    assert!((1000..2000).contains(&incomplete), "{incomplete}");
    assert_eq!((left.packets, left.dropped()), (1, incomplete));
    assert_eq!(left.arrived, 1 + incomplete);
}
