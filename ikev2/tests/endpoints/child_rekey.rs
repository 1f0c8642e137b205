//! Child SAs rekeyed by one side. The names are those of strongSwan's list of cases.

use crate::world::{Setup, World};
use ikev2::{
    child_sa::Stage,
    endpoint::{ChildUse, Input, Use},
};
use std::time::Duration;

/// The stages of a host's pairs, the oldest first.
pub fn stages(world: &World, host: usize) -> Vec<Stage> {
    let report = world.report(host);
    let children = report.ike.iter().flat_map(|ike| &ike.children);
    let mut stages: Vec<_> = children.map(|child| (child.id, child.stage)).collect();
    stages.sort_unstable_by_key(|(id, _)| *id);
    stages.into_iter().map(|(_, stage)| stage).collect()
}

fn rekeyed(world: &World, host: usize) -> usize {
    world.rekeyed_children(host)
}

#[test]
fn regular() {
    for initiator in 0..2 {
        let mut world = World::up(&Setup::default());
        let responder = 1 - initiator;
        world.hold();
        world.rekey_child(initiator);
        assert_eq!(stages(&world, initiator), [Stage::Current]);
        // CREATE_CHILD_SA request: the responder can receive by the new pair, and sends by the old one.
        world.pass_from(initiator);
        assert_eq!(stages(&world, responder), [Stage::Current, Stage::Standby]);
        assert_eq!(world.hosts[responder].plane.pairs.len(), 2);
        // The response: the initiator sends by the new pair.
        world.pass_from(responder);
        assert_eq!(stages(&world, initiator), [Stage::Deleting, Stage::Current]);
        // The Delete: so does the responder.
        world.pass_from(initiator);
        assert_eq!(stages(&world, responder), [Stage::Draining, Stage::Current]);
        world.pass_from(responder);
        assert_eq!(stages(&world, initiator), [Stage::Draining, Stage::Current]);
        // Late packets are taken for 5 s.
        world.run_for(Duration::from_millis(4900));
        assert_eq!(world.hosts[initiator].plane.pairs.len(), 2);
        assert_eq!(world.hosts[responder].plane.pairs.len(), 2);
        world.run_for(Duration::from_millis(200));
        world.stop_holding();
        world.come_to_rest();
        world.assert_agreement(1);
        assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (1, 1));
    }
}

#[test]
fn without_perfect_forward_secrecy() {
    let setup = Setup {
        esp: ["aes256gcm16"; 2],
        ..Setup::default()
    };
    let mut world = World::up(&setup);
    world.rekey_child(0);
    world.come_to_rest();
    world.assert_agreement(1);
    assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (1, 1));
}

#[test]
fn regular_ke_invalid() {
    for initiator in 0..2 {
        let mut esp = ["aes256gcm16-x25519-ecp256", "aes256gcm16-ecp256"];
        if initiator == 1 {
            esp.reverse();
        }
        let setup = Setup {
            esp,
            ..Setup::default()
        };
        let mut world = World::up(&setup);
        world.hold();
        world.rekey_child(initiator);
        world.pass_from(initiator);
        // INVALID_KE_PAYLOAD: nothing has changed yet.
        assert_eq!(stages(&world, 1 - initiator), [Stage::Current]);
        world.pass_from(1 - initiator);
        assert_eq!(stages(&world, initiator), [Stage::Current]);
        world.pass_from(initiator);
        assert_eq!(
            stages(&world, 1 - initiator),
            [Stage::Current, Stage::Standby]
        );
        world.stop_holding();
        world.pass_from(1 - initiator);
        world.come_to_rest();
        world.assert_agreement(1);
        assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (1, 1));
    }
}

