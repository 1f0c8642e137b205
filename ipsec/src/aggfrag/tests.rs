use super::*;
use crate::Dropped;
use crate::sa::SequenceNumber;
use proptest::prelude::*;

/// A packet of this version and length. `mark` makes its bytes differ from those of other packets.
fn packet(is_v4: bool, len: usize, mark: u8) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..len)
        .map(|at| (at as u8).wrapping_mul(7) ^ mark)
        .collect();
    if is_v4 {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    } else {
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    }
    packet
}

fn pack(packer: &mut Packer, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut done = |payload: &[u8]| payloads.push(payload.to_vec());
    for packet in packets {
        let (head, rest) = packet.split_at(packet.len() / 3);
        packer.push(head, rest, &mut done).unwrap();
    }
    packer.flush(&mut done);
    payloads
}

/// What a receiver makes of payloads offered at these numbers, one each millisecond.
fn receive<'a>(
    receiver: &mut Unpacker,
    window: u16,
    payloads: impl IntoIterator<Item = (u64, &'a Vec<u8>)>,
) -> (Vec<Vec<u8>>, Vec<Dropped>) {
    let (mut packets, mut drops) = (Vec::new(), Vec::new());
    let mut out = |released: Unpacked<'_>| match released {
        Ok(packet) => packets.push(packet.to_vec()),
        Err(reason) => drops.push(reason),
    };
    let mut now = 0;
    for (number, payload) in payloads {
        now += 1;
        receiver.offer(SequenceNumber(number), payload, window, now, &mut out);
    }
    // Longer than the receiver waits for a missing packet, once for each number that may be missing.
    for _ in 0..=window {
        now += 1000;
        receiver.expire(100, now, &mut out);
    }
    (packets, drops)
}

fn numbered(payloads: &[Vec<u8>]) -> impl Iterator<Item = (u64, &Vec<u8>)> {
    (1..).zip(payloads)
}

#[test]
fn small_packets_share_a_payload_byte_for_byte_as_the_rfc_draws_it() {
    let packets = [packet(true, 28, 1), packet(false, 60, 2)];
    let payloads = pack(&mut Packer::new(200, true, true), &packets);
    let mut expected = vec![0, 0, 0, 0];
    expected.extend_from_slice(&packets[0]);
    expected.extend_from_slice(&packets[1]);
    // A block of type 0 pads to the end.
    expected.resize(204, 0);
    assert_eq!(payloads, [expected]);
}

#[test]
fn a_large_packet_goes_on_in_the_next_payloads_and_the_offset_counts_past_their_ends() {
    let packets = [packet(true, 250, 1), packet(true, 30, 2)];
    let payloads = pack(&mut Packer::new(100, true, false), &packets);
    let offsets: Vec<_> = payloads
        .iter()
        .map(|payload| Header::read(payload).unwrap().0.block_offset)
        .collect();
    assert_eq!(offsets, [0, 150, 50]);
    assert_eq!(
        payloads.iter().map(Vec::len).collect::<Vec<_>>(),
        [104, 104, 84]
    );
    assert_eq!(payloads[2][54..], packets[1]);
}

#[test]
fn no_packet_is_begun_without_room_for_its_length() {
    let packets = [packet(true, 95, 1), packet(false, 60, 2)];
    let payloads = pack(&mut Packer::new(100, true, false), &packets);
    assert_eq!(payloads.iter().map(Vec::len).collect::<Vec<_>>(), [99, 64]);
}

#[test]
fn without_fragments_only_whole_packets_travel_and_too_large_ones_are_refused() {
    let packets = [
        packet(true, 60, 1),
        packet(true, 60, 2),
        packet(true, 100, 3),
    ];
    let mut packer = Packer::new(100, false, true);
    let payloads = pack(&mut packer, &packets);
    assert_eq!(
        payloads.iter().map(Vec::len).collect::<Vec<_>>(),
        [104, 104, 104]
    );
    let refused = packer.push(&packet(true, 101, 4), &[], &mut |_| {
        panic!("nothing is sent")
    });
    assert_eq!(refused, Err(Dropped::TooBig));
    let (received, drops) = receive(&mut Unpacker::default(), 0, numbered(&payloads));
    assert_eq!((received, drops), (packets.to_vec(), vec![]));
}

#[test]
fn padding_between_the_parts_of_a_packet_changes_nothing() {
    let packets = [packet(true, 250, 1)];
    let mut packer = Packer::new(100, true, true);
    let mut payloads = pack(&mut packer, &packets);
    payloads.insert(1, packer.padding());
    payloads.insert(2, Header::emit(0).to_vec());
    let (received, drops) = receive(&mut Unpacker::default(), 3, numbered(&payloads));
    assert_eq!(
        (received, drops),
        (packets.to_vec(), vec![Dropped::Dummy; 2])
    );
}

