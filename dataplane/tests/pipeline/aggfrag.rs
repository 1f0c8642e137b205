//! AGGFRAG mode (RFC 9347): packets share payloads and go on in the next, and come out as they went in.

use crate::world::*;
use dataplane::io::Arrival;
use dataplane::train::{Offload, TrainKinds};
use ipsec::Dropped;
use std::time::{Duration, Instant};

fn world(options: &str, path_mtu: usize) -> World {
    let text = |right| tunnel(&format!("-o aggfrag {options} {}", gcm()), "esp", right);
    World::new(&text(false), &text(true), TrainKinds::default(), path_mtu)
}

fn put(world: &World, packets: &[Vec<u8>]) {
    for packet in packets {
        world.left_in.put(packet.clone(), Offload::default());
    }
}

fn delivered(world: &World) -> Vec<Vec<u8>> {
    let packets = world.delivered().into_iter();
    packets.map(|(packet, _)| packet).collect()
}

fn datagrams(numbers: std::ops::Range<u64>, len: impl Fn(u64) -> usize) -> Vec<Vec<u8>> {
    numbers
        .map(|number| datagram(number, len(number)))
        .collect()
}

#[test]
fn small_packets_of_a_batch_share_few_outer_ones_and_arrive_as_they_were() {
    let mut world = world("", 1500);
    let sent = datagrams(0..60, |_| 36);
    put(&world, &sent);
    world.send();
    let outer = singly(world.wire.take_all());
    // 60 packets of 64 bytes, in payloads of up to 1434.
    assert_eq!(outer.len(), 3);
    for (packet, arrival) in outer {
        world.wire.put(packet, arrival);
    }
    world.receive();
    assert_eq!(delivered(&world), sent);
    let (left, right) = world.balance();
    assert_eq!((left.packets, right.packets), (3, 60));
    assert_eq!(left.bytes, right.bytes);
}

#[test]
fn packets_of_every_length_cross_any_path_without_being_cut_or_refused() {
    for path_mtu in [300, 576, 1280, 1500] {
        let mut world = world("", path_mtu);
        let sent = datagrams(0..200, |number| 8 + 37 * number as usize);
        put(&world, &sent);
        world.send();
        let outer = singly(world.wire.take_all());
        assert!(
            outer
                .iter()
                .all(|(packet, _)| packet.len() + 20 <= path_mtu)
        );
        for (packet, arrival) in outer {
            world.wire.put(packet, arrival);
        }
        world.receive();
        assert!(delivered(&world) == sent, "{path_mtu}");
        assert_eq!(world.replies.take_all().len(), 0);
        assert_eq!(world.balance().1.dropped(), 0);
    }
}

#[test]
fn segments_of_a_super_packet_arrive_as_the_sender_would_have_sent_them() {
    for v6 in [false, true] {
        let mut world = world("", 1500);
        let whole = tcp(v6, 1_000_000, &Chance(5).bytes(30_000));
        world.left_in.put(whole.clone(), tso(1400));
        world.send();
        world.receive();
        assert_eq!(delivered(&world), segments(&whole, tso(1400)));
        world.balance();
    }
}

#[test]
fn what_belongs_together_comes_out_as_one_train() {
    let text = |right| tunnel(&format!("-o aggfrag {}", gcm()), "esp", right);
    let mut world = World::new(&text(false), &text(true), ALL_TRAINS, 1500);
    let whole = tcp(false, 1_000_000, &Chance(6).bytes(30_000));
    world.left_in.put(whole.clone(), tso(1000));
    world.send();
    world.receive();
    let delivered = world.delivered();
    assert_eq!(delivered.len(), 1);
    assert_eq!(
        segments(&delivered[0].0, delivered[0].1),
        segments(&whole, tso(1000))
    );
}

#[test]
fn without_fragments_each_outer_packet_has_whole_ones_and_too_large_ones_are_refused() {
    let mut world = world("-o dont-frag", 576);
    let mut sent = datagrams(0..40, |number| 8 + 11 * number as usize);
    put(&world, &sent);
    put(&world, &[datagram(99, 600)]);
    world.send();
    world.receive();
    let (left, _) = world.balance();
    assert_eq!(left.drops[Dropped::TooBig.index()], 1);
    assert_eq!(world.replies.take_all().len(), 1);
    sent.retain(|packet| packet.len() <= 576 - 20 - 8 - 8 - 16 - 2 - 4);
    assert_eq!(delivered(&world), sent);
}

/// Sends everything, changes what is on the wire, and receives; waits as long as a receiver does.
fn through(
    world: &mut World,
    sent: &[Vec<u8>],
    change: impl Fn(Vec<(Vec<u8>, Arrival)>) -> Vec<(Vec<u8>, Arrival)>,
) -> Vec<Vec<u8>> {
    put(world, sent);
    world.send();
    for (packet, arrival) in change(singly(world.wire.take_all())) {
        world.wire.put(packet, arrival);
    }
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        world.receive();
        std::thread::sleep(Duration::from_millis(5));
    }
    delivered(world)
}

#[test]
fn what_is_overtaken_within_the_window_comes_out_in_order() {
    let mut world = world("", 576);
    let sent = datagrams(0..100, |number| 20 + 13 * (number as usize % 90));
    let arrived = through(&mut world, &sent, |mut wire| {
        wire.chunks_mut(4).for_each(<[_]>::reverse);
        wire
    });
    assert_eq!(arrived, sent);
    assert_eq!(world.balance().1.dropped(), 0);
}

