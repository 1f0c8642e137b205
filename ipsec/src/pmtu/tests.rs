//! The MTU inside is exact for every suite, etherparse reads the messages, and forged messages lower nothing.

use super::*;
use crate::Dropped;
use crate::aggfrag::{self, Aggfrag};
use crate::algorithm::{Encryption, Integrity};
use crate::sa::{DontFragment, Dscp, Mode, Protocol, SaId, SequenceNumber, Spi, UdpEncapsulation};
use crate::suite::{Secret, Suite};
use crate::tunnel::Outer;
use crate::wire::esp::EspFields;
use crate::wire::ip::{Ipv4Fields, Ipv6Fields};
use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{
    Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice,
};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const V4: (IpAddr, IpAddr) = (
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
);
const V6: (IpAddr, IpAddr) = (
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
);
const ROUTER: (IpAddr, IpAddr) = (
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xff)),
);
const PORTS: UdpEncapsulation = UdpEncapsulation {
    source_port: 4500,
    destination_port: 4500,
};

fn with_suite(
    suite: Suite,
    (source, destination): (IpAddr, IpAddr),
    encapsulation: Option<UdpEncapsulation>,
) -> SaConfig {
    let id = SaId {
        destination,
        protocol: Protocol::Esp,
        spi: Spi::new(0x1001).unwrap(),
    };
    SaConfig {
        mode: Mode::Tunnel,
        encapsulation,
        df: DontFragment::Copy,
        dscp: Dscp::Copy,
        ..SaConfig::new(id, source, suite)
    }
}

fn sa(ends: (IpAddr, IpAddr), encapsulation: Option<UdpEncapsulation>) -> SaConfig {
    let key = Secret::new(vec![0; 20]);
    let aes = Encryption::named("aes-gcm-16").unwrap();
    with_suite(
        Suite::new(Some((aes, key)), None, None).unwrap(),
        ends,
        encapsulation,
    )
}

fn every_suite() -> impl Iterator<Item = Suite> {
    Encryption::all().flat_map(|cipher| {
        let key = Secret::new(vec![0; cipher.key_lens[0]]);
        let alone = Suite::new(Some((cipher, key.clone())), None, None);
        let with = Integrity::all().map(move |mac| {
            let mac_key = Secret::new(vec![0; mac.key_len]);
            Suite::new(Some((cipher, key.clone())), Some((mac, mac_key)), None)
        });
        std::iter::once(alone).chain(with).flatten()
    })
}

/// An IP packet of this length and protocol, all zero behind its header.
fn packet(ends: (IpAddr, IpAddr), protocol: u8, len: usize, dont_fragment: bool) -> Vec<u8> {
    let mut packet = match ends {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ipv4Fields {
            traffic_class: 0,
            identification: 7,
            dont_fragment,
            hop_limit: 64,
            protocol,
            source,
            destination,
        }
        .emit(len - 20)
        .to_vec(),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Ipv6Fields {
            traffic_class: 0,
            flow_label: 0,
            next_header: protocol,
            hop_limit: 64,
            source,
            destination,
        }
        .emit(len - 40)
        .to_vec(),
        _ => panic!("mixed families"),
    };
    packet.resize(len, 0);
    packet
}

#[test]
fn the_inner_mtu_fills_the_path_and_one_byte_more_overflows_it() {
    for suite in every_suite() {
        for ends in [V4, V6] {
            for encapsulation in [None, Some(PORTS)] {
                let config = with_suite(suite.clone(), ends, encapsulation);
                for path in [576, 1280, 1492, 1500, 9000] {
                    let inner = Outline::read(&packet(V4, 59, 100, true)).unwrap();
                    let headers = Outer::around(&config, &inner).len();
                    let mtu = inner_mtu(&config, path);
                    assert!(headers + esp::sealed_len(&config, mtu) <= path);
                    assert!(headers + esp::sealed_len(&config, mtu + 1) > path);
                }
            }
        }
    }
}

#[test]
fn a_path_too_small_for_anything_has_an_inner_mtu_of_zero() {
    assert_eq!(inner_mtu(&sa(V6, Some(PORTS)), 60), 0);
    assert_eq!(inner_mtu(&sa(V4, None), 0), 0);
}