#[test]
fn a_lost_part_drops_its_packet_by_name_and_the_offset_finds_the_next() {
    let packets = [
        packet(true, 50, 1),
        packet(true, 250, 2),
        packet(true, 70, 3),
    ];
    let payloads = pack(&mut Packer::new(100, true, false), &packets);
    for lost in 1..3 {
        let kept = numbered(&payloads).filter(|&(number, _)| number != lost + 1);
        let (received, drops) = receive(&mut Unpacker::default(), 3, kept);
        let left = [packets[0].clone(), packets[2].clone()];
        assert_eq!(
            (received, drops),
            (left.to_vec(), vec![Dropped::Incomplete])
        );
    }
}

#[test]
fn payloads_that_overtake_within_the_window_are_put_in_order_and_later_ones_are_too_old() {
    let packets: Vec<_> = (0..9).map(|mark| packet(true, 90, mark)).collect();
    let payloads = pack(&mut Packer::new(100, false, false), &packets);
    let order = |numbers: &[u64]| {
        let offered = numbers
            .iter()
            .map(|&number| (number, &payloads[number as usize - 1]));
        receive(&mut Unpacker::default(), 3, offered.collect::<Vec<_>>())
    };
    assert_eq!(order(&[1, 3, 4, 2, 5]), (packets[..5].to_vec(), vec![]));
    let (received, drops) = order(&[1, 3, 4, 5, 6, 2, 7]);
    let without_second = [&packets[..1], &packets[2..7]].concat();
    assert_eq!((received, drops), (without_second, vec![Dropped::TooOld]));
    assert_eq!(order(&[1, 3, 3]).1, [Dropped::Replayed]);
}

#[test]
fn what_waits_behind_a_lost_payload_waits_no_longer_than_its_time() {
    let packets: Vec<_> = (0..3).map(|mark| packet(true, 90, mark)).collect();
    let payloads = pack(&mut Packer::new(100, false, false), &packets);
    let mut receiver = Unpacker::default();
    let mut count = 0;
    let mut out = |released: Unpacked<'_>| count += usize::from(released.is_ok());
    receiver.offer(SequenceNumber(1), &payloads[0], 3, 10, &mut out);
    assert_eq!(receiver.deadline(100), None);
    receiver.offer(SequenceNumber(3), &payloads[2], 3, 20, &mut out);
    assert_eq!(receiver.deadline(100), Some(120));
    receiver.expire(100, 119, &mut out);
    assert_eq!(receiver.held(), 1);
    receiver.expire(100, 120, &mut out);
    assert_eq!((receiver.held(), receiver.deadline(100)), (0, None));
    assert_eq!(count, 2);
}

#[test]
fn a_receiver_joins_a_sender_that_has_long_been_running_or_begins_anew() {
    let packets: Vec<_> = (0..40).map(|mark| packet(true, 90, mark)).collect();
    let payloads = pack(&mut Packer::new(100, false, false), &packets);
    let mut receiver = Unpacker::default();
    let running = (70_000..).zip(&payloads);
    assert_eq!(
        receive(&mut receiver, 3, running),
        (packets.clone(), vec![])
    );
    // Twice the window and eight more are taken for late ones.
    let (received, drops) = receive(&mut receiver, 3, numbered(&payloads));
    assert_eq!(received, packets[14..]);
    assert_eq!(drops, vec![Dropped::TooOld; 14]);
}

#[test]
fn the_header_with_congestion_control_is_read_field_by_field() {
    let mut payload = vec![1, 0xff, 0, 0, 0, 0, 1, 0];
    let times = (1_000_000u64 << 42) | (70_000 << 21) | 250;
    payload.extend(times.to_be_bytes());
    payload.extend([0, 0, 0, 7, 0, 0, 0, 9]);
    let inside = packet(true, 33, 1);
    payload.extend(&inside);
    let (header, data) = Header::read(&payload).unwrap();
    let congestion = Congestion {
        probing: true,
        marked: true,
        loss_event_rate: 256,
        round_trip: 1_000_000,
        echo_delay: 70_000,
        transmit_delay: 250,
        value: 7,
        echo: 9,
    };
    assert_eq!(header.congestion, Some(congestion));
    assert_eq!((header.block_offset, data), (0, &inside[..]));
    let (received, drops) = receive(&mut Unpacker::default(), 3, [(1, &payload)]);
    assert_eq!((received, drops), (vec![inside], vec![]));
}

