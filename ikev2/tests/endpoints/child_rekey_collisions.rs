//! Both sides rekey, delete or replace at the same time. The names are those of strongSwan's list of cases.

use crate::{
    child_rekey::stages,
    world::{Setup, World},
};
use ikev2::{
    child_sa::Stage,
    endpoint::{ChildUse, Input, Use},
};
use std::time::Duration;

/// First octets of the nonces of A's exchange (initiator, responder) and of B's, and whose pair stays.
const NONCES: [([u8; 2], [u8; 2], usize); 4] = [
    ([0x00, 0xff], [0xff, 0xff], 1),
    ([0xff, 0xff], [0x00, 0xff], 0),
    ([0xff, 0x00], [0xff, 0xff], 1),
    ([0xff, 0xff], [0xff, 0x00], 0),
];

/// Both have sent their requests, and no datagram has arrived yet.
fn both_have_asked(a: [u8; 2], b: [u8; 2]) -> World {
    let mut world = World::up(&Setup::default());
    world.hold();
    world.hosts[0].nonce_begins_with = Some(a[0]);
    world.rekey_child(0);
    world.hosts[1].nonce_begins_with = Some(b[0]);
    world.rekey_child(1);
    // The nonces of the answers.
    world.hosts[1].nonce_begins_with = Some(a[1]);
    world.hosts[0].nonce_begins_with = Some(b[1]);
    world
}

/// The inbound SPI of the pair that carries outbound traffic, and its peer's SPI.
fn carrying(world: &World, host: usize) -> (u32, u32) {
    let plane = &world.hosts[host].plane;
    let id = plane.outbound.expect("one carries traffic");
    let sa = &plane.pairs[&id].sa;
    (sa.inbound_spi, sa.outbound_spi)
}

/// Everything that is kept back arrives, and what follows too.
fn finish(mut world: World) -> World {
    world.release();
    world.come_to_rest();
    world.assert_agreement(1);
    let (a, b) = (carrying(&world, 0), carrying(&world, 1));
    assert_eq!(a, (b.1, b.0), "both send by the same pair");
    world
}

#[test]
fn collision() {
    for (a, b, kept) in NONCES {
        let mut world = both_have_asked(a, b);
        world.pass_from(0);
        world.pass_from(1);
        let two = [Stage::Current, Stage::Standby];
        assert_eq!(
            (stages(&world, 0), stages(&world, 1)),
            (two.to_vec(), two.to_vec())
        );
        // The responses: each side knows all four nonces now.
        world.pass_from(1);
        world.pass_from(0);
        for host in 0..2 {
            // The old pair, that of the peer, that of this side.
            let expected = if host == kept {
                [Stage::Deleting, Stage::Standby, Stage::Current]
            } else {
                [Stage::Current, Stage::Standby, Stage::Deleting]
            };
            assert_eq!(stages(&world, host), expected, "host {host}, kept {kept}");
        }
        finish(world);
    }
}

#[test]
fn collision_delayed_response() {
    for (a, b, _) in NONCES {
        let mut world = both_have_asked(a, b);
        world.pass_from(0);
        world.pass_from(1);
        // B's response to A is delayed; B has A's response and deletes what the nonces say.
        let delayed = world.take_from(1);
        world.pass_from(0);
        world.pass_from(1);
        world.pass_from(0);
        world.deliver(delayed);
        world.run_for(Duration::from_millis(1));
        finish(world);
    }
}

/// A's pair stays. B has its own pair installed only after A has deleted the old one and rekeyed the new one: B deletes
/// its own while the answer to that rekey is not there yet.
#[test]
fn collision_and_the_next_rekey_before_installation() {
    let mut world = both_have_asked([0xff, 0xff], [0x00, 0xff]);
    world.pass_from(0);
    world.pass_from(1);
    world.delay_plane(1, Duration::from_millis(100));
    // A's response, B's response, A's Delete of the old pair, and B's response to it.
    for host in [0, 1, 0, 1] {
        world.pass_from(host);
    }
    world.rekey_child(0);
    world.pass_from(0);
    world.run_for(Duration::from_millis(200));
    let sends_by = carrying(&world, 1).1;
    let mut taken = world.hosts[0].plane.pairs.values();
    assert!(
        taken.any(|pair| pair.sa.inbound_spi == sends_by),
        "B sends by a pair that A does not have yet"
    );
    finish(world);
}

#[test]
fn collision_delayed_request() {
    for (a, b, _) in NONCES {
        let mut world = both_have_asked(a, b);
        // A's request is delayed: B sees no collision, and deletes the old pair.
        let delayed = world.take_from(0);
        world.pass_from(1);
        world.pass_from(0);
        assert_eq!(stages(&world, 1), [Stage::Deleting, Stage::Current]);
        world.deliver(delayed);
        world.run_for(Duration::from_millis(1));
        finish(world);
    }
}

#[test]
fn collision_delayed_request_more() {
    for (a, b, _) in NONCES {
        let mut world = both_have_asked(a, b);
        let delayed = world.take_from(0);
        world.pass_from(1);
        world.pass_from(0);
        // The old pair is deleted at both ends before the request comes.
        world.pass_from(1);
        world.pass_from(0);
        assert_eq!(stages(&world, 1), [Stage::Draining, Stage::Current]);
        world.deliver(delayed);
        world.run_for(Duration::from_millis(1));
        // CHILD_SA_NOT_FOUND: A makes nothing of its own.
        world.pass_from(1);
        assert_eq!(stages(&world, 0), [Stage::Draining, Stage::Current]);
        finish(world);
    }
}

