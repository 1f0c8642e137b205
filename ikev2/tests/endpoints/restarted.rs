//! The key exchange of one end ends and starts again, while both data planes carry on.

use crate::world::{Setup, World};
use ikev2::{child_sa::Stage, endpoint::ChildId};
use std::time::Duration;

fn pairs(world: &World, host: usize) -> Vec<ChildId> {
    world.hosts[host].plane.pairs.keys().copied().collect()
}

#[test]
fn no_frame_is_lost_when_a_new_ike_sa_replaces_the_lost_one() {
    for seed in 0..40 {
        let setup = Setup {
            seed,
            ..Setup::default()
        };
        let mut world = World::up(&setup);
        world.slowness = Duration::from_millis(seed % 4 * 20);
        world.send_frames(Duration::from_millis(1));
        let old = [0, 1].map(|host| pairs(&world, host)[0]);
        world.run_for(Duration::from_millis(500));
        world.restart(0, &setup);
        world.run_for(Duration::from_secs(3));
        let outbound = [0, 1].map(|host| world.hosts[host].plane.outbound);
        assert!((0..2).all(|host| outbound[host] != Some(old[host])));
        assert_eq!(pairs(&world, 1).len(), 2, "the old pair still receives");
        // As a gateway does with what its processes have left behind.
        world.run_for(Duration::from_secs(4));
        world.hosts[0].plane.remove(old[0]);
        world.run_for(Duration::from_secs(2));
        world.stop_frames();
        world.run_for(Duration::from_secs(1));
        world.assert_no_frame_lost();
        world.assert_agreement(1);
        assert!(!pairs(&world, 1).contains(&old[1]));
    }
}

#[test]
fn traffic_to_a_peer_that_has_lost_everything_moves_after_two_seconds() {
    let setup = Setup::default();
    let mut world = World::up(&setup);
    let old = pairs(&world, 0)[0];
    world.hosts[0].plane.remove(old);
    world.restart(0, &setup);
    world.run_for(Duration::from_millis(1900));
    let stages = |world: &World| crate::child_rekey::stages(world, 1);
    assert_eq!(stages(&world), [Stage::Draining, Stage::Standby]);
    world.run_for(Duration::from_millis(300));
    assert_eq!(stages(&world), [Stage::Draining, Stage::Current]);
    world.come_to_rest();
    world.assert_agreement(1);
}
