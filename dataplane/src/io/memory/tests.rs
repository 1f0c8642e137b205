use super::*;
use ipsec::tunnel::Outer;
use std::io::IoSlice;

fn outer() -> Outer {
    Outer {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
        protocol: 17,
        ports: Some((4500, 4500)),
        traffic_class: 2,
        dont_fragment: true,
        hop_limit: 64,
        written: 0,
    }
}

fn parcel(bytes: &[u8], stride: usize) -> Parcel<'_> {
    Parcel {
        outer: outer(),
        bytes,
        stride,
    }
}

#[test]
fn parcels_come_out_in_order_and_equal_through_many_turns_of_the_ring() {
    let (mut sink, mut source) = queue(1000, 8).unwrap();
    let mut intake = Intake::with_room(4000, 16);
    for turn in 0..500usize {
        let bytes: Vec<u8> = (0..turn % 331 + 1).map(|i| (i + turn) as u8).collect();
        let sent =
            ProtectedSink::deliver(&mut sink, &[parcel(&bytes, 100), parcel(&bytes[..1], 1)])
                .unwrap();
        assert_eq!(sent.packets as usize, bytes.len().div_ceil(100) + 1);
        intake.clear();
        assert_eq!(
            ProtectedSource::fill(&mut source, &mut intake, Wait::Poll).unwrap(),
            2
        );
        assert_eq!(intake.bytes[intake.items[0].0.clone()], bytes);
        assert_eq!(
            intake.items[0].1,
            Arrival {
                outer: outer(),
                stride: 100
            }
        );
        assert_eq!(intake.bytes[intake.items[1].0.clone()], bytes[..1]);
    }
}

#[test]
fn a_full_queue_refuses_and_counts_every_packet_of_a_parcel() {
    let (mut sink, mut source) = queue(1000, 8).unwrap();
    let bytes = [7; 600];
    let sent =
        ProtectedSink::deliver(&mut sink, &[parcel(&bytes, 100), parcel(&bytes, 100)]).unwrap();
    assert_eq!(
        sent,
        Sent {
            packets: 6,
            no_buffer: 6,
            calls: 1,
            ..Sent::default()
        }
    );
    let mut intake = Intake::with_room(4000, 16);
    assert_eq!(
        ProtectedSource::fill(&mut source, &mut intake, Wait::Poll).unwrap(),
        1
    );
    for _ in 0..8 {
        assert_eq!(
            ProtectedSink::deliver(&mut sink, &[parcel(&[1], 1)])
                .unwrap()
                .packets,
            1
        );
    }
    assert_eq!(
        ProtectedSink::deliver(&mut sink, &[parcel(&[1], 1)])
            .unwrap()
            .no_buffer,
        1
    );
}

#[test]
fn a_patient_sink_waits_for_a_slow_reader_and_loses_nothing() {
    let (sink, source) = queue(1000, 8).unwrap();
    let (mut sink, mut source) = (sink.patient(Duration::from_secs(30)), source);
    let writer = std::thread::spawn(move || {
        (0..1000u32)
            .map(|n| {
                ProtectedSink::deliver(&mut sink, &[parcel(&n.to_be_bytes().repeat(50), 200)])
                    .unwrap()
                    .packets
            })
            .sum::<u64>()
    });
    let (mut intake, mut expected) = (Intake::with_room(2000, 3), 0u32);
    while expected < 1000 {
        intake.clear();
        ProtectedSource::fill(
            &mut source,
            &mut intake,
            Wait::AtMost(Duration::from_secs(30)),
        )
        .unwrap();
        for (range, _) in &intake.items {
            assert_eq!(
                intake.bytes[range.start..range.start + 4],
                expected.to_be_bytes()
            );
            expected += 1;
        }
    }
    assert_eq!(writer.join().unwrap(), 1000);
}

#[test]
fn a_wake_ends_the_sleep_of_a_reader_without_packets() {
    let waker = Waker::new().unwrap();
    let (_sink, source) = queue::<Arrival>(1000, 8).unwrap();
    let mut source = source.woken_by(waker.clone());
    let thread = std::thread::spawn(move || {
        let mut intake = Intake::with_room(1000, 1);
        ProtectedSource::fill(
            &mut source,
            &mut intake,
            Wait::AtMost(Duration::from_secs(60)),
        )
        .unwrap()
    });
    let started = Instant::now();
    waker.wake();
    assert_eq!(thread.join().unwrap(), 0);
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_delivery_in_pieces_comes_out_whole_with_its_offload() {
    use crate::train::{ChecksumSpot, Segmentation};
    let (mut sink, mut source) = queue(4000, 8).unwrap();
    let mut header = vec![0; 40];
    (header[0], header[32]) = (0x45, 5 << 4);
    let offload = Offload {
        segmentation: Segmentation::Tcp { size: 1000 },
        checksum: Some(ChecksumSpot {
            start: 20,
            offset: 16,
        }),
    };
    let pieces = [
        IoSlice::new(&header),
        IoSlice::new(&[1; 1000]),
        IoSlice::new(&[2; 500]),
    ];
    let sent = PlaintextSink::deliver(
        &mut sink,
        &[Delivery {
            offload,
            pieces: &pieces,
        }],
    )
    .unwrap();
    assert_eq!(sent.packets, 2);
    let mut intake = Intake::with_room(4000, 1);
    assert_eq!(
        PlaintextSource::fill(&mut source, &mut intake, Wait::Poll).unwrap(),
        1
    );
    assert_eq!(intake.items, [(0..1540, offload)]);
    let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
    assert_eq!(intake.bytes[..1540], whole);
}

#[test]
fn a_repeating_source_fills_the_intake_each_time_until_its_deadline() {
    let items = vec![
        (vec![1; 10], Offload::default()),
        (vec![2; 20], Offload::default()),
    ];
    let mut source = Repeat::of(items.clone());
    let mut intake = Intake::with_room(1000, 3);
    assert_eq!(source.fill(&mut intake, Wait::Poll).unwrap(), 3);
    intake.clear();
    assert_eq!(source.fill(&mut intake, Wait::Poll).unwrap(), 3);
    assert_eq!(intake.items[0].0.len(), 20);
    let mut dry = Repeat::of(items).until(Instant::now());
    assert_eq!(dry.fill(&mut intake, Wait::Poll).unwrap(), 0);
}
