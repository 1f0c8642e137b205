//! IPComp inside ESP and AH: what becomes shorter travels compressed, everything else as it is, and both arrive.

use crate::world::*;
use dataplane::train::Offload;
use ipsec::Dropped;
use ipsec::ipcomp::{self, Compressor};
use ipsec::sa::{Protocol, SaId, SaUsage, Spi};

/// One way to put IPComp into a bundle: its name, associations and policy.
struct Bundle {
    name: &'static str,
    sas: &'static str,
    policy: &'static str,
}

const BUNDLES: [Bundle; 6] = [
    Bundle {
        name: "IPComp and ESP, transport",
        sas: "add 10.1.0.1 10.2.0.1 ipcomp 4097 -m transport -C deflate;
              add 10.1.0.1 10.2.0.1 esp 4098 -m transport -r 64 ESP;",
        policy: "10.1.0.1 10.2.0.1 any -P WAY ipsec ipcomp/transport//require esp/transport//require",
    },
    Bundle {
        name: "IPComp, ESP and AH, transport",
        sas: "add 10.1.0.1 10.2.0.1 ipcomp 4097 -C deflate;
              add 10.1.0.1 10.2.0.1 esp 4098 -r 64 ESP;
              add 10.1.0.1 10.2.0.1 ah 4099 -r 64 AH;",
        policy:
            "10.1.0.1 10.2.0.1 any -P WAY ipsec ipcomp/transport//require esp/transport//require
                 ah/transport//require",
    },
    Bundle {
        name: "IPComp tunnel in ESP transport",
        sas: "add 192.0.2.1 192.0.2.2 ipcomp 4097 -m tunnel -C deflate;
              add 192.0.2.1 192.0.2.2 esp 4098 -m transport -r 64 ESP;",
        policy: "10.1.0.0/16 10.2.0.0/16 any -P WAY ipsec ipcomp/tunnel/192.0.2.1-192.0.2.2/require
                 esp/transport//require",
    },
    Bundle {
        name: "IPComp tunnel in ESP of mode any, as setkey leaves it",
        sas: "add 192.0.2.1 192.0.2.2 ipcomp 4097 -C deflate;
              add 192.0.2.1 192.0.2.2 esp 4098 -r 64 ESP;",
        policy: "10.1.0.0/16 10.2.0.0/16 any -P WAY ipsec ipcomp/tunnel/192.0.2.1-192.0.2.2/require
                 esp/transport//require",
    },
    Bundle {
        name: "IPComp tunnel in AH over IPv6",
        sas: "add 2001:db8::1 2001:db8::2 ipcomp 4097 -m tunnel -C deflate;
              add 2001:db8::1 2001:db8::2 ah 4098 -m transport -r 64 AH;",
        policy:
            "10.1.0.0/16 10.2.0.0/16 any -P WAY ipsec ipcomp/tunnel/2001:db8::1-2001:db8::2/require
                 ah/transport//require",
    },
    Bundle {
        name: "IPComp transport in an ESP tunnel",
        sas: "add 10.1.0.1 10.2.0.1 ipcomp 4097 -m transport -C deflate;
              add 192.0.2.1 192.0.2.2 esp-udp 4098 -m tunnel -r 64 ESP;",
        policy: "10.1.0.1 10.2.0.1 any -P WAY ipsec ipcomp/transport//require
                 esp/tunnel/192.0.2.1-192.0.2.2/require",
    },
];

impl Bundle {
    fn text(&self, direction: &str) -> String {
        let text = format!("{} spdadd {};", self.sas, self.policy);
        let ah = format!("-A hmac-sha2-256 {}", bytes("d4", 32));
        text.replace("ESP", &gcm())
            .replace("AH", &ah)
            .replace("WAY", direction)
    }

    fn world(&self) -> World {
        World::new(&self.text("out"), &self.text("in"), ALL_TRAINS, 65_535)
    }
}

/// Datagrams of every length around the threshold that deflate to almost nothing.
fn compressible() -> Vec<Vec<u8>> {
    (0..150)
        .map(|number| datagram(number, 8 + 9 * number as usize))
        .collect()
}

/// What nothing makes shorter.
fn noise(count: usize) -> Vec<Vec<u8>> {
    let mut chance = Chance(8);
    let packet = |_| tcp(false, 7, &chance.bytes(1000));
    (0..count).map(packet).collect()
}

fn carry(world: &mut World, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    for packet in packets {
        world.left_in.put(packet.clone(), Offload::default());
    }
    world.send();
    world.receive();
    delivered(world)
}

