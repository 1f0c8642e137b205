//! Rekeys from both sides at once, under frames, with 2 % of IKE messages lost: no frame is lost or duplicated.

use crate::{
    network::Path,
    random::SeededRandom,
    seeds::seeds,
    world::{Setup, World},
};
use ikev2::endpoint::Event;
use std::time::Duration;

fn lossy() -> Path {
    Path {
        loss_per_mille: 20,
        duplicates_per_mille: 5,
        delay: (Duration::from_millis(5), Duration::from_millis(40)),
    }
}

fn count(world: &World, is_counted: fn(&Event) -> bool) -> usize {
    let events = world.hosts.iter().flat_map(|host| &host.events);
    events.filter(|event| is_counted(event)).count()
}

fn rekeys(seed: u64, rounds: u64) {
    let mut world = World::up(&Setup {
        seed,
        ..Setup::default()
    });
    let mut random = SeededRandom::new(seed);
    world.path = lossy();
    world.slowness = Duration::from_millis(5);
    world.send_frames(Duration::from_millis(20));
    for _ in 0..rounds {
        let first = random.below(2) as usize;
        let is_ike = random.chance(100);
        for host in [first, 1 - first] {
            if is_ike {
                world.rekey_ike(host);
            } else {
                world.rekey_child(host);
            }
            // At once, or so that the requests cross, or one behind the other.
            world.run_for(Duration::from_millis(
                [0, 10, 60, 900][random.below(4) as usize],
            ));
        }
        world.run_for(Duration::from_millis(random.below(4000)));
    }
    world.path = Path::GOOD;
    world.run_for(Duration::from_secs(100));
    world.stop_frames();
    world.run_for(Duration::from_secs(1));
    world.assert_agreement(1);
    let children = count(&world, |event| matches!(event, Event::ChildRekeyed { .. }));
    let ike = count(&world, |event| matches!(event, Event::IkeRekeyed { .. }));
    println!(
        "seed {seed}: {children} rekeys of child SAs and {ike} of IKE SAs, counted at both ends"
    );
    assert!(children as u64 > rounds, "{children}");
    assert!(ike as u64 > rounds / 20, "{ike}");
    world.assert_no_frame_lost();
}

/// Two hosts side by side: messages take no longer than the data plane needs for a change.
fn near() -> Path {
    Path {
        loss_per_mille: 20,
        duplicates_per_mille: 5,
        delay: (Duration::from_micros(50), Duration::from_micros(200)),
    }
}

/// One rekey follows the other without a pause, as `tests/ikev2/measure-rekeys` asks for them.
fn rekeys_without_pause(seed: u64, rounds: u64) {
    let mut world = World::up(&Setup {
        seed,
        change: |connection| connection.schedule.first = Duration::from_millis(100),
        ..Setup::default()
    });
    let mut random = SeededRandom::new(seed);
    world.path = near();
    world.slowness = Duration::from_millis(5);
    world.frame_delay = Duration::from_micros(100);
    world.send_frames(Duration::from_millis(1));
    for _ in 0..rounds {
        let host = random.below(2) as usize;
        if random.chance(50) {
            world.rekey_ike(host)
        } else {
            world.rekey_child(host)
        }
        world.run_for(Duration::from_millis(random.below(8)));
    }
    world.path = Path::GOOD;
    world.run_for(Duration::from_secs(10));
    world.stop_frames();
    world.run_for(Duration::from_secs(100));
    world.assert_agreement(1);
    world.assert_no_frame_lost();
}

#[test]
fn no_frame_is_lost_without_pauses() {
    for seed in 0..seeds() / 10 {
        rekeys_without_pause(seed, 3000);
    }
}

#[test]
fn no_frame_is_lost() {
    for seed in 0..seeds() / 10 {
        rekeys(seed, 250);
    }
}
