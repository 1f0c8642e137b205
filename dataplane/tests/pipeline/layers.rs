//! AH, bundles, options and extension headers: every layer comes off as it went on, and nothing else passes.

use crate::world::*;
use dataplane::io::Arrival;
use dataplane::train::Offload;
use ipsec::Dropped;
use ipsec::sa::{Protocol, SaId, Spi};

fn sha256() -> String {
    format!("-A hmac-sha2-256 {}", bytes("d4", 32))
}

/// Whose IV each packet carries, and a counter makes.
fn gmac() -> String {
    format!("-A aes-128-gmac {}", bytes("e6", 20))
}

fn sha256_esn() -> String {
    format!("-o esn {}", sha256())
}

/// One way through: associations, and the policy as its sending or receiving end writes it.
struct Way {
    name: &'static str,
    sas: Vec<String>,
    selectors: (&'static str, &'static str),
    templates: &'static str,
}

impl Way {
    fn text(&self, direction: &str) -> String {
        let (source, destination) = self.selectors;
        format!(
            "{} spdadd {source} {destination} any -P {direction} ipsec {};",
            self.sas.join(" "),
            self.templates
        )
    }

    fn world(&self) -> World {
        self.world_over(65_535)
    }

    fn world_over(&self, mtu: usize) -> World {
        World::new(&self.text("out"), &self.text("in"), ALL_TRAINS, mtu)
    }
}

type Ends = (&'static str, &'static str);

const HOSTS: Ends = ("10.1.0.1", "10.2.0.1");
const HOSTS_V6: Ends = ("fd01::", "fd02::");
const NETS: Ends = ("10.1.0.0/16", "10.2.0.0/16");
const OUTER: Ends = ("192.0.2.1", "192.0.2.2");
const OUTER_V6: Ends = ("2001:db8::1", "2001:db8::2");

/// One association: its two ends, protocol, mode, suite. The innermost has SPI 0x1001, the next 0x1002 …
type Row = (Ends, &'static str, &'static str, fn() -> String);

/// AH by itself in each shape, and bundles in every order that a policy may name.
const WAYS: [(&str, Ends, &str, &[Row]); 11] = [
    (
        "AH tunnel, IPv4 in IPv4",
        NETS,
        "ah/tunnel/192.0.2.1-192.0.2.2/require",
        &[(OUTER, "ah", "tunnel", sha256)],
    ),
    (
        "AH tunnel, IPv4 in IPv6, extended numbers",
        NETS,
        "ah/tunnel/2001:db8::1-2001:db8::2/require",
        &[(OUTER_V6, "ah", "tunnel", sha256_esn)],
    ),
    (
        "AH transport",
        HOSTS,
        "ah/transport//require",
        &[(HOSTS, "ah", "transport", sha256)],
    ),
    (
        "ESP then AH, both transport",
        HOSTS,
        "esp/transport//require ah/transport//require",
        &[
            (HOSTS, "esp", "transport", cbc_sha1),
            (HOSTS, "ah", "transport", sha256),
        ],
    ),
    (
        "AH then ESP, both transport",
        HOSTS,
        "ah/transport//require esp/transport//require",
        &[
            (HOSTS, "esp", "transport", gcm),
            (HOSTS, "ah", "transport", sha256),
        ],
    ),
    (
        "ESP tunnel, AH transport around it",
        NETS,
        "esp/tunnel/192.0.2.1-192.0.2.2/require ah/transport//require",
        &[
            (OUTER, "esp", "tunnel", gcm),
            (OUTER, "ah", "transport", sha256),
        ],
    ),
    (
        "ESP tunnel in AH tunnel over IPv6",
        NETS,
        "esp/tunnel/192.0.2.1-192.0.2.2/require ah/tunnel/2001:db8::1-2001:db8::2/require",
        &[
            (OUTER, "esp", "tunnel", cbc_sha1),
            (OUTER_V6, "ah", "tunnel", sha256),
        ],
    ),
    (
        "AH transport in ESP tunnel in UDP",
        HOSTS,
        "ah/transport//require esp/tunnel/192.0.2.1-192.0.2.2/require",
        &[
            (HOSTS, "ah", "transport", sha256),
            (OUTER, "esp-udp", "tunnel", gcm),
        ],
    ),
    (
        "four layers: ESP and AH, transport and tunnel",
        HOSTS,
        "esp/transport//require ah/transport//require \
         esp/tunnel/192.0.2.1-192.0.2.2/require ah/transport//require",
        &[
            (HOSTS, "esp", "transport", gcm),
            (HOSTS, "ah", "transport", sha256),
            (OUTER, "esp", "tunnel", cbc_sha1),
            (OUTER, "ah", "transport", sha256),
        ],
    ),
    (
        "AH tunnel by AES-GMAC, IPv4 in IPv6",
        NETS,
        "ah/tunnel/2001:db8::1-2001:db8::2/require",
        &[(OUTER_V6, "ah", "tunnel", gmac)],
    ),
    (
        "ESP then AH by AES-GMAC, both transport",
        HOSTS,
        "esp/transport//require ah/transport//require",
        &[
            (HOSTS, "esp", "transport", gcm),
            (HOSTS, "ah", "transport", gmac),
        ],
    ),
];