#[test]
fn what_cannot_be_is_dropped_by_name_and_the_next_payload_is_read() {
    let good = pack(&mut Packer::new(100, false, false), &[packet(true, 40, 1)]);
    let bad: [&[u8]; 6] = [
        &[],
        &[0, 0, 0],
        &[2, 0, 0, 0, 0x45, 0, 0, 20],
        &[1, 0, 0, 0, 0x45],
        &[0, 0, 0, 0, 0x30, 0, 0, 20],
        &[0, 0, 0, 0, 0x45, 0, 0, 19],
    ];
    for payload in bad {
        let payloads = [payload.to_vec(), good[0].clone()];
        let (received, drops) = receive(&mut Unpacker::default(), 3, numbered(&payloads));
        assert_eq!(drops, [Dropped::BadInner], "{payload:02x?}");
        assert_eq!(received, [packet(true, 40, 1)]);
    }
}

#[test]
fn an_offset_that_contradicts_the_packet_begun_before_drops_it() {
    let packets = [packet(true, 150, 1), packet(true, 60, 2)];
    let payloads = pack(&mut Packer::new(100, true, false), &packets);
    for wrong in [0u16, 1, 49, 51, 65_535] {
        let mut payloads = payloads.clone();
        payloads[1][2..4].copy_from_slice(&wrong.to_be_bytes());
        let (received, drops) = receive(&mut Unpacker::default(), 3, numbered(&payloads));
        assert!(!received.contains(&packets[0]), "{wrong}");
        assert!(drops.contains(&Dropped::BadInner), "{wrong}");
    }
}

#[test]
fn every_changed_byte_of_a_header_is_survived_and_the_next_whole_packet_comes_out() {
    let packets: Vec<_> = (0..6)
        .map(|mark| packet(mark % 2 == 0, 130, mark))
        .collect();
    let payloads = pack(&mut Packer::new(100, true, true), &packets);
    for (place, value) in (0..payloads[1].len()).flat_map(|place| [(place, 0), (place, 0xff)]) {
        let mut payloads = payloads.clone();
        payloads[1][place] = value;
        let (received, _) = receive(&mut Unpacker::default(), 3, numbered(&payloads));
        assert!(received.ends_with(&packets[4..]), "{place}");
    }
}

fn packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = (any::<bool>(), 40usize..900).prop_map(|(is_v4, len)| (is_v4, len));
    prop::collection::vec(one, 1..40).prop_map(|shapes| {
        (0..)
            .zip(shapes)
            .map(|(mark, (is_v4, len))| packet(is_v4, len, mark))
            .collect()
    })
}

/// Whether `some` are among `all`, in the same order.
fn is_subsequence(some: &[Vec<u8>], all: &[Vec<u8>]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|one| rest.any(|other| other == one))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_packed_comes_out_in_order(
        packets in packets(), room in 40usize..1500, padded: bool,
    ) {
        let payloads = pack(&mut Packer::new(room, true, padded), &packets);
        if padded {
            prop_assert!(payloads.iter().all(|payload| payload.len() == room + HEADER_LEN));
        }
        let received = receive(&mut Unpacker::default(), 3, numbered(&payloads));
        prop_assert_eq!(received, (packets, vec![]));
    }

    /// Whatever is lost, doubled or late: what comes out was put in, in order and whole; and where nothing is missing
    /// within the window, all of it.
    #[test]
    fn under_loss_and_disorder_a_subset_comes_out_in_order(
        packets in packets(),
        room in 40usize..600,
        window in 0u16..6,
        fates in prop::collection::vec((0u8..12, 0u64..6), 400),
    ) {
        let payloads = pack(&mut Packer::new(room, true, false), &packets);
        let mut offered = Vec::new();
        for ((number, payload), (fate, delay)) in numbered(&payloads).zip(&fates) {
            match fate {
                0 => {}
                1 => offered.extend([(number, number, payload), (number + 2, number, payload)]),
                2 => offered.push((number + delay, number, payload)),
                _ => offered.push((number, number, payload)),
            }
        }
        offered.sort_by_key(|&(time, ..)| time);
        let in_time = offered.iter().map(|&(_, number, payload)| (number, payload));
        let (received, _) = receive(&mut Unpacker::default(), window, in_time);
        prop_assert!(is_subsequence(&received, &packets));
        let is_kind = fates.iter().take(payloads.len()).all(|&(fate, delay)| {
            fate > 2 || fate == 2 && delay <= u64::from(window)
        });
        if is_kind {
            prop_assert_eq!(received, packets);
        }
    }
}
