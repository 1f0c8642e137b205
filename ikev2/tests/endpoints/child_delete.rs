//! Child SAs deleted by one side or both. The names are those of strongSwan's list of cases.

use crate::{
    child_rekey::stages,
    world::{NAME, Setup, World},
};
use ikev2::{
    child_sa::Stage,
    endpoint::{ChildUse, Input, Use},
};
use std::time::Duration;

fn delete(world: &mut World, host: usize) {
    let child = world.report(host).ike[0].children[0].id;
    let what = Use::HardLimit;
    world.input(host, Input::ChildUse(&[ChildUse { child, what }]));
    world.run_for(Duration::from_millis(1));
}

#[test]
fn regular() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        delete(&mut world, host);
        assert_eq!(stages(&world, host), [Stage::Deleting]);
        // Past the hard limit nothing is carried, whether the peer has answered or not.
        assert!(world.hosts[host].plane.pairs.is_empty());
        world.pass_from(host);
        assert!(stages(&world, 1 - host).is_empty());
        assert!(world.hosts[1 - host].plane.pairs.is_empty());
        world.pass_from(1 - host);
        assert!(stages(&world, host).is_empty());
    }
}

#[test]
fn collision() {
    let mut world = World::up(&Setup::default());
    world.hold();
    delete(&mut world, 0);
    delete(&mut world, 1);
    for host in [0, 1, 0, 1] {
        world.pass_from(host);
    }
    for host in 0..2 {
        assert!(stages(&world, host).is_empty());
        assert!(world.hosts[host].plane.pairs.is_empty());
    }
}

#[test]
fn collision_drop() {
    let mut world = World::up(&Setup::default());
    world.hold();
    delete(&mut world, 0);
    delete(&mut world, 1);
    // One of the Deletes is lost, and comes again when the pair is gone at the other end.
    world.take_from(0);
    world.pass_from(1);
    world.pass_from(0);
    world.release();
    world.run_for(Duration::from_secs(2));
    for host in 0..2 {
        assert!(
            world.report(host).ike[0]
                .children
                .iter()
                .all(|child| child.stage != Stage::Deleting)
        );
    }
}

#[test]
fn collision_ike_rekey() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        let old = world.report(0).ike[0].spis;
        world.hold();
        delete(&mut world, host);
        world.rekey_ike(1 - host);
        // The Delete is answered as usual, the rekey by TEMPORARY_FAILURE.
        for host in [host, 1 - host, 1 - host, host] {
            world.pass_from(host);
        }
        assert_eq!(world.report(0).ike[0].spis, old);
        world.release();
        world.come_to_rest();
        let pairs = stages(&world, 0).len();
        world.assert_agreement(pairs);
        assert_ne!(world.report(0).ike[0].spis, old);
    }
}

#[test]
fn collision_ike_delete() {
    for host in 0..2 {
        let mut world = World::up(&Setup::default());
        world.hold();
        delete(&mut world, host);
        let connection = NAME;
        world.input(1 - host, Input::Down { connection });
        world.run_for(Duration::from_millis(1));
        world.pass_from(1 - host);
        assert!(world.report(host).ike.is_empty());
        world.pass_from(host);
        world.pass_from(host);
        assert!(world.report(1 - host).ike.is_empty());
        for host in 0..2 {
            assert!(world.hosts[host].plane.pairs.is_empty());
            assert_eq!(world.hosts[host].secrets.held(), (0, 0));
        }
    }
}