#[test]
fn collision_ke_invalid() {
    for (a, b, _) in NONCES {
        let setup = Setup {
            esp: ["aes256gcm16-x25519-ecp384", "aes256gcm16-ecp256-ecp384"],
            ..Setup::default()
        };
        let mut world = World::up(&setup);
        world.hold();
        world.rekey_child(0);
        world.rekey_child(1);
        world.hosts[0].nonce_begins_with = Some(a[0]);
        world.hosts[1].nonce_begins_with = Some(b[0]);
        // INVALID_KE_PAYLOAD from both; both ask again by the group that they have in common.
        for host in [0, 1, 1, 0] {
            world.pass_from(host);
        }
        for host in 0..2 {
            assert_eq!(
                (stages(&world, host), world.held_from(host)),
                (vec![Stage::Current], 1)
            );
        }
        for host in [0, 1] {
            world.pass_from(host);
            assert_eq!(stages(&world, 1 - host), [Stage::Current, Stage::Standby]);
        }
        finish(world);
    }
}

#[test]
fn collision_ke_invalid_delayed_retry() {
    let setup = Setup {
        esp: ["aes256gcm16-x25519-ecp256", "aes256gcm16-ecp256"],
        ..Setup::default()
    };
    let mut world = World::up(&setup);
    world.hold();
    world.rekey_child(0);
    world.pass_from(0);
    world.pass_from(1);
    // A asks again by another group; that is delayed, and B rekeys meanwhile.
    let delayed = world.take_from(0);
    world.rekey_child(1);
    world.pass_from(1);
    world.pass_from(0);
    world.deliver(delayed);
    world.run_for(Duration::from_millis(1));
    finish(world);
}

/// Has a host delete its only pair.
fn delete(world: &mut World, host: usize) {
    let child = world.report(host).ike[0].children[0].id;
    let what = Use::HardLimit;
    world.input(host, Input::ChildUse(&[ChildUse { child, what }]));
    world.run_for(Duration::from_millis(1));
}

/// The child is there again, or gone, at both ends.
fn finish_without_the_old(mut world: World) {
    world.release();
    world.come_to_rest();
    let pairs = stages(&world, 0).len();
    assert!(pairs <= 1);
    world.assert_agreement(pairs);
}

#[test]
fn collision_delete() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        world.rekey_child(host);
        delete(&mut world, 1 - host);
        // TEMPORARY_FAILURE from the one that deletes; a usual answer, with a Delete, from the other.
        world.pass_from(host);
        assert_eq!(stages(&world, 1 - host), [Stage::Deleting]);
        world.pass_from(1 - host);
        assert_eq!(
            stages(&world, host)
                .iter()
                .filter(|stage| stage.is_alive())
                .count(),
            0
        );
        finish_without_the_old(world);
    }
}

#[test]
fn collision_delete_drop_delete() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        world.rekey_child(host);
        delete(&mut world, 1 - host);
        world.take_from(1 - host);
        world.pass_from(host);
        world.pass_from(1 - host);
        // The Delete is sent again.
        finish_without_the_old(world);
    }
}

#[test]
fn collision_delete_drop_rekey() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        world.rekey_child(host);
        delete(&mut world, 1 - host);
        let delayed = world.take_from(host);
        world.pass_from(1 - host);
        world.pass_from(host);
        // The pair is gone at both ends: CHILD_SA_NOT_FOUND, and nothing follows from that.
        world.deliver(delayed);
        world.run_for(Duration::from_millis(1));
        world.pass_from(1 - host);
        assert!(stages(&world, host).is_empty());
        finish_without_the_old(world);
    }
}

#[test]
fn collision_ike_rekey() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        world.rekey_child(host);
        world.rekey_ike(1 - host);
        // TEMPORARY_FAILURE from both; both try again later.
        world.pass_from(host);
        world.pass_from(1 - host);
        world.pass_from(1 - host);
        world.pass_from(host);
        for host in 0..2 {
            assert_eq!(stages(&world, host), [Stage::Current]);
        }
        let old = world.report(0).ike[0].spis;
        let world = finish(world);
        assert_ne!(world.report(0).ike[0].spis, old);
        assert!(world.rekeyed_children(host) >= 1);
    }
}

#[test]
fn collision_ike_delete() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        world.rekey_child(host);
        let connection = crate::world::NAME;
        world.input(1 - host, Input::Down { connection });
        world.run_for(Duration::from_millis(1));
        // TEMPORARY_FAILURE from the one that closes; the other answers and forgets its rekey.
        world.pass_from(host);
        world.pass_from(1 - host);
        assert!(world.report(host).ike.is_empty());
        assert!(world.hosts[host].plane.pairs.is_empty());
        assert_eq!(world.hosts[host].secrets.held(), (0, 0));
    }
}

/// strongSwan's open question: the responder of a rekey deletes the new pair before its answer arrives.
#[test]
fn the_new_pair_is_deleted_before_the_answer_arrives() {
    let mut world = World::up(&Setup::default());
    world.hold();
    world.rekey_child(0);
    world.pass_from(0);
    let delayed = world.take_from(1);
    let new = world.report(1).ike[0].children[1].id;
    let what = Use::HardLimit;
    world.input(1, Input::ChildUse(&[ChildUse { child: new, what }]));
    world.run_for(Duration::from_millis(1));
    world.pass_from(1);
    world.deliver(delayed);
    world.run_for(Duration::from_millis(1));
    finish_without_the_old(world);
}
