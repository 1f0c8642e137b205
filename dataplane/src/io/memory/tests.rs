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
        emitted_len: 0,
    }
}

fn burst(bytes: &[u8], stride: usize) -> Burst<'_> {
    Burst {
        outer: outer(),
        bytes,
        stride,
    }
}

#[test]
fn parcels_come_out_in_order_and_equal_through_many_turns_of_the_ring() {
    let (mut sink, mut source) = queue(1000, 8).unwrap();
    let mut buffer = ReceiveBuffer::with_capacity(4000, 16);
    for turn in 0..500usize {
        let bytes: Vec<u8> = (0..turn % 331 + 1).map(|i| (i + turn) as u8).collect();
        let sent = ProtectedSink::deliver(&mut sink, &[burst(&bytes, 100), burst(&bytes[..1], 1)])
            .unwrap();
        assert_eq!(sent.packets as usize, bytes.len().div_ceil(100) + 1);
        buffer.clear();
        assert_eq!(
            ProtectedSource::fill(&mut source, &mut buffer, Wait::Poll).unwrap(),
            2
        );
        assert_eq!(buffer.bytes[buffer.items[0].0.clone()], bytes);
        assert_eq!(
            buffer.items[0].1,
            Arrival {
                outer: outer(),
                stride: 100
            }
        );
        assert_eq!(buffer.bytes[buffer.items[1].0.clone()], bytes[..1]);
    }
}

#[test]
fn a_full_queue_refuses_and_counts_every_packet_of_a_parcel() {
    let (mut sink, mut source) = queue(1000, 8).unwrap();
    let bytes = [7; 600];
    let sent =
        ProtectedSink::deliver(&mut sink, &[burst(&bytes, 100), burst(&bytes, 100)]).unwrap();
    assert_eq!(
        sent,
        Sent {
            packets: 6,
            no_buffer: 6,
            calls: 1,
            ..Sent::default()
        }
    );
    let mut buffer = ReceiveBuffer::with_capacity(4000, 16);
    assert_eq!(
        ProtectedSource::fill(&mut source, &mut buffer, Wait::Poll).unwrap(),
        1
    );
    assert_eq!(buffer.bytes[buffer.items[0].0.clone()], bytes);
    for _ in 0..8 {
        assert_eq!(
            ProtectedSink::deliver(&mut sink, &[burst(&[1], 1)])
                .unwrap()
                .packets,
            1
        );
    }
    let refused = ProtectedSink::deliver(&mut sink, &[burst(&[1], 1)]).unwrap();
    assert_eq!((refused.packets, refused.no_buffer), (0, 1));
}

#[test]
fn bytes_are_a_bound_of_their_own_and_what_is_taken_out_makes_room_again() {
    let (mut sink, mut source) = queue(1000, 8).unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(1001).collect();
    let mut put = |len: usize| {
        let sent = ProtectedSink::deliver(&mut sink, &[burst(&bytes[..len], len)]).unwrap();
        sent.packets == 1
    };
    // Larger than the whole queue is refused however empty it is; just as large fits.
    assert!(!put(1001));
    assert!(put(1000));
    assert!(!put(1));
    let mut buffer = ReceiveBuffer::with_capacity(2000, 8);
    ProtectedSource::fill(&mut source, &mut buffer, Wait::Poll).unwrap();
    assert!(put(400) && put(600) && !put(1));
    // A buffer with room for one of two takes the first and leaves the second where it is.
    for len in [400, 600] {
        let mut narrow = ReceiveBuffer::with_capacity(700, 8);
        let filled = ProtectedSource::fill(&mut source, &mut narrow, Wait::Poll).unwrap();
        assert_eq!((filled, narrow.items.len()), (1, 1));
        assert_eq!(narrow.bytes[..narrow.used_bytes()], bytes[..len]);
    }
}

#[test]
fn a_patient_sink_refuses_at_once_what_no_patience_makes_room_for() {
    let (sink, _source) = queue(1000, 8).unwrap();
    // The channel has no reader: a send that blocked would never return.
    let mut sink = sink.with_send_timeout(Duration::MAX);
    let bytes = [7; 1001];
    let sent = ProtectedSink::deliver(&mut sink, &[burst(&bytes, 1001)]).unwrap();
    assert_eq!((sent.packets, sent.no_buffer), (0, 1));
}

#[test]
fn a_sink_declares_which_trains_it_takes() {
    let (sink, _source) = queue::<Offload>(1000, 8).unwrap();
    assert_eq!(sink.train_kinds(), ALL_TRAINS);
    let some = TrainKinds {
        udp: true,
        ..TrainKinds::default()
    };
    assert_eq!(sink.taking(some).train_kinds(), some);
}

