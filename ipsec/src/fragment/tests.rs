//! What is cut joins again; etherparse's reassembly as the second opinion; attacks by name; memory under a flood.

use super::*;
use crate::Dropped;
use crate::wire::ip::{Ipv4, Ipv4Fields, Ipv6Fields, v4};
use etherparse::SlicedPacket;
use etherparse::defrag::IpDefragPool;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) >> 3) as u8).collect()
}

/// An IPv4 packet of protocol 50 without DF; `options` is a multiple of four bytes.
fn ipv4(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let fields = Ipv4Fields {
        traffic_class: 2,
        identification: 0x1234,
        dont_fragment: false,
        hop_limit: 64,
        protocol: 50,
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(192, 0, 2, 2),
    };
    let mut packet = fields.emit(options.len() + payload.len()).to_vec();
    packet[0] += (options.len() / 4) as u8;
    packet.extend(options);
    packet.extend(payload);
    v4::finish_checksum(&mut packet);
    packet
}

/// An IPv6 packet of protocol 50 behind these extension headers.
fn ipv6(first: u8, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let fields = Ipv6Fields {
        traffic_class: 2,
        flow_label: 0xabcde,
        next_header: first,
        hop_limit: 64,
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    };
    let header = fields.emit(extensions.len() + payload.len());
    [&header[..], extensions, payload].concat()
}

