//! IKE SAs rekeyed by one side or both, and deleted meanwhile. The names are those of strongSwan's list of cases. Its
//! cases of an invalid group cannot come about between these endpoints: a rekey sends the group that both have agreed
//! on.

use crate::world::{NAME, Setup, World};
use ikev2::endpoint::{Event, Input};
use std::time::Duration;

/// First octets of the nonces of A's exchange (initiator, responder) and of B's, and whose IKE SA stays.
const NONCES: [([u8; 2], [u8; 2], usize); 4] = [
    ([0x00, 0xff], [0xff, 0xff], 1),
    ([0xff, 0xff], [0x00, 0xff], 0),
    ([0xff, 0x00], [0xff, 0xff], 1),
    ([0xff, 0xff], [0xff, 0x00], 0),
];

/// How many children each IKE SA of a host has, in the order in which they were made.
fn children(world: &World, host: usize) -> Vec<usize> {
    let report = world.report(host);
    let mut ike: Vec<_> = report.ike.iter().collect();
    ike.sort_by_key(|ike| std::cmp::Reverse(ike.age));
    ike.iter().map(|ike| ike.children.len()).collect()
}

fn has_gone_down(world: &World) -> bool {
    let mut events = world.hosts.iter().flat_map(|host| &host.events);
    events.any(|event| matches!(event, Event::Down { .. } | Event::ChildDown { .. }))
}

/// Everything that is kept back arrives, and what follows too: one IKE SA is left, with the child that was there.
fn finish(mut world: World) -> World {
    world.release();
    world.come_to_rest();
    world.assert_agreement(1);
    assert!(!has_gone_down(&world), "{:#?}", world.hosts[0].events);
    for host in &world.hosts {
        // The child has the keys that it had.
        assert_eq!(host.plane.pairs.len(), 1);
    }
    world
}

#[test]
fn regular() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        let old = world.report(0).ike[0].spis;
        let child = world.report(0).ike[0].children[0].id;
        world.hold();
        world.rekey_ike(host);
        world.pass_from(host);
        // The children move with the answer.
        assert_eq!(children(&world, 1 - host), [0, 1]);
        world.pass_from(1 - host);
        assert_eq!(children(&world, host), [0, 1]);
        // The Delete of the old one.
        world.pass_from(host);
        assert_eq!(world.report(1 - host).ike.len(), 1);
        world.pass_from(1 - host);
        assert_eq!(world.report(host).ike.len(), 1);
        let world = finish(world);
        assert_ne!(world.report(0).ike[0].spis, old);
        assert_eq!(world.report(0).ike[0].children[0].id, child);
        // Who begins a rekey is the new IKE SA's original initiator.
        assert!(world.report(host).ike[0].is_initiator);
    }
}

/// Where the first exchange found the group by INVALID_KE_PAYLOAD, a rekey sends that one at once.
#[test]
fn the_group_that_was_agreed_on_is_sent_first() {
    for host in 0..2 {
        let setup = Setup {
            ike: [
                "aes256gcm16-prfsha256-x25519-ecp384",
                "aes256gcm16-prfsha256-ecp256-ecp384",
            ],
            ..Setup::default()
        };
        let mut world = World::up(&setup);
        world.hold();
        world.rekey_ike(host);
        world.pass_from(host);
        assert_eq!(children(&world, 1 - host), [0, 1]);
        finish(world);
    }
}

#[test]
fn a_new_ike_sa_is_rekeyed_and_deleted_as_the_first_one() {
    let mut world = World::up(&Setup::default());
    for host in [0, 1, 1, 0] {
        world.rekey_ike(host);
        world.run_for(Duration::from_secs(1));
        world.rekey_child(1 - host);
        world.run_for(Duration::from_secs(1));
    }
    let mut world = finish(world);
    down(&mut world, 0);
    world.run_for(Duration::from_secs(1));
    assert_both_are_down(&world);
}

#[test]
fn lifetimes_rekey_again_and_again() {
    let setup = Setup {
        change: |connection| connection.ike_lifetime = Duration::from_secs(100),
        ..Setup::default()
    };
    let mut world = World::up(&setup);
    world.send_frames(Duration::from_millis(50));
    world.run_for(Duration::from_secs(3600));
    world.stop_frames();
    world.run_for(Duration::from_secs(1));
    let events = world.hosts[0].events.iter();
    let rekeyed = events.filter(|event| matches!(event, Event::IkeRekeyed { .. }));
    let rekeyed = rekeyed.count();
    assert!((35..=45).contains(&rekeyed), "{rekeyed}");
    assert!(!has_gone_down(&world));
    world.assert_no_frame_lost();
}