#[test]
fn what_does_not_fit_is_cut_or_reported_by_family_and_df() {
    for (ends, len, df, mtu, expected) in [
        (V4, 1400, true, 1400, Fit::Fits),
        (V4, 1401, true, 1400, Fit::TooBig(1400)),
        (V4, 1401, false, 1400, Fit::FragmentInner),
        (V4, 68, true, 40, Fit::FragmentOuter),
        (V4, 100, true, 40, Fit::TooBig(68)),
        (V4, 100, false, 40, Fit::FragmentOuter),
        (V6, 1400, true, 1400, Fit::Fits),
        (V6, 1401, true, 1400, Fit::TooBig(1400)),
        (V6, 1281, true, 1200, Fit::TooBig(1280)),
        (V6, 1280, true, 1200, Fit::FragmentOuter),
    ] {
        let outline = Outline::read(&packet(ends, 59, len, df)).unwrap();
        assert_eq!(
            fit(&outline, mtu),
            expected,
            "{len} bytes, DF {df}, MTU {mtu}"
        );
    }
}

#[test]
fn the_report_over_ipv4_is_fragmentation_needed_with_the_mtu_and_a_quotation() {
    let mut out = vec![1, 2, 3];
    for (len, quoted) in [(60, 60), (1500, 548)] {
        let original = packet(V4, 59, len, true);
        assert!(packet_too_big(&original, 1398, ROUTER.0, &mut out));
        let sliced = SlicedPacket::from_ip(&out).unwrap();
        let Some(NetSlice::Ipv4(ip)) = &sliced.net else {
            panic!("not IPv4");
        };
        assert_eq!(ip.header().destination_addr(), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(ip.header().source_addr(), Ipv4Addr::new(198, 51, 100, 1));
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        let Some(TransportSlice::Icmpv4(icmp)) = &sliced.transport else {
            panic!("not ICMP");
        };
        let needed = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1398 };
        assert_eq!(icmp.icmp_type(), Icmpv4Type::DestinationUnreachable(needed));
        assert_eq!(
            icmp.header().checksum,
            icmp.icmp_type().calc_checksum(icmp.payload())
        );
        assert_eq!(icmp.payload(), &original[..quoted]);
        assert!(out.len() <= 576);
    }
}

#[test]
fn the_report_over_ipv6_is_packet_too_big_with_the_mtu_and_a_quotation() {
    let mut out = Vec::new();
    for (len, quoted) in [(60, 60), (1500, 1232)] {
        let original = packet(V6, 59, len, true);
        assert!(packet_too_big(&original, 1398, ROUTER.1, &mut out));
        let sliced = SlicedPacket::from_ip(&out).unwrap();
        let Some(NetSlice::Ipv6(ip)) = &sliced.net else {
            panic!("not IPv6");
        };
        let (source, destination) = (ip.header().source(), ip.header().destination());
        assert_eq!(
            (IpAddr::from(source), IpAddr::from(destination)),
            (ROUTER.1, V6.0)
        );
        let Some(TransportSlice::Icmpv6(icmp)) = &sliced.transport else {
            panic!("not ICMPv6");
        };
        assert_eq!(icmp.icmp_type(), Icmpv6Type::PacketTooBig { mtu: 1398 });
        let sum = icmp
            .icmp_type()
            .calc_checksum(source, destination, icmp.payload());
        assert_eq!(icmp.checksum(), sum.unwrap());
        assert_eq!(icmp.payload(), &original[..quoted]);
        assert!(out.len() <= 1280);
    }
}

#[test]
fn the_end_of_the_hop_limit_is_time_exceeded_with_a_quotation() {
    let mut out = Vec::new();
    let original = packet(V4, 59, 1500, true);
    assert!(time_exceeded(&original, ROUTER.0, &mut out));
    let sliced = SlicedPacket::from_ip(&out).unwrap();
    let Some(TransportSlice::Icmpv4(icmp)) = &sliced.transport else {
        panic!("not ICMP");
    };
    let in_transit = etherparse::icmpv4::TimeExceededCode::TtlExceededInTransit;
    assert_eq!(icmp.icmp_type(), Icmpv4Type::TimeExceeded(in_transit));
    let sum = icmp.icmp_type().calc_checksum(icmp.payload());
    assert_eq!(icmp.header().checksum, sum);
    assert_eq!(icmp.payload(), &original[..548]);

    let (original, mut out) = (packet(V6, 59, 1500, true), Vec::new());
    assert!(time_exceeded(&original, ROUTER.1, &mut out));
    let sliced = SlicedPacket::from_ip(&out).unwrap();
    let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) =
        (&sliced.net, &sliced.transport)
    else {
        panic!("not ICMPv6");
    };
    let exceeded = etherparse::icmpv6::TimeExceededCode::HopLimitExceeded;
    assert_eq!(icmp.icmp_type(), Icmpv6Type::TimeExceeded(exceeded));
    let (source, destination) = (ip.header().source(), ip.header().destination());
    let sum = icmp
        .icmp_type()
        .calc_checksum(source, destination, icmp.payload());
    assert_eq!(icmp.checksum(), sum.unwrap());
    assert_eq!(icmp.payload(), &original[..1232]);
}

