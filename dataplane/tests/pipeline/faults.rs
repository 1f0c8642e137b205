//! A bad network and bad packets: what arrives is exact, what does not is counted by name.

use crate::world::*;
use dataplane::io::Arrival;
use dataplane::train::Offload;
use ipsec::Dropped;

/// What a seeded network did to the packets.
#[derive(Default)]
struct Weather {
    lost: u64,
    doubled: u64,
    damaged: u64,
}

/// Loses, doubles, damages and delays, by chance.
fn storm(
    packets: Vec<(Vec<u8>, Arrival)>,
    chance: &mut Chance,
) -> (Vec<(Vec<u8>, Arrival)>, Weather) {
    let mut weather = Weather::default();
    let mut through = Vec::new();
    for (packet, arrival) in packets {
        match chance.below(20) {
            0 => weather.lost += 1,
            1 => {
                weather.doubled += 1;
                through.push((packet.clone(), arrival));
                through.push((packet, arrival));
            }
            2 => {
                weather.damaged += 1;
                let mut packet = packet;
                // Behind SPI and sequence number, whose change would be named otherwise.
                let at = 8 + chance.below(packet.len() as u64 - 8) as usize;
                packet[at] ^= 1 + chance.below(255) as u8;
                through.push((packet, arrival));
            }
            _ => through.push((packet, arrival)),
        }
        if chance.below(10) == 0 && through.len() > 4 {
            let (last, earlier) = (
                through.len() - 1,
                through.len() - 1 - chance.below(4) as usize,
            );
            through.swap(last, earlier);
        }
    }
    (through, weather)
}

#[test]
fn through_loss_duplication_damage_and_reordering_what_arrives_is_exact_and_all_else_is_accounted_for()
 {
    for (seed, suite) in [(1, gcm()), (2, cbc_sha1()), (3, gcm())] {
        let mut world = World::tunnel(&suite, "esp-udp");
        let mut chance = Chance(seed);
        let count = 5000;
        for number in 0..count {
            world.left_in.put(
                datagram(number, chance.below(1400) as usize),
                Offload::default(),
            );
        }
        world.send();
        let sent = singly(world.wire.take_all());
        assert_eq!(sent.len() as u64, count);
        let (through, weather) = storm(sent, &mut chance);
        for (packet, arrival) in through {
            world.wire.put(packet, arrival);
        }
        world.receive();
        let mut numbers = world.delivered_numbers();
        numbers.sort_unstable();
        let delivered = numbers.len() as u64;
        numbers.dedup();
        assert_eq!(
            numbers.len() as u64,
            delivered,
            "something was delivered twice"
        );
        let (left, right) = world.balance();
        let drops = |reason: Dropped| right.drops[reason.index()];
        assert_eq!(left.packets, count);
        assert_eq!(right.arrived, count - weather.lost + weather.doubled);
        assert_eq!(drops(Dropped::BadIcv), weather.damaged);
        assert_eq!(drops(Dropped::Replayed), weather.doubled);
        assert_eq!(delivered, count - weather.lost - weather.damaged);
    }
}

#[test]
fn a_storm_of_malformed_packets_delivers_nothing_moves_no_window_and_is_counted() {
    let mut world = World::tunnel(&gcm(), "esp-udp");
    for number in 0..200 {
        world.left_in.put(datagram(number, 200), Offload::default());
    }
    world.send();
    let genuine = singly(world.wire.take_all());
    let mut chance = Chance(99);
    let mut storms = 0;
    for round in 0..20_000 {
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
    assert!(world.delivered().is_empty());
    let (_, right) = world.balance();
    assert_eq!(right.dropped(), storms);
    for (packet, arrival) in genuine {
        world.wire.put(packet, arrival);
    }
    world.receive();
    assert_eq!(world.balance().1.packets, 200);
}

#[test]
fn malformed_plaintext_is_dropped_by_name_and_leaves_nothing() {
    let mut world = World::tunnel(&gcm(), "esp");
    let mut chance = Chance(123);
    let whole = tcp(false, 5, &chance.bytes(3000));
    for _ in 0..5000 {
        let mut item = whole.clone();
        match chance.below(3) {
            0 => item.truncate(chance.below(item.len() as u64) as usize),
            1 => {
                let (at, bit) = (chance.below(40) as usize, 1 << chance.below(8));
                item[at] ^= bit;
            }
            _ => item = chance.noise(100),
        }
        world.left_in.put(item, tso(1 + chance.below(1400) as u16));
    }
    world.send();
    let (left, _) = world.balance();
    assert!(left.dropped() > 1000);
    world.receive();
    world.balance();
}

#[test]
fn lying_strides_and_empty_items_do_no_harm() {
    let mut world = World::tunnel(&gcm(), "esp-udp");
    world.left_in.put(datagram(1, 200), Offload::default());
    world.send();
    let (packet, arrival) = world.wire.take_all().remove(0);
    for stride in [0, 1, 7, packet.len() - 1, packet.len() + 1, usize::MAX / 2] {
        world
            .wire
            .put(packet.clone(), Arrival { stride, ..arrival });
    }
    world.wire.put(Vec::new(), arrival);
    world.receive();
    // The two that are longer than the packet leave it whole: one is delivered, one a replay.
    assert_eq!(world.balance().1.packets, 1);
}
