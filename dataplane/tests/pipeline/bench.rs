//! Measurements of the engine, without a look at the times: the packets measured must pass the engine.

use crate::world::{ALL_TRAINS, World, database, datagram, gcm, tunnel};
use dataplane::bench;
use dataplane::buffers::BatchSize;
use dataplane::train::Offload;
use std::time::Duration;

const BRIEFLY: Duration = Duration::from_millis(2);

fn ends() -> (String, String) {
    let text = |right| tunnel(&gcm(), "esp-udp", right).replace("-r 1024", "");
    (text(false), text(true))
}

fn items() -> Vec<(Vec<u8>, Offload)> {
    (0..100)
        .map(|number| (datagram(number, 300), Offload::default()))
        .collect()
}

#[test]
fn what_is_sealed_beforehand_is_each_packet_once_and_opens() {
    let (left, right) = ends();
    let mut world = World::new(&left, &right, ALL_TRAINS, 65_535);
    let size = BatchSize::default();
    for (burst, arrival) in bench::sealed(database(&left).snapshot(), items(), size).unwrap() {
        world.wire.put(burst, arrival);
    }
    world.receive();
    assert_eq!(world.delivered_numbers(), (0..100).collect::<Vec<_>>());
}

#[test]
fn both_ways_pass_every_packet_inline_and_with_workers() {
    let (left, right) = ends();
    let (left, right) = (database(&left).snapshot(), database(&right).snapshot());
    let size = BatchSize::default();
    let sealed = bench::sealed(left.clone(), items(), size).unwrap();
    for workers in [0, 2] {
        let mut out = bench::outbound(left.clone(), items(), size);
        let step_times = out.step_times(BRIEFLY).unwrap();
        assert!(step_times.serial() > 0.0 && step_times.engine() > step_times.serial());
        let mut back = bench::inbound(right.clone(), sealed.clone(), size);
        assert!(back.step_times(BRIEFLY).unwrap().transform > 0.0);
        let mut out = out.start(workers, &[]).unwrap();
        let mut back = back.start(workers, &[]).unwrap();
        assert!(out.rate(BRIEFLY).unwrap() > 0.0 && back.rate(BRIEFLY).unwrap() > 0.0);
        assert_eq!((out.dropped(), back.dropped()), (0, 0));
    }
}

#[test]
fn packets_without_a_policy_are_counted_as_dropped() {
    let mut bench = bench::outbound(database("").snapshot(), items(), BatchSize::default());
    bench.step_times(BRIEFLY).unwrap();
    assert!(bench.dropped() >= 64);
}

#[test]
fn a_load_that_does_not_fit_is_an_error_and_not_a_wait() {
    let size = BatchSize {
        items: 4,
        bytes: 100,
    };
    let (left, _) = ends();
    let mut bench = bench::outbound(database(&left).snapshot(), items(), size);
    assert!(bench.step_times(BRIEFLY).is_err());
    assert!(bench.start(0, &[]).unwrap().rate(BRIEFLY).is_err());
}