#[test]
fn no_icmp_error_is_sent_where_rfc_1122_and_rfc_4443_forbid_it() {
    let v4 = |source: [u8; 4], destination: [u8; 4]| (source.into(), destination.into());
    let host = [10, 0, 0, 1];
    let mut forbidden = vec![
        packet(v4([0, 0, 0, 0], host), 59, 100, true),
        packet(v4([127, 0, 0, 1], host), 59, 100, true),
        packet(v4([224, 0, 0, 1], host), 59, 100, true),
        packet(v4([255, 255, 255, 255], host), 59, 100, true),
        packet(v4(host, [224, 0, 0, 5]), 59, 100, true),
        packet(v4(host, [255, 255, 255, 255]), 59, 100, true),
        packet((Ipv6Addr::UNSPECIFIED.into(), V6.1), 59, 100, true),
        packet(("ff02::1".parse().unwrap(), V6.1), 59, 100, true),
        vec![],
    ];
    for (ends, protocol, kinds) in [
        (V4, 1, &[3, 4, 5, 11, 12][..]),
        (V6, 58, &[1, 2, 3, 4, 127, 137]),
    ] {
        for kind in kinds {
            let mut error = packet(ends, protocol, 100, true);
            error[if protocol == 1 { 20 } else { 40 }] = *kind;
            forbidden.push(error);
        }
    }
    let mut later = packet(V4, 59, 100, true);
    later[7] = 1;
    forbidden.push(later);
    let mut out = Vec::new();
    for packet in forbidden {
        let reporter = if packet.first().is_some_and(|first| first >> 4 == 6) {
            ROUTER.1
        } else {
            ROUTER.0
        };
        assert!(
            !packet_too_big(&packet, 1000, reporter, &mut out),
            "{packet:02x?}"
        );
        assert!(out.is_empty());
    }
}

#[test]
fn icmp_errors_are_sent_about_pings_and_ipv6_multicast_but_not_across_families() {
    let mut out = Vec::new();
    let mut ping = packet(V4, 1, 100, true);
    ping[20] = 8;
    assert!(packet_too_big(&ping, 1000, ROUTER.0, &mut out));
    let group = packet((V6.0, "ff05::1".parse().unwrap()), 59, 100, true);
    assert!(packet_too_big(&group, 1000, ROUTER.1, &mut out));
    assert!(!packet_too_big(&group, 1000, ROUTER.0, &mut out));
}

/// The ICMP error of a router for a packet of 1500 bytes that `sa` sent with this sequence number.
fn complaint_of_a_router(sa: &SaConfig, spi: u32, sequence: u32, mtu: usize) -> Vec<u8> {
    let inner = Outline::read(&packet(V4, 59, 100, true)).unwrap();
    let outer = Outer::around(sa, &inner);
    let mut sent = vec![0; 1500];
    outer.emit(1500 - outer.len(), 1, &mut sent);
    let esp = EspFields { spi, sequence }.emit();
    sent[outer.len()..outer.len() + 8].copy_from_slice(&esp);
    let reporter = if sa.source.is_ipv4() {
        ROUTER.0
    } else {
        ROUTER.1
    };
    let mut out = Vec::new();
    assert!(packet_too_big(&sent, mtu, reporter, &mut out));
    out
}

#[test]
fn a_complaint_about_a_recent_packet_of_ours_lowers_the_path_mtu() {
    for ends in [V4, V6] {
        for encapsulation in [None, Some(PORTS)] {
            let sa = sa(ends, encapsulation);
            let message = complaint_of_a_router(&sa, 0x1001, 1000, 1400);
            let complaint = TooBigMessage::read(&message).unwrap();
            assert_eq!((complaint.spi, complaint.sequence), (0x1001, 1000));
            assert_eq!((complaint.quoted_len, complaint.mtu), (1500, 1400));
            for highest in [1000, 1001, 1000 + (1 << 20) - 1, (7 << 32) | 1500] {
                let accepted = complaint.accepted_mtu(&sa, SequenceNumber(highest), 1500);
                assert_eq!(accepted, Some(1400), "highest {highest}");
            }
        }
    }
}

