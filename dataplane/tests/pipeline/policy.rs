//! Policy on both sides: only what is protected leaves, only what came the right way enters.

use crate::world::*;
use dataplane::Notice;
use dataplane::train::Offload;
use ipsec::Dropped;
use std::sync::{Arc, Mutex};

#[test]
fn traffic_that_no_association_protects_never_leaves_and_is_counted_by_name() {
    let cases = [
        (
            "spdadd 0.0.0.0/0 0.0.0.0/0 any -P out none;",
            Dropped::NoPolicy,
        ),
        (
            "spdadd 0.0.0.0/0 0.0.0.0/0 any -P out discard;",
            Dropped::PolicyDiscard,
        ),
        (
            "spdadd 10.9.0.0/16 0.0.0.0/0 any -P out none;",
            Dropped::NoPolicy,
        ),
        (
            "spdadd 10.1.0.0/16 10.2.0.0/16 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;",
            Dropped::Acquire,
        ),
    ];
    for (policy, reason) in cases {
        let mut world = World::new(policy, "", ALL_TRAINS, 65_535);
        world.left_in.put(datagram(1, 100), Offload::default());
        world.send();
        let (left, _) = world.balance();
        assert_eq!(
            (left.packets, left.drops[reason.index()]),
            (0, 1),
            "{policy}"
        );
        assert!(world.wire.take_all().is_empty());
    }
}

#[test]
fn an_acquire_names_the_policy_and_the_packet() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let heard = Arc::clone(&heard);
        Arc::new(move |notice| heard.lock().unwrap().push(notice))
    };
    let policy =
        "spdadd 10.1.0.0/16 10.2.0.0/16 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;";
    let mut world = World::with_hook(policy, "", ALL_TRAINS, 65_535, hook);
    world.left_in.put(datagram(1, 100), Offload::default());
    world.send();
    let heard = heard.lock().unwrap();
    let [Notice::Acquire { outline, .. }] = &heard[..] else {
        panic!("{heard:?}");
    };
    assert_eq!(outline.destination.to_string(), "10.2.0.1");
}

/// A route led the packet there, and no association of the device leads out.
#[test]
fn a_device_without_association_asks_for_one_as_a_policy_does() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let heard = Arc::clone(&heard);
        Arc::new(move |notice| heard.lock().unwrap().push(notice))
    };
    let mut world = World::of_device(3, hook);
    world.left_in.put(datagram(1, 100), Offload::default());
    world.send();
    let heard = heard.lock().unwrap();
    let [
        Notice::Acquire {
            policy: 0,
            interface: 3,
            outline,
        },
    ] = &heard[..]
    else {
        panic!("{heard:?}");
    };
    assert_eq!(outline.destination.to_string(), "10.2.0.1");
    let (left, _) = world.balance();
    assert_eq!(left.drops[Dropped::Acquire.index()], 1);
}

#[test]
fn what_comes_through_an_association_must_be_what_its_policy_is_about() {
    let right = tunnel(&gcm(), "esp", true).replace("10.1.0.0/16", "10.3.0.0/16");
    let mut world = World::new(&tunnel(&gcm(), "esp", false), &right, ALL_TRAINS, 65_535);
    world.left_in.put(datagram(1, 100), Offload::default());
    world.send();
    world.receive();
    assert!(world.delivered().is_empty());
    let (_, right) = world.balance();
    assert_eq!(right.drops[Dropped::NoPolicy.index()], 1);
}

#[test]
fn both_sides_must_agree_on_encapsulation_keys_and_numbers() {
    let left = tunnel(&gcm(), "esp", false);
    let cases = [
        (tunnel(&gcm(), "esp-udp", true), Dropped::WrongEncapsulation),
        (
            tunnel(&gcm(), "esp", true).replace("0x1001", "0x7777"),
            Dropped::NoSa,
        ),
        (
            tunnel(&gcm(), "esp", true).replace("a1a1", "a1a2"),
            Dropped::BadIcv,
        ),
    ];
    for (right, reason) in cases {
        let mut world = World::new(&left, &right, ALL_TRAINS, 65_535);
        world.left_in.put(datagram(1, 100), Offload::default());
        world.send();
        world.receive();
        assert_eq!(world.balance().1.drops[reason.index()], 1, "{reason}");
    }
}

#[test]
fn a_hard_lifetime_is_never_overshot_not_even_within_a_train() {
    let limited = tunnel(&gcm(), "esp", false).replace("-m tunnel", "-bh 10000 -m tunnel");
    let mut world = World::new(&limited, &tunnel(&gcm(), "esp", true), ALL_TRAINS, 65_535);
    world.left_in.put(tcp(false, 1, &[1; 30_000]), tso(1000));
    world.send();
    let (left, _) = world.balance();
    assert_eq!(left.packets, 9, "of 1040 bytes each");
    assert_eq!(left.drops[Dropped::LifetimeOver.index()], 21);
}

#[test]
fn in_transport_mode_the_source_of_a_packet_is_that_of_its_association() {
    for protocol in ["esp", "esp-udp"] {
        let text = |near: &str, direction| {
            format!(
                "add 10.1.0.1 10.2.0.1 {protocol} 0x2001 -m transport {};
                 spdadd {near} 10.2.0.1 any -P {direction} ipsec esp/transport//require;",
                gcm()
            )
        };
        let right = text("0.0.0.0/0", "in");
        let mut world = World::new(&text("10.1.0.1", "out"), &right, ALL_TRAINS, 65_535);
        for number in 0..3 {
            world.left_in.put(datagram(number, 100), Offload::default());
            world.send();
        }
        // An attacker on the path changes the outer source of the second packet, which no ICV covers.
        for (number, (bytes, mut arrival)) in world.wire.take_all().into_iter().enumerate() {
            if number == 1 {
                arrival.outer.source = "203.0.113.77".parse().unwrap();
            }
            world.wire.put(bytes, arrival);
        }
        world.receive();
        assert_eq!(world.delivered_numbers(), [0, 2], "{protocol}");
        let (_, right) = world.balance();
        assert_eq!(right.drops[Dropped::SourceNotOfAssociation.index()], 1);
    }
}