/// Both have sent their requests, and no datagram has arrived yet.
fn both_have_asked(a: [u8; 2], b: [u8; 2]) -> World {
    let mut world = World::up(&Setup::default());
    world.hold();
    world.hosts[0].nonce_begins_with = Some(a[0]);
    world.rekey_ike(0);
    world.hosts[1].nonce_begins_with = Some(b[0]);
    world.rekey_ike(1);
    world.hosts[1].nonce_begins_with = Some(a[1]);
    world.hosts[0].nonce_begins_with = Some(b[1]);
    world
}

#[test]
fn collision() {
    for (a, b, kept) in NONCES {
        let mut world = both_have_asked(a, b);
        world.pass_from(0);
        world.pass_from(1);
        // Nothing moves before all nonces are known.
        assert_eq!(children(&world, 0), [1, 0]);
        assert_eq!(children(&world, 1), [1, 0]);
        world.pass_from(1);
        world.pass_from(0);
        assert_eq!(world.report(0).ike.len(), 3);
        let world = finish(world);
        assert!(world.report(kept).ike[0].is_initiator, "{a:?} {b:?}");
    }
}

#[test]
fn collision_delayed_response() {
    for (a, b, _) in NONCES {
        let mut world = both_have_asked(a, b);
        world.pass_from(0);
        world.pass_from(1);
        let delayed = world.take_from(1);
        // B knows all nonces and deletes one of the IKE SAs, whichever it is.
        world.pass_from(0);
        world.pass_from(1);
        world.pass_from(0);
        world.deliver(delayed);
        world.run_for(Duration::from_millis(1));
        finish(world);
    }
}

#[test]
fn collision_dropped_request() {
    for (a, b, _) in NONCES {
        let mut world = both_have_asked(a, b);
        // A's request never arrives as it was sent: B sees no collision.
        world.take_from(0);
        world.pass_from(1);
        world.pass_from(0);
        finish(world);
    }
}

#[test]
fn collision_delayed_request() {
    for (a, b, _) in NONCES {
        let mut world = both_have_asked(a, b);
        let delayed = world.take_from(0);
        world.pass_from(1);
        world.pass_from(0);
        // B has replaced the IKE SA and closes it: TEMPORARY_FAILURE.
        world.deliver(delayed);
        world.run_for(Duration::from_millis(1));
        finish(world);
    }
}

#[test]
fn collision_delayed_request_and_delete() {
    for (a, b, _) in NONCES {
        let mut world = both_have_asked(a, b);
        let delayed = world.take_from(0);
        world.pass_from(1);
        world.pass_from(0);
        // The Delete of B is delayed too.
        let delete = world.take_from(1);
        world.deliver(delayed);
        world.run_for(Duration::from_millis(1));
        world.deliver(delete);
        world.run_for(Duration::from_millis(1));
        finish(world);
    }
}

fn down(world: &mut World, host: usize) {
    let connection = NAME;
    world.input(host, Input::Down { connection });
    world.run_for(Duration::from_millis(1));
}

fn assert_both_are_down(world: &World) {
    for host in 0..2 {
        assert!(
            world.report(host).ike.is_empty(),
            "{:#?}",
            world.report(host)
        );
        assert!(world.hosts[host].plane.pairs.is_empty());
        assert_eq!(world.hosts[host].secrets.held(), (0, 0));
    }
}

#[test]
fn collision_delete() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        world.rekey_ike(host);
        down(&mut world, 1 - host);
        // TEMPORARY_FAILURE from the one that closes; the other forgets its rekey.
        world.pass_from(host);
        world.pass_from(1 - host);
        assert!(world.report(host).ike.is_empty());
        world.pass_from(host);
        world.run_for(Duration::from_millis(1));
        assert_both_are_down(&world);
    }
}

#[test]
fn collision_delete_drop_delete() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        world.rekey_ike(host);
        down(&mut world, 1 - host);
        world.take_from(1 - host);
        world.pass_from(host);
        world.pass_from(1 - host);
        // The Delete comes again.
        world.release();
        world.run_for(Duration::from_millis(900));
        assert_both_are_down(&world);
    }
}

#[test]
fn down_while_the_ike_sa_is_being_replaced_takes_the_new_one_down() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        world.rekey_ike(host);
        world.pass_from(host);
        down(&mut world, host);
        world.release();
        world.run_for(Duration::from_secs(20));
        // The first host would bring it up again.
        down(&mut world, 0);
        world.run_for(Duration::from_secs(1));
        assert_both_are_down(&world);
    }
}

/// The peer answers and then never deletes the IKE SA that was replaced: it goes in the end.
#[test]
fn an_old_ike_sa_that_is_not_deleted_is_given_up() {
    let mut world = World::up(&Setup::default());
    world.hold();
    world.rekey_ike(0);
    world.pass_from(0);
    world.pass_from(1);
    let delete = world.take_from(0);
    drop(delete);
    world.run_for(Duration::from_secs(59));
    assert_eq!(world.report(1).ike.len(), 2);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.report(1).ike.len(), 1);
}