#[test]
fn an_icmp_error_that_can_be_forged_is_not_accepted() {
    let sa = sa(V4, Some(PORTS));
    let genuine = TooBigMessage::read(&complaint_of_a_router(&sa, 0x1001, 1000, 1400)).unwrap();
    let highest = SequenceNumber(1000);
    assert_eq!(genuine.accepted_mtu(&sa, highest, 1500), Some(1400));
    for (what, lie) in [
        (
            "SPI",
            TooBigMessage {
                spi: 0x1002,
                ..genuine
            },
        ),
        (
            "not sent yet",
            TooBigMessage {
                sequence: 1001,
                ..genuine
            },
        ),
        (
            "zero",
            TooBigMessage {
                sequence: 0,
                ..genuine
            },
        ),
        (
            "source",
            TooBigMessage {
                source: V4.1,
                ..genuine
            },
        ),
        (
            "destination",
            TooBigMessage {
                destination: V4.0,
                ..genuine
            },
        ),
        (
            "port",
            TooBigMessage {
                ports: Some((4500, 4501)),
                ..genuine
            },
        ),
        (
            "not encapsulated",
            TooBigMessage {
                ports: None,
                ..genuine
            },
        ),
        (
            "no smaller",
            TooBigMessage {
                mtu: 1500,
                ..genuine
            },
        ),
        (
            "the packet was smaller",
            TooBigMessage {
                quoted_len: 1400,
                ..genuine
            },
        ),
    ] {
        assert_eq!(lie.accepted_mtu(&sa, highest, 1500), None, "{what}");
    }
    let long_ago = SequenceNumber(1000 + (1 << 20));
    assert_eq!(genuine.accepted_mtu(&sa, long_ago, 1500), None);
    assert_eq!(genuine.accepted_mtu(&sa, highest, 1400), None);
}

#[test]
fn no_complaint_pushes_the_path_mtu_below_what_every_path_carries() {
    let highest = SequenceNumber(1000);
    let v4 = sa(V4, None);
    for (claimed, accepted) in [
        (0, Some(1492)),
        (1, Some(576)),
        (68, Some(576)),
        (577, Some(577)),
    ] {
        let message = complaint_of_a_router(&v4, 0x1001, 1000, claimed);
        let complaint = TooBigMessage::read(&message).unwrap();
        assert_eq!(
            complaint.accepted_mtu(&v4, highest, 1500),
            accepted,
            "{claimed}"
        );
    }
    let v6 = sa(V6, None);
    for (claimed, accepted) in [(0, None), (1279, None), (1280, Some(1280))] {
        let message = complaint_of_a_router(&v6, 0x1001, 1000, claimed);
        let complaint = TooBigMessage::read(&message).unwrap();
        assert_eq!(
            complaint.accepted_mtu(&v6, highest, 1500),
            accepted,
            "{claimed}"
        );
    }
}

#[test]
fn a_complaint_with_a_wrong_checksum_or_about_something_else_is_refused() {
    for ends in [V4, V6] {
        let message = complaint_of_a_router(&sa(ends, None), 0x1001, 1000, 1400);
        let icmp_at = if ends == V4 { 20 } else { 40 };
        for at in icmp_at + 2..message.len() {
            let mut tampered = message.clone();
            tampered[at] ^= 0x40;
            assert_eq!(
                TooBigMessage::read(&tampered),
                Err(Dropped::Malformed),
                "byte {at}"
            );
        }
        let mut unreachable = message.clone();
        unreachable[icmp_at] = 1;
        assert_eq!(TooBigMessage::read(&unreachable), Err(Dropped::Unsupported));
    }
    let mut out = Vec::new();
    assert!(packet_too_big(
        &packet(V4, 47, 1500, true),
        1400,
        ROUTER.0,
        &mut out
    ));
    assert_eq!(TooBigMessage::read(&out), Err(Dropped::Unsupported));
}

/// A TCP segment that etherparse built, with its options in this order.
fn segment(v4: bool, syn: bool, options: &[TcpOptionElement]) -> Vec<u8> {
    let builder = if v4 {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
    } else {
        PacketBuilder::ipv6([1; 16], [2; 16], 64)
    };
    let tcp = builder.tcp(40000, 443, 99, 65535).options(options).unwrap();
    let tcp = if syn { tcp.syn() } else { tcp.ack(7) };
    let mut packet = Vec::new();
    tcp.write(&mut packet, b"fast open").unwrap();
    packet
}

/// The announced size, once etherparse has found the checksum right.
fn announced(packet: &[u8]) -> Option<u16> {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else {
        panic!("not TCP");
    };
    let expected = match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())
        }
        Some(NetSlice::Ipv6(ip)) => {
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination())
        }
        _ => panic!("not IP"),
    };
    assert_eq!(tcp.checksum(), expected.unwrap());
    tcp.options_iterator().find_map(|option| match option {
        Ok(TcpOptionElement::MaximumSegmentSize(size)) => Some(size),
        _ => None,
    })
}

