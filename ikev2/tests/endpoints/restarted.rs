//! The key exchange of one end ends and starts again, while both data planes carry on.

use crate::{
    network::Path,
    world::{Setup, World},
};
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

/// The key exchange of the first host starts again so often. As a gateway does, its data plane drops what earlier
/// processes have left behind, some time later.
fn restart_often(world: &mut World, setup: &Setup, count: usize, every: Duration) -> usize {
    let (mut behind, mut most) = (Vec::new(), 0);
    for _ in 0..count {
        let known = pairs(world, 0).into_iter();
        let new = known.filter(|id| !behind.iter().any(|(_, old)| old == id));
        let at = world.now + Duration::from_secs(7);
        behind.extend(new.map(|id| (at, id)).collect::<Vec<_>>());
        world.restart(0, setup);
        world.run_for(every);
        let now = world.now;
        for (_, old) in behind.iter().filter(|(at, _)| *at <= now) {
            if pairs(world, 0).contains(old) {
                world.hosts[0].plane.remove(*old);
            }
        }
        most = most.max(pairs(world, 1).len());
    }
    world.run_for(Duration::from_secs(11));
    for (_, old) in behind {
        if pairs(world, 0).contains(&old) {
            world.hosts[0].plane.remove(old);
        }
    }
    most
}

#[test]
fn pairs_of_a_peer_that_starts_again_every_second_drain_in_their_time() {
    let setup = Setup::default();
    let mut world = World::up(&setup);
    world.send_frames(Duration::from_millis(1));
    let most = restart_often(&mut world, &setup, 20, Duration::from_secs(1));
    assert!(most <= 7, "{most} pairs: each drains for 5 s");
    world.stop_frames();
    world.run_for(Duration::from_secs(1));
    world.assert_no_frame_lost();
    world.assert_agreement(1);
    assert_eq!(pairs(&world, 1).len(), 1);
}

#[test]
fn no_frame_is_lost_when_the_peer_starts_again_before_it_has_the_new_pair() {
    for gap in 1..60 {
        let setup = Setup {
            seed: gap,
            ..Setup::default()
        };
        let mut world = World::up(&setup);
        world.send_frames(Duration::from_millis(1));
        let gap = Duration::from_millis(gap);
        restart_often(&mut world, &setup, 3, gap);
        world.stop_frames();
        world.run_for(Duration::from_secs(1));
        world.assert_no_frame_lost();
        // Handshakes that were given up are forgotten.
        world.come_to_rest();
        world.assert_agreement(1);
        assert_eq!(pairs(&world, 1).len(), 1, "{gap:?}");
    }
}

#[test]
fn a_peer_that_starts_again_all_the_time_leaves_no_more_pairs_than_an_ike_sa_may_have() {
    const MAX_OLD_PAIRS: usize = 1024;
    let setup = Setup::default();
    let mut world = World::up(&setup);
    world.path = Path {
        delay: (Duration::ZERO, Duration::ZERO),
        ..Path::GOOD
    };
    let most = restart_often(
        &mut world,
        &setup,
        MAX_OLD_PAIRS + 20,
        Duration::from_millis(2),
    );
    assert_eq!(most, MAX_OLD_PAIRS + 1, "those that drain, and the new one");
    world.assert_agreement(1);
    assert_eq!(pairs(&world, 1).len(), 1);
}
