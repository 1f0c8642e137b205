//! Segmenting and merging undo each other, for all packets.

use super::meaning::{Meaning, meaning};
use super::{ALL, cut, merge, segmentation};
use crate::train::merge::GroCandidate;
use crate::train::segments::Segments;
use crate::train::{ChecksumSpot, Offload, Segmentation, TrainKinds};
use ipsec::packet::Outline;
use proptest::prelude::*;

proptest! {
    #[test]
    fn cutting_gives_what_a_sender_without_offload_would_have_sent(
        whole in meaning(20_000),
        size in 1u16..3000,
    ) {
        let size = size.max((whole.payload.len() / 300) as u16 + 1);
        let expected = whole.segments(size.into());
        prop_assert_eq!(cut(&whole.bytes(), segmentation(whole.udp, size)), expected);
    }

    #[test]
    fn an_unfinished_checksum_is_finished_as_the_sender_would_have(whole in meaning(3000)) {
        let finished = whole.bytes();
        let start = if whole.v6 { 40u16 } else { 20 };
        let offset = if whole.udp { 6u16 } else { 16 };
        let field = usize::from(start + offset);
        // What the kernel leaves in the field is the pseudo-header's sum: the written one less all the rest.
        let mut unfinished = finished.clone();
        unfinished[field..field + 2].fill(0);
        let rest = sum(&unfinished[usize::from(start)..]);
        let written = !u16::from_be_bytes([finished[field], finished[field + 1]]);
        let pseudo = fold(u32::from(written) + u32::from(!rest));
        unfinished[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        let offload = Offload { checksum: Some(ChecksumSpot { start, offset }), ..Offload::default() };
        let mut got = cut(&unfinished, offload).remove(0);
        // TCP knows both forms of zero.
        if got[field..field + 2] == [0xff, 0xff] && finished[field..field + 2] == [0, 0] {
            got[field..field + 2].fill(0);
        }
        prop_assert_eq!(got, finished);
    }

    #[test]
    fn the_segments_of_one_sender_become_its_train_again(
        whole in meaning(20_000),
        size in 200u16..3000,
    ) {
        let whole = Meaning { fin: false, cwr: false, ece: false, ..whole };
        prop_assume!(!whole.payload.is_empty());
        let trains = merge(&whole.segments(size.into()), ALL);
        let most = if whole.udp { 64 } else { 128 };
        let count = whole.payload.len().div_ceil(size.into());
        prop_assert_eq!(trains.len(), count.div_ceil(most));
    }

    #[test]
    fn cutting_a_train_gives_back_what_was_merged_and_no_flow_is_reordered(
        packets in stream(12),
        train_kinds in train_kinds(),
    ) {
        let trains = merge(&packets, train_kinds);
        let order: Vec<_> = trains.iter().flat_map(|(_, _, members)| members.clone()).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert!(sorted.into_iter().eq(0..packets.len() as u32), "lost or doubled");
        for (train, offload, members) in &trains {
            let merged: Vec<_> = members.iter().map(|&member| packets[member as usize].clone()).collect();
            let again: Vec<_> = cut(train, *offload).into_iter().map(atomic).collect();
            let merged: Vec<_> = merged.into_iter().map(atomic).collect();
            prop_assert_eq!(again, merged);
        }
        for packet in &packets {
            let of_flow: Vec<_> = order.iter().copied()
                .filter(|&number| flow_of(&packets[number as usize]) == flow_of(packet))
                .collect();
            prop_assert!(of_flow.is_sorted());
        }
    }

    #[test]
    fn no_bytes_and_no_offload_make_planning_or_cutting_panic(
        item in proptest::collection::vec(any::<u8>(), 0..200),
        version in prop_oneof![Just(0x45u8), Just(0x60)],
        protocol in prop_oneof![Just(6u8), Just(17), any::<u8>()],
        size: u16,
        spot in proptest::option::of(any::<(u8, u8)>()),
        kind in 0..3,
    ) {
        let mut item = item;
        if item.len() >= 40 {
            item[0] = version;
            let len = item.len() as u16;
            item[2..4].copy_from_slice(&len.to_be_bytes());
            item[9] = protocol;
            item[6] = if version == 0x60 { protocol } else { 0 };
        }
        let offload = Offload {
            segmentation: match kind {
                0 => Segmentation::None,
                1 => Segmentation::Tcp { size },
                _ => Segmentation::Udp { size },
            },
            checksum: spot.map(|(start, offset)| ChecksumSpot { start: start.into(), offset: offset.into() }),
        };
        if let Ok(outline) = Outline::read(&item) {
            let _ = GroCandidate::read(&item, &outline, ALL);
            if let Ok(plan) = Segments::plan(&item, &outline, offload) {
                for number in 0..plan.count() {
                    plan.write_head(&item, number, &mut vec![0; plan.head_len()]);
                }
            }
        }
    }
}

/// Packets of a few flows: mostly consecutive ones, now and then with something that forbids merging. The first three
/// `kinds` of fault leave every packet whole.
pub fn stream(kinds: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let faults = proptest::collection::vec((0usize..120, 0..kinds, any::<u8>()), 0..12);
    let senders = proptest::collection::vec((meaning(8000), 100usize..1500), 1..5);
    (senders, faults, any::<u64>()).prop_map(|(senders, faults, mut order)| {
        let mut queues: Vec<_> = senders
            .iter()
            .map(|(sender, size)| sender.segments(*size))
            .collect();
        let mut packets = Vec::new();
        while queues.iter().any(|queue| !queue.is_empty()) {
            order = order
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let index = (order >> 33) as usize % queues.len();
            let queue = &mut queues[index];
            let run = (1 + (order >> 50) as usize % 6).min(queue.len());
            packets.extend(queue.drain(..run));
        }
        for (place, fault, byte) in faults {
            if place < packets.len() {
                spoil(&mut packets, place, fault, byte);
            }
        }
        packets
    })
}

/// Loses, doubles, swaps or damages a packet; a damaged header gets its checksums right again or not, by chance.
fn spoil(packets: &mut Vec<Vec<u8>>, place: usize, fault: usize, byte: u8) {
    match fault {
        0 => drop(packets.remove(place)),
        1 => packets.insert(place, packets[place].clone()),
        2 => packets.swap(place, 0),
        _ => {
            // Never version, lengths, extension chain or fragment fields, which Outline::read may refuse.
            let spots = [1, 4, 5, 8, 24, 27, 33, 35, 44, 47, 53, 60];
            let packet = &mut packets[place];
            let spot = spots[usize::from(byte) % spots.len()];
            let v4 = packet[0] >> 4 == 4;
            if spot < packet.len() && (v4 || ![4, 5].contains(&spot)) {
                packet[spot] ^= byte | 1;
            }
        }
    }
}

fn train_kinds() -> impl Strategy<Value = TrainKinds> {
    any::<(bool, bool, bool)>().prop_map(|(tcp_v4, tcp_v6, udp)| TrainKinds {
        tcp_v4: tcp_v4 || udp,
        tcp_v6,
        udp,
    })
}

/// RFC 6864 4.1: the identification of a datagram that must not be fragmented means nothing.
pub fn atomic(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

/// Addresses, protocol and ports.
fn flow_of(packet: &[u8]) -> (&[u8], u8, &[u8]) {
    match packet[0] >> 4 {
        4 => (&packet[12..20], packet[9], &packet[20..24]),
        _ => (&packet[8..40], packet[6], &packet[40..44]),
    }
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |total, pair| {
        let word = u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        fold(u32::from(total) + word)
    })
}