fn delivered(world: &World) -> Vec<Vec<u8>> {
    let trains = world.delivered().into_iter();
    let packets = trains.flat_map(|(train, offload)| segments(&train, offload));
    packets.map(without_identification).collect()
}

/// An AH around it may have needed another identification.
fn without_identification(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    } else {
        // The flow label is chosen again (docs/deviations.md).
        packet[1..4].fill(0);
    }
    packet
}

fn expected(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    packets
        .iter()
        .cloned()
        .map(without_identification)
        .collect()
}

fn usage(world: &World, right: bool, protocol: Protocol) -> SaUsage {
    let databases = if right {
        world.right_databases.load()
    } else {
        world.left_databases.load()
    };
    let mut sas = databases.sas();
    let sa = sas.find(|sa| sa.config.id.protocol == protocol);
    sa.unwrap().state.usage()
}

#[test]
fn what_can_be_compressed_and_what_cannot_arrive_byte_for_byte_through_every_bundle() {
    for bundle in &BUNDLES {
        let mut world = bundle.world();
        let mut sent = compressible();
        sent.extend(noise(30));
        let got = carry(&mut world, &sent);
        assert_eq!(got, expected(&sent), "{}", bundle.name);
        let (left, right) = world.balance();
        assert_eq!((left.packets, right.packets), (180, 180), "{}", bundle.name);
        assert_eq!(left.bytes, right.bytes, "{}", bundle.name);
    }
}

#[test]
fn trains_are_compressed_packet_by_packet_over_both_versions_of_ip() {
    for v6 in [false, true] {
        let mut world = World::new(&compressed("out"), &compressed("in"), ALL_TRAINS, 65_535);
        let train = tcp(v6, 7, &b"one line of a log, like many others\n".repeat(800));
        world.left_in.put(train.clone(), tso(1000));
        world.send();
        let on_the_wire: usize = world
            .wire
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|(burst, _)| burst.len())
            .sum();
        assert!(on_the_wire < train.len() / 3, "{on_the_wire}");
        world.receive();
        assert_eq!(delivered(&world), expected(&segments(&train, tso(1000))));
    }
}

#[test]
fn a_packet_that_does_not_become_shorter_has_no_ipcomp_header_and_no_overhead() {
    let plain = "add 10.1.0.1 10.2.0.1 esp 4098 -m transport -r 64 ESP;
                 spdadd 10.1.0.1 10.2.0.1 any -P WAY ipsec esp/transport//require;";
    let plain = plain.replace("ESP", &gcm()).replace("WAY", "out");
    let sizes = |text: &str| {
        let mut world = World::new(text, "", ALL_TRAINS, 65_535);
        for packet in noise(5) {
            world.left_in.put(packet, Offload::default());
        }
        world.send();
        let bursts = singly(world.wire.take_all());
        bursts
            .iter()
            .map(|(packet, _)| packet.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(&BUNDLES[0].text("out")), sizes(&plain));
}

#[test]
fn the_associations_count_what_they_carried_and_the_receiver_only_what_came_compressed() {
    let mut world = BUNDLES[0].world();
    let mut sent = compressible()[100..].to_vec();
    sent.extend(noise(3));
    carry(&mut world, &sent);
    assert_eq!(usage(&world, false, Protocol::IpComp).packets, 53);
    assert_eq!(usage(&world, true, Protocol::IpComp).packets, 50);
    assert_eq!(usage(&world, true, Protocol::Esp).packets, 53);
}

#[test]
fn a_hard_limit_of_ipcomp_ends_the_flow_by_name() {
    let limited = BUNDLES[0]
        .text("out")
        .replace("-C deflate", "-bh 3000 -C deflate");
    let mut world = World::new(&limited, &BUNDLES[0].text("in"), ALL_TRAINS, 65_535);
    let got = carry(
        &mut world,
        &[datagram(1, 1400), datagram(2, 1400), datagram(3, 1400)],
    );
    assert_eq!(got.len(), 2);
    assert_eq!(world.balance().0.drops[Dropped::LifetimeOver.index()], 1);
}

#[test]
fn the_well_known_cpi_is_that_of_the_association_between_the_two_hosts() {
    for bundle in &BUNDLES {
        let left = bundle.text("out").replace("ipcomp 4097", "ipcomp 2");
        let mut world = World::new(&left, &bundle.text("in"), ALL_TRAINS, 65_535);
        let sent = compressible();
        let got = carry(&mut world, &sent);
        assert_eq!(got, expected(&sent), "{}", bundle.name);
        assert!(usage(&world, true, Protocol::IpComp).packets > 100);
    }
}

#[test]
fn a_receiver_without_the_association_names_it_and_one_without_the_policy_refuses() {
    let unknown = BUNDLES[0].text("in").replace("ipcomp 4097", "ipcomp 4099");
    let mut world = World::new(&BUNDLES[0].text("out"), &unknown, ALL_TRAINS, 65_535);
    carry(&mut world, &[datagram(1, 1000)]);
    assert_eq!(world.balance().1.drops[Dropped::NoSa.index()], 1);
    let without = BUNDLES[0]
        .text("in")
        .replace("ipcomp/transport//require", "");
    let mut world = World::new(&BUNDLES[0].text("out"), &without, ALL_TRAINS, 65_535);
    carry(&mut world, &[datagram(1, 1000)]);
    assert_eq!(world.balance().1.drops[Dropped::PolicyMismatch.index()], 1);
}

/// A world whose left end sends raw IPComp packets of its own making through ESP alone.
fn forged(payload: &[u8]) -> World {
    let left = "add 10.1.0.1 10.2.0.1 esp 4098 -m transport -r 64 ESP;
                spdadd 10.1.0.1 10.2.0.1 any -P out ipsec esp/transport//require;";
    let left = left.replace("ESP", &gcm());
    let mut world = World::new(&left, &BUNDLES[0].text("in"), ALL_TRAINS, 65_535);
    let mut packet = Vec::new();
    let ip = etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64);
    let mut body = vec![17, 0, 0x10, 0x01];
    body.extend_from_slice(payload);
    ip.write(&mut packet, etherparse::IpNumber(108), &body)
        .unwrap();
    world.left_in.put(packet, Offload::default());
    world.send();
    world.receive();
    world
}

