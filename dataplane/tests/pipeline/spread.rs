//! Flows of one policy over several associations: each in order, all of them there.

use crate::world::*;
use dataplane::io::Arrival;
use dataplane::train::Offload;
use etherparse::PacketBuilder;
use std::collections::{BTreeMap, BTreeSet};

const SPIS: [u32; 4] = [0x1001, 0x1002, 0x1003, 0x1004];
const FLOWS: u16 = 64;

fn associations() -> String {
    let add = |spi| {
        format!(
            "add 192.0.2.1 192.0.2.2 esp-udp {spi:#x} -m tunnel -r 1024 {};",
            gcm()
        )
    };
    SPIS.map(add).concat()
}

fn text(direction: &str, options: &str) -> String {
    let template = "esp/tunnel/192.0.2.1-192.0.2.2/require";
    format!(
        "{} spdadd 10.1.0.0/16 10.2.0.0/16 any {options} -P {direction} ipsec {template};",
        associations()
    )
}

fn gateways() -> World {
    World::new(
        &text("out", "-o spread=4"),
        &text("in", ""),
        ALL_TRAINS,
        65_535,
    )
}

/// The `number`th datagram of the flow from this port.
fn datagram_of(port: u16, number: u64) -> Vec<u8> {
    let builder = PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64).udp(port, 2000);
    let mut packet = Vec::new();
    builder.write(&mut packet, &number.to_be_bytes()).unwrap();
    packet
}

fn port_of(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[20], packet[21]])
}

/// Sends packet after packet, flows taking turns by chance, in several batches.
fn send_mixed(world: &mut World, each: u64) {
    let mut chance = Chance(5);
    let mut sent = vec![0; FLOWS.into()];
    let mut left = u64::from(FLOWS) * each;
    while left > 0 {
        let flow = chance.below(FLOWS.into()) as usize;
        if sent[flow] < each {
            let packet = datagram_of(1000 + flow as u16, sent[flow]);
            world.left_in.put(packet, Offload::default());
            (sent[flow], left) = (sent[flow] + 1, left - 1);
        }
    }
    world.send();
}

/// The numbers that arrived of each flow, in the order of their arrival.
fn arrived(world: &World) -> BTreeMap<u16, Vec<u64>> {
    let mut flows: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for (train, offload) in world.delivered() {
        for packet in segments(&train, offload) {
            flows
                .entry(port_of(&packet))
                .or_default()
                .push(number_of(&packet));
        }
    }
    flows
}

fn spi_of((packet, _): &(Vec<u8>, Arrival)) -> u32 {
    u32::from_be_bytes(packet[..4].try_into().unwrap())
}

#[test]
fn flows_take_all_associations_and_each_arrives_whole_and_in_order() {
    let mut world = gateways();
    send_mixed(&mut world, 20);
    let wire = singly(world.wire.take_all());
    let spis: BTreeSet<u32> = wire.iter().map(spi_of).collect();
    assert_eq!(spis, SPIS.into());
    for (burst, arrival) in wire {
        world.wire.put(burst, arrival);
    }
    world.receive();
    let flows = arrived(&world);
    assert_eq!(flows.len(), FLOWS.into());
    for (port, numbers) in flows {
        assert_eq!(
            numbers,
            (0..20).collect::<Vec<_>>(),
            "flow from port {port}"
        );
    }
    let (_, right) = world.balance();
    assert_eq!(right.dropped(), 0);
}

#[test]
fn associations_that_run_at_different_speeds_disturb_no_flow() {
    let mut world = gateways();
    send_mixed(&mut world, 10);
    // All packets of one SA arrive before those of the next, as with a receive queue for each SA.
    let mut wire = singly(world.wire.take_all());
    wire.sort_by_key(|burst| std::cmp::Reverse(spi_of(burst)));
    for (burst, arrival) in wire {
        world.wire.put(burst, arrival);
    }
    world.receive();
    let flows = arrived(&world);
    assert!(
        flows.len() == usize::from(FLOWS)
            && flows
                .values()
                .all(|numbers| *numbers == (0..10).collect::<Vec<_>>())
    );
}

#[test]
fn a_train_goes_through_one_association() {
    let mut world = gateways();
    world
        .left_in
        .put(tcp(false, 1, &vec![7; 30_000]), tso(1000));
    world.send();
    let wire = singly(world.wire.take_all());
    assert_eq!(wire.len(), 30);
    assert_eq!(wire.iter().map(spi_of).collect::<BTreeSet<_>>().len(), 1);
}

#[test]
fn after_an_association_is_deleted_its_flows_go_on_through_the_others() {
    let mut world = gateways();
    send_mixed(&mut world, 5);
    let before = singly(world.wire.take_all());
    let rest = associations().split_once(';').unwrap().1.to_owned();
    let policy = text("out", "-o spread=4").replace(&associations(), "");
    world
        .left_databases
        .store(database(&(rest + &policy)).snapshot());
    send_mixed(&mut world, 5);
    let after = singly(world.wire.take_all());
    let spis: BTreeSet<u32> = after.iter().map(spi_of).collect();
    assert!(before.iter().any(|burst| spi_of(burst) == SPIS[0]));
    assert_eq!(spis, SPIS[1..].iter().copied().collect());
    assert_eq!((before.len(), after.len()), (320, 320));
}
