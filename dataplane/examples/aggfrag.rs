//! What AGGFRAG mode (RFC 9347) is worth for small packets: the whole engine in memory, both ends, with it and without
//! in turns.
//!
//! ```text
//! cargo run --release -p dataplane --example aggfrag -- [ROUNDS]
//! ```
//!
//! For each size of the inner packet: inner packets per second through sealing and opening, outer packets for each
//! hundred inner ones, and the ratio of each round's rates, the median and the extremes of all rounds.

#[path = "../tests/pipeline/world.rs"]
mod world;

use dataplane::io::Wait;
use dataplane::train::{Offload, TrainKinds};
use std::time::Instant;
use world::{World, datagram, gcm, singly, tunnel};

/// Without and with the mode: packets per second, and outer packets for each hundred inner ones.
type Round = [(f64, f64); 2];

/// Batches of 64 packets in each round.
const BATCHES: u64 = 400;

fn main() {
    let argument = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let rounds = argument.unwrap_or(15);
    println!("inner bytes   plain Mpps   aggfrag Mpps   outer per 100   ratio (lowest … highest)");
    for len in [64, 128, 256, 512, 1400] {
        let rounds: Vec<Round> = (0..rounds)
            .map(|_| [rate("", len), rate("-o aggfrag", len)])
            .collect();
        let column = |pick: fn(&Round) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(pick).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let middle = rounds.len() / 2;
        let ratios = column(|[(plain, _), (packed, _)]| packed / plain);
        println!(
            "{len:>11}   {:>10.3}   {:>12.3}   {:>13.1}   {:.2} ({:.2} … {:.2})",
            column(|[(plain, _), _]| *plain)[middle] / 1e6,
            column(|[_, (packed, _)]| *packed)[middle] / 1e6,
            column(|[_, (_, outer)]| *outer)[middle],
            ratios[middle],
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
}

/// Inner packets per second through both ends, and outer packets for each hundred of them.
fn rate(options: &str, len: usize) -> (f64, f64) {
    let suite = format!("{options} {}", gcm());
    let text = |right| tunnel(&suite, "esp", right);
    let mut world = World::new(&text(false), &text(true), TrainKinds::default(), 1500);
    let packets: Vec<_> = (0..64).map(|number| datagram(number, len - 28)).collect();
    let mut seconds = 0.0;
    for _ in 0..BATCHES {
        for packet in &packets {
            world.left_in.put(packet.clone(), Offload::default());
        }
        seconds += timed(|| world.left.step(Wait::Poll).unwrap());
        for (packet, arrival) in singly(world.wire.take_all()) {
            world.wire.put(packet, arrival);
        }
        seconds += timed(|| world.right.step(Wait::Poll).unwrap());
        world.delivered();
    }
    world.receive();
    let (left, right) = world.balance();
    assert_eq!(right.packets, 64 * BATCHES, "everything arrives");
    let inner = right.packets as f64;
    (inner / seconds, left.packets as f64 / inner * 100.0)
}

fn timed<T>(work: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}