fn cut(packet: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, Dropped> {
    let mut cutter = Cutter::new(packet, mtu, 0x5678)?;
    let mut fragments = Vec::new();
    loop {
        let mut out = Vec::new();
        match cutter.next_into(&mut out) {
            Some(len) => assert_eq!(len, out.len()),
            None => return Ok(fragments),
        }
        fragments.push(out);
    }
}

/// Offers all and returns the packet that came out of the last one.
fn join(fragments: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut reassembler = Reassembler::new(ReassemblyLimits::default());
    let mut whole = None;
    for fragment in fragments {
        if let Offered::Joined(packet) = reassembler.offer(fragment, 0).unwrap() {
            assert_eq!(whole.replace(packet), None);
        }
    }
    assert!(whole.is_none() || reassembler.held_bytes() == 0);
    whole
}

#[test]
fn a_packet_that_fits_comes_out_as_it_is() {
    let packet = ipv4(&[], &payload(100));
    assert_eq!(cut(&packet, 120), Ok(vec![packet.clone()]));
    let mut padded = packet.clone();
    padded.resize(200, 0);
    assert_eq!(cut(&padded, 120), Ok(vec![packet]));
}

#[test]
fn df_forbids_cutting() {
    let mut packet = ipv4(&[], &payload(100));
    packet[6] |= 0x40;
    assert_eq!(cut(&packet, 119), Err(Dropped::TooBig));
    assert!(cut(&packet, 120).is_ok());
}

#[test]
fn an_mtu_without_room_for_headers_and_eight_bytes_is_refused() {
    let packet = ipv4(&[1; 8], &payload(100));
    assert_eq!(cut(&packet, 35), Err(Dropped::TooBig));
    assert!(cut(&packet, 36).is_ok());
    let packet = ipv6(50, &[], &payload(100));
    assert_eq!(cut(&packet, 55), Err(Dropped::TooBig));
    assert!(cut(&packet, 56).is_ok());
}

#[test]
fn only_copied_options_are_in_later_fragments() {
    // A record route (7, not copied) and a loose source route (0x83, copied).
    let options = [7, 7, 4, 0, 0, 0, 0, 0x83, 7, 4, 10, 0, 0, 1, 1, 0];
    let fragments = cut(&ipv4(&options, &payload(100)), 80).unwrap();
    let views: Vec<Ipv4<'_>> = fragments
        .iter()
        .map(|f| Ipv4::new_checked(f).unwrap())
        .collect();
    assert_eq!(views[0].options(), options);
    assert_eq!(views[0].payload().len(), 40);
    for view in &views[1..] {
        assert_eq!(view.options(), [0x83, 7, 4, 10, 0, 0, 1, 0]);
    }
    assert_eq!(views.len(), 3);
    assert!(views.iter().all(Ipv4::checksum_is_right));
}

#[test]
fn a_fragment_cut_again_keeps_its_place() {
    let packet = ipv4(&[], &payload(2000));
    let coarse = cut(&packet, 1004).unwrap();
    let fine: Vec<Vec<u8>> = coarse
        .iter()
        .flat_map(|part| cut(part, 220).unwrap())
        .collect();
    assert!(fine.len() > 10);
    assert_eq!(join(&fine), Some(packet));
}

#[test]
fn ipv6_is_cut_behind_its_routing_header_and_never_twice() {
    let hop_by_hop = [43, 0, 1, 4, 0, 0, 0, 0];
    let routing = [60, 0, 4, 0, 0, 0, 0, 0];
    let destination = [50, 0, 1, 4, 0, 0, 0, 0];
    let packet = ipv6(
        0,
        &[hop_by_hop, routing, destination].concat(),
        &payload(300),
    );
    let fragments = cut(&packet, 200).unwrap();
    for fragment in &fragments {
        assert_eq!(
            (fragment[6], fragment[40], fragment[48], fragment[56]),
            (0, 43, 44, 60)
        );
    }
    assert_eq!(cut(&fragments[0], 100), Err(Dropped::TooBig));
    assert_eq!(join(&fragments), Some(packet));
}

#[test]
fn the_first_fragment_of_ipv6_must_hold_all_headers() {
    let options = [&[50u8, 12, 1, 102][..], &[0; 100]].concat();
    let packet = ipv6(60, &options, &payload(300));
    assert_eq!(cut(&packet, 40 + 8 + 104), Err(Dropped::TooBig));
    assert!(cut(&packet, 40 + 8 + 112).is_ok());
}

#[test]
fn whole_packets_pass_and_atomic_fragments_stand_alone() {
    let mut reassembler = Reassembler::new(ReassemblyLimits::default());
    let packet = ipv4(&[], &payload(30));
    assert_eq!(reassembler.offer(&packet, 0), Ok(Offered::NotFragment));
    let whole = ipv6(50, &[], &payload(30));
    assert_eq!(reassembler.offer(&whole, 0), Ok(Offered::NotFragment));
    let atomic = ipv6(44, &[50, 0, 0, 0, 0, 0, 0, 9], &payload(30));
    assert_eq!(reassembler.offer(&atomic, 0), Ok(Offered::Joined(whole)));
    assert_eq!(reassembler.held_bytes(), 0);
}

/// A fragment of IPv4 with 8-byte units `from..to`, filled with `fill`.
fn piece(from: usize, to: usize, more: bool, fill: u8) -> Vec<u8> {
    let mut packet = ipv4(&[], &vec![fill; (to - from) * 8]);
    let word = (from as u16) | if more { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&word.to_be_bytes());
    packet
}

#[test]
fn overlapping_fragments_lose_the_whole_packet_and_those_still_to_come() {
    // RFC 5722; among them teardrop (a later fragment inside an earlier one) and a rewritten first fragment.
    let overlaps = [
        ("tail over head", piece(0, 4, true, 1), piece(3, 6, true, 2)),
        ("inside", piece(0, 9, true, 1), piece(3, 4, true, 2)),
        ("around", piece(3, 4, true, 1), piece(0, 9, true, 2)),
        (
            "same place, other bytes",
            piece(0, 4, true, 1),
            piece(0, 4, true, 2),
        ),
        (
            "same start, shorter",
            piece(0, 4, true, 1),
            piece(0, 3, true, 1),
        ),
        (
            "behind the end",
            piece(4, 6, false, 1),
            piece(6, 8, true, 1),
        ),
        ("an end inside", piece(0, 6, true, 1), piece(4, 5, false, 1)),
        (
            "an end before what is there",
            piece(8, 9, true, 1),
            piece(4, 5, false, 1),
        ),
        ("two ends", piece(4, 6, false, 1), piece(8, 9, false, 1)),
        (
            "the end, said to go on",
            piece(4, 6, false, 1),
            piece(4, 6, true, 1),
        ),
    ];
    for (what, first, second) in overlaps {
        let mut reassembler = Reassembler::new(ReassemblyLimits::default());
        assert_eq!(reassembler.offer(&first, 0), Ok(Offered::Held), "{what}");
        assert_eq!(
            reassembler.offer(&second, 0),
            Err(Dropped::Malformed),
            "{what}"
        );
        for rest in [piece(0, 4, true, 1), piece(4, 6, false, 1)] {
            assert_eq!(
                reassembler.offer(&rest, 59),
                Err(Dropped::Malformed),
                "{what}"
            );
        }
        assert_eq!(
            reassembler.offer(&piece(0, 4, true, 1), 60),
            Ok(Offered::Held),
            "{what}"
        );
    }
}

#[test]
fn exact_duplicates_do_no_harm() {
    let mut fragments = cut(&ipv4(&[], &payload(1000)), 300).unwrap();
    fragments.insert(2, fragments[0].clone());
    fragments.insert(1, fragments[1].clone());
    assert_eq!(join(&fragments), Some(ipv4(&[], &payload(1000))));
}

#[test]
fn pieces_that_no_packet_can_have_are_malformed() {
    let mut reassembler = Reassembler::new(ReassemblyLimits::default());
    let mut odd = ipv4(&[], &payload(13));
    odd[6] = 0x20;
    let mut empty = ipv4(&[], &[]);
    empty[7] = 3;
    // The ping of death: its own length fits 16 bits, but offset plus length does not.
    let mut death = ipv4(&[], &payload(1000));
    death[6..8].copy_from_slice(&[0x1f, 0xff]);
    for bad in [odd, empty, death] {
        assert_eq!(reassembler.offer(&bad, 0), Err(Dropped::Malformed));
    }
    assert_eq!(reassembler.held_bytes(), 0);
}

#[test]
fn headers_that_push_a_packet_beyond_its_length_field_lose_it() {
    let mut first = ipv4(&[1; 40], &payload(8));
    first[6] = 0x20;
    let mut reassembler = Reassembler::new(ReassemblyLimits::default());
    assert_eq!(reassembler.offer(&first, 0), Ok(Offered::Held));
    let mut rest = ipv4(&[], &payload(65504));
    rest[7] = 1;
    assert_eq!(reassembler.offer(&rest, 0), Err(Dropped::Malformed));
    assert_eq!(reassembler.held_bytes(), 0);
}

#[test]
fn fragments_of_different_packets_are_not_mixed() {
    let mut reassembler = Reassembler::new(ReassemblyLimits::default());
    let first = piece(0, 4, true, 1);
    assert_eq!(reassembler.offer(&first, 0), Ok(Offered::Held));
    for (at, value) in [(5, 0x35), (9, 51), (12, 193), (19, 3)] {
        let mut other = piece(4, 5, false, 2);
        other[at] = value;
        assert_eq!(reassembler.offer(&other, 0), Ok(Offered::Held), "byte {at}");
    }
    let last = reassembler.offer(&piece(4, 5, false, 1), 0);
    assert_eq!(last, Ok(Offered::Joined(ipv4(&[], &[1; 40]))));
}

#[test]
fn an_incomplete_packet_is_given_up_after_its_time() {
    let mut reassembler = Reassembler::new(ReassemblyLimits::default());
    assert_eq!(
        reassembler.offer(&piece(0, 4, true, 1), 100),
        Ok(Offered::Held)
    );
    reassembler.expire(159);
    assert_eq!(reassembler.given_up(), 0);
    assert_eq!(
        reassembler.offer(&piece(4, 5, false, 1), 160),
        Ok(Offered::Held)
    );
    assert_eq!(reassembler.given_up(), 1);
    reassembler.expire(220);
    assert_eq!((reassembler.given_up(), reassembler.held_bytes()), (2, 0));
}

#[test]
fn a_flood_stays_within_bounds_and_the_oldest_go_first() {
    let limits = ReassemblyLimits {
        bytes: 20_000,
        ..ReassemblyLimits::default()
    };
    let mut reassembler = Reassembler::new(limits);
    for id in 0..2000u16 {
        let mut fragment = piece(0, 50, true, 7);
        fragment[4..6].copy_from_slice(&id.to_be_bytes());
        assert_eq!(reassembler.offer(&fragment, 0), Ok(Offered::Held));
        assert!(reassembler.held_bytes() <= limits.bytes);
    }
    let mut newest = piece(50, 51, false, 7);
    newest[4..6].copy_from_slice(&1999u16.to_be_bytes());
    assert!(matches!(
        reassembler.offer(&newest, 0),
        Ok(Offered::Joined(_))
    ));
    assert!(reassembler.given_up() > 1900);
}

#[test]
fn one_packet_larger_than_the_bound_is_refused_and_one_of_too_many_pieces_too() {
    let mut reassembler = Reassembler::new(ReassemblyLimits {
        bytes: 500,
        ..ReassemblyLimits::default()
    });
    assert_eq!(
        reassembler.offer(&piece(0, 100, true, 1), 0),
        Err(Dropped::NoBuffer)
    );
    assert_eq!(reassembler.held_bytes(), 0);
    let mut reassembler = Reassembler::new(ReassemblyLimits {
        pieces: 3,
        ..ReassemblyLimits::default()
    });
    for place in 0..3 {
        let offered = reassembler.offer(&piece(2 * place, 2 * place + 1, true, 1), 0);
        assert_eq!(offered, Ok(Offered::Held));
    }
    assert_eq!(
        reassembler.offer(&piece(7, 8, true, 1), 0),
        Err(Dropped::NoBuffer)
    );
}

#[test]
fn congestion_marks_of_fragments_reach_the_packet() {
    let (not_ect, ect_0, ect_1, ce) = (0, 2, 1, 3);
    for (fields, expected) in [
        ([ect_0, ect_0], Some(ect_0)),
        ([ect_0, ce], Some(ce)),
        ([ce, ect_1], Some(ce)),
        ([ce, ce], Some(ce)),
        ([not_ect, not_ect], Some(not_ect)),
        ([not_ect, ect_0], Some(not_ect)),
        ([not_ect, ce], None),
        ([ce, not_ect], None),
    ] {
        let mut fragments = cut(&ipv4(&[], &payload(100)), 90).unwrap();
        assert_eq!(fragments.len(), 2);
        for (fragment, field) in fragments.iter_mut().zip(fields) {
            fragment[1] = 0xb8 | field;
        }
        let mut reassembler = Reassembler::new(ReassemblyLimits::default());
        assert_eq!(reassembler.offer(&fragments[0], 0), Ok(Offered::Held));
        match (reassembler.offer(&fragments[1], 0), expected) {
            (Ok(Offered::Joined(packet)), Some(ecn)) => {
                let view = Ipv4::new_checked(&packet).unwrap();
                assert_eq!(view.traffic_class(), 0xb8 | ecn);
                assert!(view.checksum_is_right());
            }
            (result, expected) => {
                assert_eq!((result, expected), (Err(Dropped::Congested), None));
            }
        }
    }
}

/// What etherparse makes of the same fragments: the protocol and the payload.
fn second_opinion(fragments: &[Vec<u8>]) -> Option<(u8, Vec<u8>)> {
    let mut pool = IpDefragPool::<(), ()>::new();
    let mut joined = None;
    for fragment in fragments {
        let sliced = SlicedPacket::from_ip(fragment).unwrap();
        if let Some(whole) = pool.process_sliced_packet(&sliced, (), ()).unwrap() {
            joined = Some((whole.ip_number.0, whole.payload));
        }
    }
    joined
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let ipv4 = (0usize..11, 1usize..5000)
        .prop_map(|(options, len)| ipv4(&vec![1; options * 4], &payload(len)));
    let ipv6 = (any::<bool>(), 1usize..5000).prop_map(|(options, len)| {
        if options {
            ipv6(0, &[50, 0, 1, 4, 0, 0, 0, 0], &payload(len))
        } else {
            ipv6(50, &[], &payload(len))
        }
    });
    prop_oneof![ipv4, ipv6]
}

proptest! {
    #[test]
    fn what_is_cut_joins_to_the_same_bytes_in_any_order(
        packet in any_packet(),
        mtu in 110usize..1600,
        order in any::<prop::sample::Index>(),
        reversed in any::<bool>(),
    ) {
        let mut fragments = cut(&packet, mtu).unwrap();
        prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
        let turn = order.index(fragments.len());
        fragments.rotate_left(turn);
        if reversed {
            fragments.reverse();
        }
        if fragments.len() > 1 {
            let (protocol, body) = second_opinion(&fragments).unwrap();
            prop_assert_eq!(protocol, 50);
            prop_assert!(packet.ends_with(&body));
            prop_assert_eq!(join(&fragments), Some(packet));
        } else {
            prop_assert_eq!(&fragments[0], &packet);
        }
    }

    #[test]
    fn random_pieces_never_panic_exceed_the_bound_or_join_to_anything_but_a_packet(
        pieces in proptest::collection::vec((0usize..12, 1usize..6, any::<bool>(), 0u8..2, 0u64..200), 1..60),
    ) {
        let limits = ReassemblyLimits { bytes: 2000, pieces: 6, seconds: 60 };
        let mut reassembler = Reassembler::new(limits);
        let mut now = 0;
        for (from, len, more, id, wait) in pieces {
            now += wait / 20;
            let mut fragment = piece(from, from + len, more, id);
            fragment[5] = id;
            if let Ok(Offered::Joined(packet)) = reassembler.offer(&fragment, now) {
                let view = Ipv4::new_checked(&packet).unwrap();
                prop_assert!(view.checksum_is_right() && view.total_len() == packet.len());
                prop_assert!(view.payload().iter().all(|byte| *byte == id));
            }
            prop_assert!(reassembler.held_bytes() <= limits.bytes);
        }
        reassembler.expire(now + 60);
        prop_assert_eq!(reassembler.held_bytes(), 0);
    }
}
