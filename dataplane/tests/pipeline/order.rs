//! Threads change nothing: not the bytes, not the order, not the numbers.

use crate::world::*;
use arc_swap::ArcSwap;
use dataplane::io::{PmtuCache, Wait};
use dataplane::pipeline::affinity::Placement;
use dataplane::pipeline::governor::Workers;
use dataplane::pipeline::lane::Commit;
use dataplane::pipeline::pump::{Prepare, Pump};
use dataplane::pipeline::worker::{Idle, WorkerThreads};
use dataplane::train::{Offload, TrainKinds};
use dataplane::{DataPlane, Ends, Options};
use ipsec::database::Snapshot;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A running data plane whose four ends are at hand.
struct Running {
    plane: DataPlane,
    plaintext_in: Feed<Offload>,
    protected_out: Feed<dataplane::io::Arrival>,
    protected_in: Feed<dataplane::io::Arrival>,
    plaintext_out: Feed<Offload>,
}

fn run(databases: Arc<ArcSwap<Snapshot>>, workers: usize, idle: Idle) -> Running {
    let (plaintext_in, plaintext_out) = (Feed::new([]), Feed::new([]));
    let (protected_in, protected_out) = (Feed::new([]), Feed::new([]));
    let ends = Ends {
        plaintext_source: Box::new(plaintext_in.clone()),
        protected_sink: Box::new(protected_out.clone()),
        protected_source: Box::new(protected_in.clone()),
        plaintext_sink: Box::new(Catch(plaintext_out.clone(), TrainKinds::default())),
        replies: None,
        paths: PmtuCache::default(),
        wakers: Default::default(),
    };
    let options = Options {
        workers: Workers::Forced(workers),
        idle,
        seed: Some([3; 36]),
        ..Options::default()
    };
    let plane = DataPlane::start(ends, databases, &options, Arc::new(|_| ())).unwrap();
    Running {
        plane,
        plaintext_in,
        protected_out,
        protected_in,
        plaintext_out,
    }
}