#[test]
fn regular_responder_ignore_soft_expire() {
    let mut world = World::up(&Setup::default());
    world.hold();
    world.rekey_child(0);
    world.pass_from(0);
    let old = world.report(1).ike[0].children[0].id;
    let what = Use::SoftLimit;
    world.input(1, Input::ChildUse(&[ChildUse { child: old, what }]));
    world.run_for(Duration::from_millis(1));
    // The response to the rekey alone.
    assert_eq!(world.held_from(1), 1);
    world.pass_from(1);
    world.stop_holding();
    world.pass_from(0);
    world.come_to_rest();
    world.assert_agreement(1);
    assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (1, 1));
}

#[test]
fn regular_responder_handle_hard_expire() {
    let mut world = World::up(&Setup::default());
    world.hold();
    world.rekey_child(0);
    world.pass_from(0);
    world.pass_from(1);
    let old = world.report(1).ike[0].children[0].id;
    let what = Use::HardLimit;
    // Before the Delete of the initiator has come, the responder sends one of its own.
    world.input(1, Input::ChildUse(&[ChildUse { child: old, what }]));
    world.run_for(Duration::from_millis(1));
    assert_eq!(stages(&world, 1), [Stage::Deleting, Stage::Current]);
    world.pass_from(0);
    world.pass_from(1);
    world.stop_holding();
    world.pass_from(0);
    world.pass_from(1);
    world.come_to_rest();
    world.assert_agreement(1);
}

#[test]
fn the_responder_moves_when_the_peer_sends_by_the_new_pair() {
    let mut world = World::up(&Setup::default());
    world.send_frames(Duration::from_millis(5));
    world.hold();
    world.rekey_child(0);
    world.pass_from(0);
    world.run_for(Duration::from_millis(500));
    assert_eq!(stages(&world, 1), [Stage::Current, Stage::Standby]);
    // The initiator has the response and sends frames by the new pair; its Delete is kept back.
    world.pass_from(1);
    world.run_for(Duration::from_millis(50));
    assert_eq!(stages(&world, 1), [Stage::Replaced, Stage::Current]);
    world.stop_holding();
    world.come_to_rest();
    world.assert_agreement(1);
    world.assert_no_frame_lost();
}

#[test]
fn the_responder_moves_after_two_seconds_without_a_sign() {
    let mut world = World::up(&Setup::default());
    world.hold();
    world.rekey_child(0);
    world.pass_from(0);
    world.pass_from(1);
    world.run_for(Duration::from_millis(1900));
    assert_eq!(stages(&world, 1), [Stage::Current, Stage::Standby]);
    world.run_for(Duration::from_millis(200));
    assert_eq!(stages(&world, 1), [Stage::Replaced, Stage::Current]);
    world.stop_holding();
    world.come_to_rest();
    world.assert_agreement(1);
}

#[test]
fn the_responder_waits_longer_while_the_request_comes_again() {
    let mut world = World::up(&Setup::default());
    world.hold();
    world.rekey_child(0);
    let request = world.take_from(0);
    world.deliver(request.clone());
    world.run_for(Duration::from_millis(1500));
    world.deliver(request);
    world.run_for(Duration::from_millis(3900));
    assert_eq!(stages(&world, 1), [Stage::Current, Stage::Standby]);
    world.run_for(Duration::from_millis(200));
    assert_eq!(stages(&world, 1), [Stage::Replaced, Stage::Current]);
    world.stop_holding();
    world.come_to_rest();
    world.assert_agreement(1);
}

#[test]
fn soft_lifetimes_rekey_again_and_again() {
    let setup = Setup {
        change: |connection| {
            let lifetime = &mut connection.children[0].lifetime;
            lifetime.soft = Duration::from_secs(60);
            lifetime.hard = Duration::from_secs(90);
        },
        ..Setup::default()
    };
    let mut world = World::up(&setup);
    world.send_frames(Duration::from_millis(20));
    world.run_for(Duration::from_secs(3600));
    world.stop_frames();
    world.run_for(Duration::from_secs(1));
    let rekeyed = rekeyed(&world, 0);
    assert!((58..=75).contains(&rekeyed), "{rekeyed}");
    world.assert_no_frame_lost();
}