#[test]
fn a_bomb_and_what_is_no_deflate_are_dropped_by_name() {
    let garbage = forged(&[0xff; 40]);
    let drops = garbage.balance().1.drops;
    assert_eq!(drops[Dropped::BadCompression.index()], 1);
    let mut bomb = Vec::new();
    assert!(Compressor::default().compress(17, 4097, &[0; 70_000], &mut bomb));
    let drops = forged(&bomb[ipcomp::HEADER_LEN..]).balance().1.drops;
    assert_eq!(drops[Dropped::ExpandsTooFar.index()], 1);
    let short = forged(&[]).balance().1.drops;
    assert_eq!(short[Dropped::BadCompression.index()], 1);
}

#[test]
fn what_stands_behind_nothing_but_ipcomp_is_never_sent() {
    // The ESP association is missing, and its template is optional.
    let text = BUNDLES[0]
        .text("out")
        .replace("esp/transport//require", "esp/transport//use");
    let text = text.replace("esp 4098", "esp 4098 -u 7");
    let mut world = World::new(&text, "", ALL_TRAINS, 65_535);
    world.left_in.put(datagram(1, 1000), Offload::default());
    world.send();
    let (left, _) = world.balance();
    assert_eq!((left.packets, left.drops[Dropped::Acquire.index()]), (0, 1));
}

#[test]
fn packets_that_do_not_become_shorter_and_fill_the_path_fit_it_exactly() {
    for bundle in &BUNDLES {
        let mut world = World::new(&bundle.text("out"), &bundle.text("in"), ALL_TRAINS, 1400);
        let mut chance = Chance(9);
        for len in 1100..1372 {
            let mut packet = tcp(false, 7, &chance.bytes(len - 40));
            packet[6] |= 0x40;
            ipsec::wire::ip::v4::finish_checksum(&mut packet);
            world.left_in.put(packet, Offload::default());
        }
        world.send();
        let largest = world.longest_on_the_wire();
        assert!(
            (1376..=1400).contains(&largest),
            "{}: {largest}",
            bundle.name
        );
        assert!(!world.replies.take_all().is_empty(), "{}", bundle.name);
    }
}

#[test]
fn the_header_is_four_bytes_and_small_packets_have_none() {
    let mut world = BUNDLES[0].world();
    let small = datagram(1, ipcomp::MIN_PAYLOAD_LEN - 9);
    carry(&mut world, &[small]);
    assert_eq!(usage(&world, true, Protocol::IpComp).packets, 0);
    carry(&mut world, &[datagram(2, ipcomp::MIN_PAYLOAD_LEN - 8)]);
    assert_eq!(usage(&world, true, Protocol::IpComp).packets, 1);
    let id = SaId {
        destination: "10.2.0.1".parse().unwrap(),
        protocol: Protocol::IpComp,
        spi: Spi::new(4097).unwrap(),
    };
    assert!(world.right_databases.load().find(&id).is_some());
}