fn wait_for(what: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < give_up, "nothing more happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Trains and single packets of all sizes.
fn mixed_traffic() -> Vec<(Vec<u8>, Offload)> {
    let mut chance = Chance(11);
    (0..400)
        .map(|number| match chance.below(4) {
            0 => {
                let (v6, len) = (chance.below(2) == 0, 1 + chance.below(30_000) as usize);
                (
                    tcp(v6, number, &chance.bytes(len)),
                    tso(500 + chance.below(900) as u16),
                )
            }
            _ => (
                datagram(number.into(), chance.below(1400) as usize),
                Offload::default(),
            ),
        })
        .collect()
}

#[test]
fn inline_and_threaded_give_equal_bytes_from_the_same_seed() {
    for text in [
        tunnel(&gcm(), "esp-udp", false),
        tunnel(&cbc_sha1(), "esp-udp", false),
        bundle("out"),
        transport_bundle("out"),
    ] {
        let sealed = |workers, idle| {
            let running = run(published(&text), workers, idle);
            for (item, offload) in mixed_traffic() {
                running.plaintext_in.put(item, offload);
            }
            wait_for(|| running.plaintext_in.0.lock().unwrap().is_empty());
            let totals = running.plane.stop();
            assert_eq!(totals.outbound.arrived, totals.outbound.packets);
            singly(running.protected_out.take_all())
        };
        let inline = sealed(0, Idle::Sleep);
        assert!(inline.len() > 1000);
        for workers in [1, 3] {
            for idle in [Idle::Sleep, Idle::default(), Idle::Busy] {
                assert!(
                    sealed(workers, idle) == inline,
                    "{workers} workers, {idle:?}"
                );
            }
        }
    }
}

/// Works until nothing more comes; now and then, by chance, another number of workers takes part.
fn pump_with_changes<P: Prepare, C: Commit<P::Batch>>(pump: &mut Pump<P, C>, chance: &mut Chance) {
    while pump.step(Wait::Poll).unwrap() > 0 {
        if chance.below(3) == 0 {
            pump.set_workers(chance.below(4) as usize);
        }
    }
    pump.drain();
}

#[test]
fn workers_that_come_and_go_at_random_under_load_change_no_byte_and_no_order() {
    for (seed, suite) in [(1, gcm()), (2, cbc_sha1()), (3, gcm())] {
        let carry = |workers: usize| {
            let mut world = World::tunnel(&suite, "esp-udp");
            let threads = WorkerThreads::new(
                Placement::default(),
                Idle::Sleep,
                vec![world.left.lane().clone(), world.right.lane().clone()],
                Arc::clone(&world.work_ready),
            );
            threads.grow_to(workers).unwrap();
            let mut chance = Chance(seed);
            // In small portions, so that batches are many and short.
            for (number, (item, offload)) in mixed_traffic().into_iter().enumerate() {
                world.left_in.put(item, offload);
                if number % 40 == 39 {
                    pump_with_changes(&mut world.left, &mut chance);
                }
            }
            let sealed = world.wire.take_all();
            for (burst, arrival) in sealed.iter().cloned() {
                world.wire.put(burst, arrival);
            }
            pump_with_changes(&mut world.right, &mut chance);
            let (left, right) = world.balance();
            assert_eq!((left.dropped(), right.dropped()), (0, 0));
            (singly(sealed), world.delivered())
        };
        let inline = carry(0);
        assert!(inline.0.len() > 1000);
        for _ in 0..3 {
            assert!(carry(3) == inline, "seed {seed}");
        }
    }
}

#[test]
fn two_gateways_with_workers_deliver_everything_once_and_in_order() {
    let left = run(
        published(&tunnel(&gcm(), "esp-udp", false)),
        2,
        Idle::default(),
    );
    let right = run(
        published(&tunnel(&gcm(), "esp-udp", true)),
        2,
        Idle::default(),
    );
    let count = 20_000;
    for number in 0..count {
        left.plaintext_in.put(
            datagram(number, 8 + number as usize % 300),
            Offload::default(),
        );
        if number % 100 == 0 {
            for (burst, arrival) in left.protected_out.take_all() {
                right.protected_in.put(burst, arrival);
            }
        }
    }
    wait_for(|| {
        for (burst, arrival) in left.protected_out.take_all() {
            right.protected_in.put(burst, arrival);
        }
        right.plane.totals().inbound.packets == count
    });
    let numbers: Vec<_> = right
        .plaintext_out
        .take_all()
        .iter()
        .map(|(packet, _)| number_of(packet))
        .collect();
    assert!(numbers.into_iter().eq(0..count));
    assert_eq!(right.plane.stop().inbound.dropped(), 0);
    assert_eq!(left.plane.stop().outbound.dropped(), 0);
}

#[test]
fn changing_another_association_a_thousand_times_loses_and_reorders_nothing() {
    let (mut left, mut right) = (
        database(&tunnel(&gcm(), "esp", false)),
        database(&tunnel(&gcm(), "esp", true)),
    );
    let left_databases = Arc::new(ArcSwap::new(left.snapshot()));
    let right_databases = Arc::new(ArcSwap::new(right.snapshot()));
    let sender = run(Arc::clone(&left_databases), 1, Idle::default());
    let receiver = run(Arc::clone(&right_databases), 1, Idle::default());
    let mut number = 0;
    for round in 0..1000 {
        let change = match round % 3 {
            0 => format!("add 192.0.2.1 192.0.2.9 esp 0x3001 -m tunnel {};", gcm()),
            1 => format!(
                "update 192.0.2.1 192.0.2.9 esp 0x3001 -m tunnel -r 64 {};",
                gcm()
            ),
            _ => "delete 192.0.2.1 192.0.2.9 esp 0x3001;".to_string(),
        };
        for (database, published) in [(&mut left, &left_databases), (&mut right, &right_databases)]
        {
            apply(database, &change);
            published.store(database.snapshot());
        }
        for _ in 0..20 {
            sender
                .plaintext_in
                .put(datagram(number, 100), Offload::default());
            number += 1;
        }
        for (burst, arrival) in sender.protected_out.take_all() {
            receiver.protected_in.put(burst, arrival);
        }
    }
    wait_for(|| {
        for (burst, arrival) in sender.protected_out.take_all() {
            receiver.protected_in.put(burst, arrival);
        }
        receiver.plane.totals().inbound.packets == number
    });
    let numbers: Vec<_> = receiver
        .plaintext_out
        .take_all()
        .iter()
        .map(|(packet, _)| number_of(packet))
        .collect();
    assert!(numbers.into_iter().eq(0..number));
}

#[test]
fn a_snapshot_is_let_go_when_the_last_batch_under_it_has_left() {
    let mut database = database(&tunnel(&gcm(), "esp", false));
    let databases = Arc::new(ArcSwap::new(database.snapshot()));
    let running = run(Arc::clone(&databases), 1, Idle::Sleep);
    running
        .plaintext_in
        .put(datagram(1, 100), Offload::default());
    wait_for(|| running.plane.totals().outbound.packets == 1);
    let old = Arc::downgrade(&database.snapshot());
    apply(&mut database, "flush;");
    databases.store(database.snapshot());
    wait_for(|| old.strong_count() == 0);
}