fn way(name: &'static str, selectors: Ends, templates: &'static str, rows: &[Row]) -> Way {
    let add = |(spi, ((source, destination), protocol, mode, suite)): (u32, &Row)| {
        let suite = suite();
        format!("add {source} {destination} {protocol} {spi} -m {mode} -r 64 {suite};")
    };
    Way {
        name,
        sas: (0x1001..).zip(rows).map(add).collect(),
        selectors,
        templates,
    }
}

fn ways() -> impl Iterator<Item = Way> {
    let all = WAYS.iter();
    all.map(|(name, selectors, templates, rows)| way(name, *selectors, templates, rows))
}

/// ESP then AH, both in transport mode.
fn both() -> Way {
    let (name, selectors, templates, rows) = WAYS[3];
    way(name, selectors, templates, rows)
}

#[test]
fn single_packets_and_trains_arrive_byte_for_byte_through_every_bundle() {
    for way in ways() {
        let mut world = way.world();
        let sent: Vec<_> = (0..150)
            .map(|number| datagram(number, 8 + 9 * number as usize))
            .collect();
        for packet in &sent {
            world.left_in.put(packet.clone(), Offload::default());
        }
        let whole = tcp(false, 7, &Chance(8).bytes(30_000));
        world.left_in.put(whole.clone(), tso(1000));
        world.send();
        world.receive();
        let (left, right) = world.balance();
        assert_eq!((left.packets, right.packets), (180, 180), "{}", way.name);
        assert_eq!(left.bytes, right.bytes, "{}", way.name);
        let got: Vec<_> = world
            .delivered()
            .into_iter()
            .flat_map(|(train, offload)| segments(&train, offload))
            .collect();
        let expected: Vec<_> = sent
            .into_iter()
            .chain(segments(&whole, tso(1000)))
            .collect();
        // Where an identification was 0 the outer AH may need another one.
        assert_eq!(anonymous(&got), anonymous(&expected), "{}", way.name);
    }
}

fn anonymous(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let anonymous = |packet: &Vec<u8>| {
        let mut packet = packet.clone();
        packet[4..6].fill(0);
        packet[10..12].fill(0);
        packet
    };
    packets.iter().map(anonymous).collect()
}

#[test]
fn a_change_of_any_byte_drops_the_packet_by_name_and_moves_no_window() {
    for way in ways() {
        let mut world = way.world();
        world.left_in.put(datagram(1, 60), Offload::default());
        world.send();
        let (packet, arrival) = world.wire.take_all().remove(0);
        let written = usize::from(arrival.outer.emitted_len);
        let is_v6 = arrival.outer.destination.is_ipv6();
        let mutable: &[usize] = if is_v6 {
            &[1, 2, 3, 7]
        } else {
            &[1, 6, 7, 8, 10, 11]
        };
        // AH does not cover fields that routers change; ESP covers no field of the header before it.
        let covers_header = arrival.outer.protocol == Protocol::Ah.number();
        let mut tried = 0;
        for at in 0..packet.len() {
            if at < written && (mutable.contains(&at) || !covers_header) {
                continue;
            }
            tried += 1;
            let mut changed = packet.clone();
            changed[at] ^= 0x10;
            world.wire.put(changed, arrival);
        }
        world.receive();
        let (_, right) = world.balance();
        assert_eq!(right.packets, 0, "{}", way.name);
        assert_eq!(right.dropped(), tried, "{}", way.name);
        for sa in world.right_databases.load().sas() {
            assert_eq!(sa.state.usage().sequence, 0, "{}", way.name);
        }
        world.wire.put(packet, arrival);
        world.receive();
        assert_eq!(world.balance().1.packets, 1, "{}", way.name);
    }
}