#[test]
fn what_waits_for_a_lost_payload_comes_out_by_itself_in_time() {
    let mut world = world("", 576);
    let sent = datagrams(0..10, |_| 400);
    // The last but one is lost: nothing follows that could push the last one out.
    let arrived = through(&mut world, &sent, |mut wire| {
        wire.remove(wire.len() - 2);
        wire
    });
    assert!(arrived.len() >= 7 && arrived.len() < 10);
    assert!(sent.starts_with(&arrived[..7]));
    let (_, right) = world.balance();
    assert!(right.drops[Dropped::Incomplete.index()] > 0);
}

#[test]
fn under_seeded_loss_doubling_and_disorder_a_subset_comes_out_in_order() {
    for seed in 1..6 {
        let mut world = world("-o aggfrag-wait=20", 576);
        let sent = datagrams(0..300, |number| 20 + 7 * (number as usize % 150));
        let arrived = through(&mut world, &sent, |wire| {
            let (mut chance, mut changed) = (Chance(seed), Vec::new());
            for (place, packet) in (0..).zip(wire) {
                match chance.below(20) {
                    0 => {}
                    1 => changed.extend([(place, packet.clone()), (place + 2, packet)]),
                    2 => changed.push((place + chance.below(9), packet)),
                    _ => changed.push((place, packet)),
                }
            }
            changed.sort_by_key(|(place, _)| *place);
            changed.into_iter().map(|(_, packet)| packet).collect()
        });
        let mut rest = sent.iter();
        assert!(
            arrived
                .iter()
                .all(|packet| rest.any(|other| other == packet)),
            "seed {seed}"
        );
        assert!(arrived.len() > 150, "seed {seed}: {}", arrived.len());
        world.balance();
    }
}

#[test]
fn a_change_of_any_byte_on_the_wire_is_a_named_drop_and_the_rest_comes_out() {
    let sent = datagrams(0..3, |_| 36);
    let len = {
        let mut world = world("", 1500);
        put(&world, &sent);
        world.send();
        singly(world.wire.take_all())[0].0.len()
    };
    let mut world = world("-o aggfrag-wait=0", 1500);
    for place in 0..len {
        put(&world, &sent);
        world.send();
        let (packet, arrival) = singly(world.wire.take_all()).remove(0);
        let mut changed = packet.clone();
        changed[place] ^= 0x40;
        let before = world.right_counters.read().dropped();
        world.wire.put(changed, arrival);
        world.receive();
        assert_eq!(delivered(&world), Vec::<Vec<u8>>::new(), "{place}");
        assert_eq!(world.right_counters.read().dropped(), before + 1);
        // No window has moved: the packet itself still passes.
        world.wire.put(packet, arrival);
        world.receive();
        assert_eq!(delivered(&world), sent, "{place}");
    }
}

#[test]
fn an_association_in_this_mode_carries_nothing_else_and_the_others_not_this() {
    let plain = |right| tunnel(&gcm(), "esp", right);
    let packed = |right| tunnel(&format!("-o aggfrag {}", gcm()), "esp", right);
    for (left, right) in [(plain(false), packed(true)), (packed(false), plain(true))] {
        let mut world = World::new(&left, &right, TrainKinds::default(), 1500);
        put(&world, &[datagram(1, 100)]);
        world.send();
        world.receive();
        let (_, right) = world.balance();
        assert_eq!(right.drops[Dropped::BadInner.index()], 1);
    }
}

#[test]
fn at_a_constant_rate_all_packets_are_equal_and_padding_fills_the_gaps() {
    let mut world = world("-o aggfrag-rate=500 -o aggfrag-size=600", 1500);
    let sent = datagrams(0..20, |number| 20 + 60 * number as usize);
    let start = Instant::now();
    let mut lens = Vec::new();
    // Idle at first: padding flows before any packet does.
    let mut waiting = Some(&sent);
    while lens.len() < 80 && start.elapsed() < Duration::from_secs(20) {
        if lens.len() >= 20
            && let Some(sent) = waiting.take()
        {
            put(&world, sent);
        }
        world.send();
        for (packet, arrival) in singly(world.wire.take_all()) {
            lens.push(packet.len());
            world.wire.put(packet, arrival);
        }
        world.receive();
        std::thread::sleep(Duration::from_millis(1));
    }
    while world.balance().1.packets < 20 && start.elapsed() < Duration::from_secs(20) {
        world.send();
        world.receive();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(delivered(&world), sent);
    let (left, right) = world.balance();
    // As long as 600 bytes allow with blocks of four.
    assert!(lens.iter().all(|len| (577..=580).contains(len)), "{lens:?}");
    assert!(lens.iter().all(|len| *len == lens[0]));
    // No more than the rate, under any load of the machine; the first one leaves at once.
    let most = start.elapsed().as_millis() as u64 / 2 + 1;
    assert!(left.packets <= most, "{} of {most}", left.packets);
    assert!(right.drops[Dropped::Dummy.index()] >= 20);
    assert_eq!(right.dropped(), right.drops[Dropped::Dummy.index()]);
}

#[test]
fn at_a_constant_rate_what_does_not_fit_the_queue_is_dropped_by_name() {
    let mut world = world("-o aggfrag-rate=1 -o aggfrag-size=600", 1500);
    let sent = datagrams(0..1200, |_| 1300);
    put(&world, &sent);
    world.send();
    let (left, _) = world.balance();
    let dropped = left.drops[Dropped::NoBuffer.index()];
    assert!((300..500).contains(&dropped), "{dropped}");
    assert_eq!(left.dropped(), dropped);
}