#[test]
fn a_syn_announces_no_more_than_the_tunnel_carries_whatever_stands_before_the_option() {
    use TcpOptionElement::{MaximumSegmentSize, Noop, Timestamp, WindowScale};
    let mss = MaximumSegmentSize(1460);
    let orders: [&[TcpOptionElement]; 5] = [
        std::slice::from_ref(&mss),
        &[Noop, mss.clone()],
        &[WindowScale(7), mss.clone()],
        &[Timestamp(1, 2), mss.clone()],
        &[Noop, Noop, Noop, mss.clone(), Noop],
    ];
    for options in orders {
        for (v4, limit) in [(true, 1358), (false, 1338)] {
            let mut packet = segment(v4, true, options);
            assert!(clamp_mss(&mut packet, 1398, TcpChecksum::Finished));
            assert_eq!(announced(&packet), Some(limit), "{options:?}");
            assert!(!clamp_mss(&mut packet, 1398, TcpChecksum::Finished));
            assert!(!clamp_mss(&mut packet, 9000, TcpChecksum::Finished));
            assert_eq!(announced(&packet), Some(limit), "never raised");
        }
    }
}

#[test]
fn an_unfinished_checksum_is_left_to_the_offload() {
    let mut packet = segment(true, true, &[TcpOptionElement::MaximumSegmentSize(1460)]);
    let before = packet.clone();
    assert!(clamp_mss(&mut packet, 1400, TcpChecksum::Unfinished));
    let changed: Vec<usize> = (0..packet.len())
        .filter(|at| packet[*at] != before[*at])
        .collect();
    assert_eq!(changed, [43]);
    assert_eq!(packet[42..44], 1360u16.to_be_bytes());
}

#[test]
fn what_is_no_syn_or_has_no_option_or_is_a_fragment_is_left_alone() {
    let mss = [TcpOptionElement::MaximumSegmentSize(1460)];
    let mut fragment = segment(true, true, &mss);
    fragment[6] = 0x20;
    let mut udp = segment(true, true, &mss);
    udp[9] = 17;
    let mut overrun = segment(true, true, &mss);
    overrun[40] = 8;
    overrun[41] = 0;
    for packet in [
        segment(true, false, &mss),
        segment(true, true, &[]),
        fragment,
        udp,
        overrun,
        vec![],
    ] {
        let mut clamped = packet.clone();
        assert!(!clamp_mss(&mut clamped, 500, TcpChecksum::Finished));
        assert_eq!(clamped, packet);
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(data in proptest::collection::vec(any::<u8>(), 0..120), v6 in any::<bool>(), kind in 0u8..4) {
        let mut data = data;
        let _ = TooBigMessage::read(&data);
        clamp_mss(&mut data, 1000, TcpChecksum::Finished);
        let ends = if v6 { V6 } else { V4 };
        let protocol = if v6 { 58 } else { 1 };
        let header_len = if v6 { 40 } else { 20 };
        for protocol in [protocol, 6] {
            let mut likely = packet(ends, protocol, header_len + data.len(), true);
            likely[header_len..].copy_from_slice(&data);
            if let Some(first) = likely.get_mut(header_len) {
                *first = kind;
            }
            let _ = TooBigMessage::read(&likely);
            clamp_mss(&mut likely, 100, TcpChecksum::Finished);
        }
    }
}

#[test]
fn where_packets_go_on_in_the_next_payload_the_tunnel_has_the_mtu_of_its_path() {
    for (ends, outer) in [(V4, 20), (V6, 40)] {
        let with = |aggfrag| SaConfig {
            aggfrag: Some(aggfrag),
            ..sa(ends, None)
        };
        let fragments = Aggfrag::default();
        let whole = Aggfrag {
            fragments: false,
            ..fragments
        };
        let small = Aggfrag {
            size: 600,
            ..fragments
        };
        assert_eq!(inner_mtu(&with(fragments), 1500), 1500);
        // ESP header, IV and ICV are 32 bytes; the text is a whole number of words.
        let text = |outer_len: usize| (outer_len - outer - 32) / 4 * 4 - 2;
        assert_eq!(inner_mtu(&with(whole), 1500), text(1500) - 4);
        assert_eq!(aggfrag::payload_capacity(&with(small), 1500), text(600) - 4);
        assert_eq!(aggfrag::payload_capacity(&with(small), 500), text(500) - 4);
        assert_eq!(aggfrag::payload_capacity(&with(small), 50), 0);
    }
}