#[test]
fn each_association_of_a_bundle_counts_moves_its_window_and_refuses_a_replay() {
    for way in ways() {
        let mut world = way.world();
        for number in 0..10 {
            world.left_in.put(datagram(number, 100), Offload::default());
        }
        world.send();
        let sent = singly(world.wire.take_all());
        for (packet, arrival) in sent.iter().chain(&sent) {
            world.wire.put(packet.clone(), *arrival);
        }
        world.receive();
        let (_, right) = world.balance();
        assert_eq!(right.packets, 10, "{}", way.name);
        assert_eq!(right.drops[Dropped::Replayed.index()], 10, "{}", way.name);
        let (left, right) = (world.left_databases.load(), world.right_databases.load());
        for (left, right) in left.sas().zip(right.sas()) {
            let (left, right) = (left.state.usage(), right.state.usage());
            assert_eq!((left.packets, right.packets), (10, 10), "{}", way.name);
            assert_eq!(
                (right.sequence, right.bytes),
                (10, left.bytes),
                "{}",
                way.name
            );
        }
    }
}

#[test]
fn a_bundle_with_a_layer_missing_or_too_many_is_a_policy_mismatch() {
    let both = both();
    let esp_alone = both.text("out").replace("ah/transport//require", "");
    let ah_alone = both.text("out").replace("esp/transport//require", "");
    for (left, right) in [
        (esp_alone.clone(), both.text("in")),
        (ah_alone.clone(), both.text("in")),
        (both.text("out"), ah_alone.replace("-P out", "-P in")),
        (both.text("out"), esp_alone.replace("-P out", "-P in")),
    ] {
        let mut world = World::new(&left, &right, ALL_TRAINS, 65_535);
        world.left_in.put(datagram(1, 100), Offload::default());
        world.send();
        world.receive();
        let (left, right) = world.balance();
        assert_eq!(left.packets, 1);
        assert_eq!(right.drops[Dropped::PolicyMismatch.index()], 1);
    }
}

#[test]
fn an_inner_layer_that_is_forged_moves_the_outer_window_alone() {
    // A right end that has another key for the inner association.
    let both = both();
    let right = both
        .text("in")
        .replace("b2b2", "b3b2")
        .replace("c3c3", "c4c3");
    let mut world = World::new(&both.text("out"), &right, ALL_TRAINS, 65_535);
    world.left_in.put(datagram(1, 100), Offload::default());
    world.send();
    world.receive();
    let (_, right) = world.balance();
    assert_eq!(right.drops[Dropped::BadIcv.index()], 1);
    let databases = world.right_databases.load();
    let tally = |protocol, spi| {
        let id = SaId {
            destination: "10.2.0.1".parse().unwrap(),
            protocol,
            spi: Spi::new(spi).unwrap(),
        };
        let sa = databases.sa(databases.find(&id).unwrap());
        (sa.state.usage().sequence, sa.state.drops())
    };
    assert_eq!(tally(Protocol::Ah, 0x1002), (1, vec![]));
    assert_eq!(
        tally(Protocol::Esp, 0x1001),
        (0, vec![(Dropped::BadIcv, 1)])
    );
}

#[test]
fn an_unknown_association_inside_is_named() {
    let both = both();
    let right = both.text("in").replace("esp 4097", "esp 4099");
    let mut world = World::new(&both.text("out"), &right, ALL_TRAINS, 65_535);
    world.left_in.put(datagram(1, 100), Offload::default());
    world.send();
    world.receive();
    assert_eq!(world.balance().1.drops[Dropped::NoSa.index()], 1);
}

