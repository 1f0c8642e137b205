//! Both ends begin an IKE SA with each other at the same time.

use crate::{
    network::Path,
    world::{Setup, World},
};
use ikev2::{connection::Start, endpoint::Event};
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Both begin; datagrams take between 5 and 40 ms, in any order, and frames 8 ms.
fn both_begin(seed: u64) -> World {
    let setup = Setup {
        seed,
        start: [Start::AtStart, Start::AtStart],
        ..Setup::default()
    };
    let mut world = World::new(&setup);
    world.path = Path {
        delay: (5 * MILLISECOND, 40 * MILLISECOND),
        ..Path::GOOD
    };
    world.slowness = Duration::from_millis(seed % 5 * 10);
    world
}

/// What each host sends by is there at the other one.
fn carries(world: &World) -> bool {
    [(0, 1), (1, 0)].into_iter().all(|(host, other)| {
        let plane = &world.hosts[host].plane;
        let sends_by = plane.outbound.and_then(|id| plane.pairs.get(&id));
        let mut pairs = world.hosts[other].plane.pairs.values();
        sends_by.is_some_and(|pair| pairs.any(|one| one.sa.inbound_spi == pair.sa.outbound_spi))
    })
}

fn run_until(world: &mut World, holds: impl Fn(&World) -> bool) {
    for _ in 0..10_000 {
        if holds(world) {
            return;
        }
        world.run_for(MILLISECOND);
    }
    panic!("it did not come to that in 10 s");
}

fn has_two(world: &World, host: usize) -> bool {
    world.report(host).ike.len() == 2
}

#[test]
fn one_of_the_two_ike_sas_goes_and_no_frame_is_lost() {
    let (mut under_traffic, seeds) = (0, 5 * crate::seeds::seeds());
    for seed in 0..seeds {
        let mut world = both_begin(seed);
        run_until(&mut world, carries);
        under_traffic += u64::from(!(has_two(&world, 0) && has_two(&world, 1)));
        world.send_frames(MILLISECOND);
        world.run_for(Duration::from_secs(8));
        world.stop_frames();
        world.run_for(Duration::from_secs(1));
        assert!(world.seen.contains("2 IKE SAs"), "seed {seed}");
        world.assert_no_frame_lost();
        world.assert_agreement(1);
        for host in &world.hosts {
            let is_down = |event: &Event| matches!(event, Event::Down { .. });
            assert!(!host.events.iter().any(is_down), "seed {seed}");
        }
    }
    assert!(
        under_traffic * 4 > seeds,
        "frames came too late: {under_traffic}"
    );
}

/// RFC 7296 2.4: some peers drop an IKE SA without a Delete when INITIAL_CONTACT arrives in a request that was sent
/// before that IKE SA was up.
#[test]
fn where_the_peer_has_dropped_the_one_that_stays_traffic_goes_on_by_the_other() {
    let mut judged = 0;
    for seed in 0..5 * crate::seeds::seeds() {
        let mut world = both_begin(seed);
        run_until(&mut world, |world| has_two(world, 0) && has_two(world, 1));
        // Both have installed what there is.
        world.run_for(200 * MILLISECOND);
        // The larger initiator's SPI is the redundant one.
        let mut ike = world.report(0).ike;
        ike.sort_by_key(|ike| ike.spis.0);
        let [stays, redundant] = &ike[..] else {
            panic!("two IKE SAs");
        };
        let (closer, dropper) = if redundant.is_initiator {
            (0, 1)
        } else {
            (1, 0)
        };
        let id_at = |world: &World, host: usize| {
            let ike = world.report(host).ike.into_iter();
            let mut same = ike.filter(|ike| ike.spis.0 == redundant.spis.0);
            let children = same.next().expect("the redundant one").children;
            children.first().map(|child| child.id)
        };
        let (Some(own), Some(other)) = (id_at(&world, closer), id_at(&world, dropper)) else {
            continue;
        };
        // Only where the second one came after the first was up can the peer have dropped that.
        if world.hosts[closer].plane.outbound != Some(own) {
            continue;
        }
        judged += 1;
        world.drop_datagrams_of(stays.spis.0);
        world.hosts[dropper].plane.use_outbound(other);
        world.hosts[dropper].plane.refuses_all_but(other);
        world.send_frames(10 * MILLISECOND);
        world.run_for(Duration::from_secs(100));
        let counts = [closer, dropper].map(|host| world.hosts[host].plane.counts);
        assert_eq!(counts[1].lost, 0, "seed {seed}: {counts:?}");
        assert_eq!(counts[0].refused, 0, "seed {seed}: {counts:?}");
        let left = world.report(closer).ike;
        let left: Vec<_> = left.iter().map(|ike| ike.spis.0).collect();
        assert!(left.contains(&redundant.spis.0), "seed {seed}");
        assert!(!left.contains(&stays.spis.0), "seed {seed}");
    }
    assert!(judged > 10, "{judged}");
}

/// Of the two pairs one carries outbound traffic when a rekey is asked for. It may be the one that goes.
#[test]
fn a_rekey_that_is_asked_for_meanwhile_renews_the_pair_that_stays() {
    let mut judged = 0;
    for seed in 0..5 * crate::seeds::seeds() {
        let mut world = both_begin(seed);
        run_until(&mut world, |world| has_two(world, 0) && has_two(world, 1));
        world.run_for(200 * MILLISECOND);
        let before: Vec<u32> = inbound_spis(&world);
        if before.len() < 2 {
            continue;
        }
        judged += 1;
        world.send_frames(10 * MILLISECOND);
        world.rekey_child(0);
        world.run_for(Duration::from_secs(20));
        world.stop_frames();
        world.run_for(Duration::from_secs(1));
        world.assert_no_frame_lost();
        world.assert_agreement(1);
        let after = inbound_spis(&world);
        assert!(
            !after.is_empty() && !after.iter().any(|spi| before.contains(spi)),
            "seed {seed}: {before:x?}, then {after:x?}"
        );
    }
    assert!(judged > 10, "{judged}");
}

fn inbound_spis(world: &World) -> Vec<u32> {
    let pairs = world.hosts[0].plane.pairs.values();
    pairs.map(|pair| pair.sa.inbound_spi).collect()
}
