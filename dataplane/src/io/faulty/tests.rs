use super::super::memory::{MemorySource, queue};
use super::super::{Arrival, ProtectedSource, ReceiveBuffer, Wait};
use super::*;
use std::collections::HashMap;

const COUNT: u32 = 20_000;

fn outer() -> Outer {
    Outer {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
        protocol: 50,
        ports: None,
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
        emitted_len: 0,
    }
}

/// Numbered packets through faults: what comes out, and the counts.
fn through(faults: Faults) -> (Vec<Vec<u8>>, Arc<FaultCounts>) {
    let (sink, mut source) = queue::<Arrival>(4 << 20, 100_000).unwrap();
    let mut sink = FaultySink::new(sink, faults);
    let all: Vec<u8> = (0..COUNT)
        .flat_map(|n| [n.to_be_bytes(), [0; 4]].concat())
        .collect();
    for bytes in all.chunks(8 * 44) {
        let sent = sink
            .deliver(&[Burst {
                outer: outer(),
                bytes,
                stride: 8,
            }])
            .unwrap();
        assert_eq!(sent.packets, bytes.len() as u64 / 8);
    }
    sink.deliver(&[]).unwrap();
    (drain(&mut source), sink.counts())
}

fn drain(source: &mut MemorySource<Arrival>) -> Vec<Vec<u8>> {
    let mut buffer = ReceiveBuffer::with_capacity(4 << 20, 100_000);
    source.fill(&mut buffer, Wait::Poll).unwrap();
    let runs = buffer.items.iter();
    runs.flat_map(|(range, note)| {
        buffer.bytes[range.clone()]
            .chunks(note.stride)
            .map(<[u8]>::to_vec)
    })
    .collect()
}

fn numbers(packets: &[Vec<u8>]) -> Vec<u32> {
    packets
        .iter()
        .map(|packet| u32::from_be_bytes(*packet.first_chunk().unwrap()))
        .collect()
}

#[test]
fn without_faults_everything_passes_in_order() {
    let (packets, _) = through(Faults {
        seed: 1,
        ..Faults::default()
    });
    assert!(numbers(&packets).into_iter().eq(0..COUNT));
}

#[test]
fn every_packet_is_accounted_for_and_the_same_seed_repeats_itself() {
    let faults = Faults {
        seed: 7,
        lost: 100,
        repeated: 50,
        delayed: 200,
        damaged: 0,
        depth: 30,
    };
    let (packets, counts) = through(faults);
    assert_eq!(
        packets.len() as u64,
        u64::from(COUNT) - counts.lost() + counts.repeated()
    );
    let mut seen = HashMap::new();
    numbers(&packets)
        .into_iter()
        .for_each(|number| *seen.entry(number).or_insert(0u64) += 1);
    assert_eq!(u64::from(COUNT) - seen.len() as u64, counts.lost());
    assert_eq!(
        seen.values().filter(|&&times| times == 2).count() as u64,
        counts.repeated()
    );
    for (happened, thousandths) in [
        (counts.lost(), 100),
        (counts.repeated(), 45),
        (counts.delayed(), 180),
    ] {
        let expected = u64::from(COUNT) * thousandths / 1000;
        assert!(
            happened.abs_diff(expected) < expected / 5,
            "{happened} {expected}"
        );
    }
    assert_eq!(through(faults).0, packets);
    assert_ne!(through(Faults { seed: 8, ..faults }).0, packets);
}

#[test]
fn a_delayed_packet_is_overtaken_by_no_more_than_the_depth() {
    let (packets, counts) = through(Faults {
        seed: 3,
        delayed: 100,
        depth: 5,
        ..Faults::default()
    });
    let numbers = numbers(&packets);
    assert!(counts.delayed() > 0 && !numbers.is_sorted());
    let overtaken = |place: usize| {
        numbers[..place]
            .iter()
            .filter(|&&other| other > numbers[place])
            .count()
    };
    let most = (0..numbers.len()).map(overtaken).max();
    // Others that were delayed at the same time come along.
    assert!(most.is_some_and(|most| (1..=6).contains(&most)), "{most:?}");
}

#[test]
fn a_damaged_packet_differs_in_one_bit() {
    let (packets, counts) = through(Faults {
        seed: 5,
        damaged: 100,
        ..Faults::default()
    });
    let mut damaged = 0;
    for (number, packet) in (0..COUNT).zip(&packets) {
        let original = [number.to_be_bytes(), [0; 4]].concat();
        let bits: u32 = packet
            .iter()
            .zip(original)
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        assert!(bits <= 1);
        damaged += u64::from(bits);
    }
    assert!(damaged > 0);
    assert_eq!(damaged, counts.damaged());
}