#[test]
fn packets_that_fill_the_path_through_a_bundle_fit_it_exactly() {
    for way in ways() {
        let mut world = way.world_over(1400);
        for len in 1100..1372 {
            let mut packet = datagram(1, len);
            packet[6] |= 0x40;
            ipsec::wire::ip::v4::finish_checksum(&mut packet);
            world.left_in.put(packet, Offload::default());
        }
        world.send();
        let largest = world.longest_on_the_wire();
        // A block of 16, and what alignment leaves.
        assert!((1376..=1400).contains(&largest), "{}: {largest}", way.name);
        let errors = world.replies.take_all();
        assert!(!errors.is_empty(), "{}", way.name);
    }
}

/// IPv4 with a router alert and a record of the route, or IPv6 with hop-by-hop and destination options.
fn rare(v6: bool) -> Vec<u8> {
    let udp = [0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4];
    if v6 {
        let mut packet = vec![0x60, 0, 0, 0, 0, 28, 0, 64];
        for first in [1, 2] {
            packet.extend([0xfd, first]);
            packet.extend([0; 14]);
        }
        // Router alert, and an option that may change on the way; then padding for the final destination.
        packet.extend([60, 0, 5, 2, 0, 0, 1, 0]);
        packet.extend([17, 0, 0x3e, 2, 9, 9, 1, 0]);
        packet.extend(udp);
        return packet;
    }
    let mut packet = vec![
        0x48, 0, 0, 44, 0, 9, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1,
    ];
    packet.extend([148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0]);
    packet.extend(udp);
    ipsec::wire::ip::v4::finish_checksum(&mut packet);
    packet
}

#[test]
fn options_and_extension_headers_stay_outside_and_come_back() {
    for (v6, ends) in [(false, HOSTS), (true, HOSTS_V6)] {
        let rows: [Row; 2] = [
            (ends, "esp", "transport", gcm),
            (ends, "ah", "transport", sha256),
        ];
        for templates in [
            "esp/transport//require",
            "ah/transport//require",
            "esp/transport//require ah/transport//require",
        ] {
            let mut world = way(templates, ends, templates, &rows).world();
            world.left_in.put(rare(v6), Offload::default());
            world.send();
            let (packet, arrival) = world.wire.take_all().remove(0);
            // RFC 4302 3.1.1: behind hop-by-hop options, before those for the destination.
            let written = if v6 { 48 } else { 32 };
            assert_eq!(
                usize::from(arrival.outer.emitted_len),
                written,
                "{templates}"
            );
            world.wire.put(packet, arrival);
            world.receive();
            let delivered = world.delivered();
            world.balance();
            assert_eq!(delivered[0].0, rare(v6), "{templates}");
        }
    }
}

#[test]
fn an_outer_layer_in_udp_alone_may_be_in_udp() {
    let rows: [Row; 2] = [
        (OUTER, "esp-udp", "tunnel", gcm),
        (OUTER, "ah", "transport", sha256),
    ];
    let templates = "esp/tunnel/192.0.2.1-192.0.2.2/require ah/transport//require";
    let way = way("ESP in UDP inside AH", NETS, templates, &rows);
    let mut world = way.world();
    world.left_in.put(datagram(1, 100), Offload::default());
    world.send();
    assert_eq!(world.balance().0.drops[Dropped::Unsupported.index()], 1);
}

#[test]
fn damaged_bundles_in_every_length_do_no_harm() {
    let mut chance = Chance(77);
    for way in ways() {
        let mut world = way.world();
        for number in 0..20 {
            world.left_in.put(datagram(number, 120), Offload::default());
        }
        world.send();
        let genuine = singly(world.wire.take_all());
        let mut storms = 0;
        for round in 0..2000 {
            let (packet, arrival) = genuine[round % genuine.len()].clone();
            let packet = chance.spoil(packet);
            if packet.is_empty() {
                continue;
            }
            storms += 1;
            let stride = packet.len();
            world.wire.put(packet, Arrival { stride, ..arrival });
        }
        world.receive();
        let (_, right) = world.balance();
        assert_eq!(right.arrived, storms, "{}", way.name);
    }
}