#[test]
fn a_sink_that_swallows_everything_counts_packets_and_not_items() {
    let bytes = [7; 250];
    let sent =
        ProtectedSink::deliver(&mut NullSink, &[burst(&bytes, 100), burst(&[1], 1)]).unwrap();
    assert_eq!((sent.packets, sent.no_buffer), (4, 0));
}

#[test]
fn a_patient_sink_waits_for_a_slow_reader_and_loses_nothing() {
    let (sink, source) = queue(1000, 8).unwrap();
    let (mut sink, mut source) = (sink.with_send_timeout(Duration::from_secs(30)), source);
    let writer = std::thread::spawn(move || {
        (0..1000u32)
            .map(|n| {
                ProtectedSink::deliver(&mut sink, &[burst(&n.to_be_bytes().repeat(50), 200)])
                    .unwrap()
                    .packets
            })
            .sum::<u64>()
    });
    let (mut buffer, mut expected) = (ReceiveBuffer::with_capacity(2000, 3), 0u32);
    while expected < 1000 {
        buffer.clear();
        ProtectedSource::fill(
            &mut source,
            &mut buffer,
            Wait::AtMost(Duration::from_secs(30)),
        )
        .unwrap();
        for (range, _) in &buffer.items {
            assert_eq!(
                buffer.bytes[range.start..range.start + 4],
                expected.to_be_bytes()
            );
            expected += 1;
        }
    }
    assert_eq!(writer.join().unwrap(), 1000);
}

/// Starts a thread that fills a buffer and may wait for ten minutes. Returns once /proc shows it in poll; a fill
/// that returns without waiting fails the test.
fn asleep_in_fill(mut source: MemorySource<Arrival>) -> std::thread::JoinHandle<(usize, Vec<u8>)> {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).unwrap();
        let mut buffer = ReceiveBuffer::with_capacity(1000, 1);
        let wait = Wait::AtMost(Duration::from_secs(600));
        let filled = ProtectedSource::fill(&mut source, &mut buffer, wait).unwrap();
        (filled, buffer.bytes[..buffer.used_bytes()].to_vec())
    });
    let number = told.recv().unwrap().as_raw_nonzero();
    loop {
        assert!(!thread.is_finished(), "it does not sleep");
        let called = std::fs::read_to_string(format!("/proc/self/task/{number}/syscall"));
        let called = called.unwrap_or_default();
        let polls = [libc::SYS_poll, libc::SYS_ppoll].map(|number| format!("{number} "));
        if polls.iter().any(|poll| called.starts_with(poll)) {
            return thread;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_wake_ends_the_sleep_of_a_reader_without_packets() {
    let waker = Waker::new().unwrap();
    let (_sink, source) = queue::<Arrival>(1000, 8).unwrap();
    let thread = asleep_in_fill(source.woken_by(waker.clone()));
    waker.wake();
    assert_eq!(thread.join().unwrap(), (0, Vec::new()));
}

#[test]
fn a_packet_ends_the_sleep_of_a_reader() {
    let (mut sink, source) = queue::<Arrival>(1000, 8).unwrap();
    let thread = asleep_in_fill(source);
    ProtectedSink::deliver(&mut sink, &[burst(&[1, 2, 3], 3)]).unwrap();
    assert_eq!(thread.join().unwrap(), (1, vec![1, 2, 3]));
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
    let mut buffer = ReceiveBuffer::with_capacity(4000, 1);
    assert_eq!(
        PlaintextSource::fill(&mut source, &mut buffer, Wait::Poll).unwrap(),
        1
    );
    assert_eq!(buffer.items, [(0..1540, offload)]);
    let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
    assert_eq!(buffer.bytes[..1540], whole);
}

#[test]
fn a_repeating_source_fills_the_intake_each_time_until_its_deadline() {
    let items = vec![
        (vec![1; 10], Offload::default()),
        (vec![2; 20], Offload::default()),
    ];
    let mut source = Repeat::of(items.clone());
    let mut buffer = ReceiveBuffer::with_capacity(1000, 3);
    // Where one call ends the next one goes on.
    for lengths in [[10, 20, 10], [20, 10, 20]] {
        buffer.clear();
        assert_eq!(source.fill(&mut buffer, Wait::Poll).unwrap(), 3);
        let found: Vec<_> = buffer.items.iter().map(|(range, _)| range.len()).collect();
        assert_eq!(found, lengths);
        let bytes =
            |(range, _): &(std::ops::Range<usize>, Offload)| buffer.bytes[range.clone()].to_vec();
        let fills = |item| {
            bytes(item)
                .iter()
                .all(|&byte| usize::from(byte) == bytes(item).len() / 10)
        };
        assert!(buffer.items.iter().all(fills));
    }
    buffer.clear();
    let mut dry = Repeat::of(items).until(Instant::now());
    assert_eq!(dry.fill(&mut buffer, Wait::Poll).unwrap(), 0);
}
