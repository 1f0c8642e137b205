//! What can be said of a measurement of the engine without a clock: that it is of packets that pass.

use crate::world::{ALL_TRAINS, World, database, datagram, gcm, tunnel};
use dataplane::frames::BatchSize;
use dataplane::gauge;
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
    for (parcel, arrival) in gauge::sealed(database(&left).snapshot(), items(), size).unwrap() {
        world.wire.put(parcel, arrival);
    }
    world.receive();
    assert_eq!(world.delivered_numbers(), (0..100).collect::<Vec<_>>());
}

#[test]
fn both_ways_pass_every_packet_inline_and_with_workers() {
    let (left, right) = ends();
    let (left, right) = (database(&left).snapshot(), database(&right).snapshot());
    let size = BatchSize::default();
    let sealed = gauge::sealed(left.clone(), items(), size).unwrap();
    for workers in [0, 2] {
        let mut out = gauge::outbound(left.clone(), items(), size);
        let spans = out.spans(BRIEFLY).unwrap();
        assert!(spans.serial() > 0.0 && spans.engine() > spans.serial());
        let mut back = gauge::inbound(right.clone(), sealed.clone(), size);
        assert!(back.spans(BRIEFLY).unwrap().transform > 0.0);
        let mut out = out.start(workers, &[]).unwrap();
        let mut back = back.start(workers, &[]).unwrap();
        assert!(out.rate(BRIEFLY).unwrap() > 0.0 && back.rate(BRIEFLY).unwrap() > 0.0);
        assert_eq!((out.dropped(), back.dropped()), (0, 0));
    }
}

#[test]
fn packets_that_no_policy_wants_are_told_as_dropped() {
    let mut rig = gauge::outbound(database("").snapshot(), items(), BatchSize::default());
    rig.spans(BRIEFLY).unwrap();
    assert!(rig.dropped() >= 64);
}

#[test]
fn a_load_that_does_not_fit_is_an_error_and_not_a_wait() {
    let size = BatchSize {
        items: 4,
        bytes: 100,
    };
    let (left, _) = ends();
    let mut rig = gauge::outbound(database(&left).snapshot(), items(), size);
    assert!(rig.spans(BRIEFLY).is_err());
    assert!(rig.start(0, &[]).unwrap().rate(BRIEFLY).is_err());
}
