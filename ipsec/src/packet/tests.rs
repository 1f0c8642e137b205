//! Real packets, lies in their lengths, and etherparse as the second opinion about random ones.

use super::*;
use crate::wire::checksum::Sum;
use etherparse::{IpHeaders, LaxSlicedPacket, NetSlice, PacketBuilder, SlicedPacket};
use proptest::prelude::*;

#[path = "../../../fuzz/bodies/fragments.rs"]
mod fragments;
#[path = "../../../fuzz/bodies/wire_headers.rs"]
mod wire_headers;

/// A ping of 8 bytes, 192.168.0.10 to 192.168.0.1, as tcpdump shows it.
const PING: [u8; 36] = [
    0x45, 0x00, 0x00, 0x24, 0x12, 0x34, 0x40, 0x00, 0x40, 0x01, 0xa7, 0x4a, 0xc0, 0xa8, 0x00, 0x0a,
    0xc0, 0xa8, 0x00, 0x01, 0x08, 0x00, 0xa6, 0xd8, 0x00, 0x01, 0x00, 0x02, b'a', b'b', b'c', b'd',
    b'e', b'f', b'g', b'h',
];

/// An IPv6 packet of `first` and what follows.
fn ipv6(first: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, rest.len() as u8, first, 64];
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend(rest);
    packet
}

/// An extension header of 8 bytes: one PadN option.
fn pad(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

fn fragment(next: u8, offset: u16, more: bool) -> [u8; 8] {
    let [high, low] = (offset | u16::from(more)).to_be_bytes();
    [next, 0, high, low, 0, 0, 0, 7]
}

const UDP_DATAGRAM: [u8; 12] = [0x13, 0x88, 0x00, 0x35, 0, 12, 0, 0, 1, 2, 3, 4];

#[test]
fn a_ping_is_read_field_by_field() {
    assert_eq!(
        Outline::read(&PING),
        Ok(Outline {
            source: IpAddr::from([192, 168, 0, 10]),
            destination: IpAddr::from([192, 168, 0, 1]),
            protocol: 1,
            header_len: 20,
            transport_offset: 20,
            total_len: 36,
            ports: Some((8, 0)),
            fragment: FragmentKind::Whole,
            traffic_class: 0,
            dont_fragment: true,
            hop_limit: 64,
        })
    );
}

#[test]
fn link_padding_behind_a_packet_is_not_seen() {
    let mut padded = PING.to_vec();
    padded.resize(60, 0);
    assert_eq!(Outline::read(&padded), Outline::read(&PING));
    let mut padded = ipv6(17, &UDP_DATAGRAM);
    padded.extend([0; 9]);
    assert_eq!(Outline::read(&padded).unwrap().total_len, 52);
}

#[test]
fn no_prefix_of_a_packet_passes_for_a_packet() {
    for len in 0..PING.len() {
        assert_eq!(Outline::read(&PING[..len]), Err(Dropped::Malformed));
    }
    let packet = ipv6(17, &UDP_DATAGRAM);
    for len in 0..packet.len() {
        assert_eq!(Outline::read(&packet[..len]), Err(Dropped::Malformed));
    }
}

#[test]
fn a_header_that_is_longer_than_its_packet_or_shorter_than_any_is_malformed() {
    for (at, value) in [(0, 0x44), (0, 0x40), (0, 0x4f), (3, 19), (3, 0), (2, 0xff)] {
        let mut lying = PING;
        lying[at] = value;
        assert_eq!(
            Outline::read(&lying),
            Err(Dropped::Malformed),
            "byte {at} = {value}"
        );
    }
}

#[test]
fn another_version_is_unsupported() {
    for version in (0..16).filter(|version| ![4, 6].contains(version)) {
        let mut packet = PING;
        packet[0] = version << 4 | 5;
        assert_eq!(Outline::read(&packet), Err(Dropped::Unsupported));
    }
}

#[test]
fn ports_lie_behind_ipv4_options() {
    let mut packet = vec![
        0x46, 0x2e, 0, 36, 0, 1, 0, 0, 9, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    packet.extend([0x94, 4, 0, 0]);
    packet.extend(UDP_DATAGRAM);
    let outline = Outline::read(&packet).unwrap();
    assert_eq!(outline.ports, Some((5000, 53)));
    assert_eq!((outline.header_len, outline.transport_offset), (24, 24));
    assert_eq!((outline.traffic_class, outline.hop_limit), (0x2e, 9));
    assert!(!outline.dont_fragment);
}

#[test]
fn only_the_first_fragment_of_ipv4_has_ports() {
    let mut packet = PING;
    for (flags, kind, ports) in [
        ([0x20, 0x00], FragmentKind::First, Some((8, 0))),
        ([0x20, 0x01], FragmentKind::Later, None),
        ([0x1f, 0xff], FragmentKind::Later, None),
        ([0x40, 0x00], FragmentKind::Whole, Some((8, 0))),
    ] {
        packet[6..8].copy_from_slice(&flags);
        let outline = Outline::read(&packet).unwrap();
        assert_eq!((outline.fragment, outline.ports), (kind, ports));
    }
}

#[test]
fn only_the_first_fragment_of_ipv6_has_ports() {
    for (offset, more, kind, ports) in [
        (0, true, FragmentKind::First, Some((5000, 53))),
        (8, true, FragmentKind::Later, None),
        (8, false, FragmentKind::Later, None),
        (0, false, FragmentKind::Whole, Some((5000, 53))),
    ] {
        let packet = ipv6(
            44,
            &[&fragment(17, offset, more)[..], &UDP_DATAGRAM].concat(),
        );
        let outline = Outline::read(&packet).unwrap();
        assert_eq!((outline.fragment, outline.ports), (kind, ports));
        assert_eq!(
            (
                outline.protocol,
                outline.header_len,
                outline.transport_offset
            ),
            (17, 48, 48)
        );
    }
}

#[test]
fn a_later_fragment_is_not_searched_for_extension_headers() {
    let packet = ipv6(44, &[&fragment(60, 8, true)[..], &[0xff; 16]].concat());
    let outline = Outline::read(&packet).unwrap();
    assert_eq!((outline.protocol, outline.header_len), (60, 48));
}

#[test]
fn transport_mode_goes_behind_hop_by_hop_routing_and_fragment_but_before_the_last_options() {
    let (hop, destination, routing) = (0, 60, 43);
    let chains: [(&[u8], usize); 6] = [
        (&[], 40),
        (&[hop], 48),
        (&[destination], 40),
        (&[hop, destination, routing, 44, destination], 72),
        (&[destination, routing], 56),
        (&[hop, destination], 48),
    ];
    for (chain, transport_offset) in chains {
        let mut rest = Vec::new();
        for (place, &kind) in chain.iter().enumerate() {
            let next = *chain.get(place + 1).unwrap_or(&17);
            rest.extend(if kind == 44 {
                fragment(next, 0, false)
            } else {
                pad(next)
            });
        }
        rest.extend(UDP_DATAGRAM);
        let packet = ipv6(*chain.first().unwrap_or(&17), &rest);
        let outline = Outline::read(&packet).unwrap();
        assert_eq!(outline.transport_offset, transport_offset, "{chain:?}");
        assert_eq!(outline.header_len, 40 + 8 * chain.len());
        assert_eq!((outline.protocol, outline.ports), (17, Some((5000, 53))));
        let Ip::V6(view) = Ip::new_checked(&packet).unwrap() else {
            panic!("not IPv6");
        };
        let at = Chain::read(&view).unwrap().transport_named_at;
        let expected = match transport_offset {
            40 => packet[6],
            _ => packet[transport_offset - 8],
        };
        assert_eq!(packet[at], expected);
        assert_eq!(
            at,
            if transport_offset == 40 {
                6
            } else {
                transport_offset - 8
            }
        );
    }
}

#[test]
fn a_bad_chain_of_extension_headers_is_refused_as_such() {
    let nine = [pad(60); 8].concat();
    let overrun = [17, 9, 1, 4, 0, 0, 0, 0];
    let option_overruns = [17, 0, 5, 200, 0, 0, 0, 0];
    let chains: [(&str, u8, Vec<u8>); 8] = [
        ("hop-by-hop is second", 60, [pad(0), pad(17)].concat()),
        ("hop-by-hop twice", 0, [pad(0), pad(17)].concat()),
        (
            "too many",
            60,
            [&nine[..], &pad(17), &UDP_DATAGRAM].concat(),
        ),
        ("header overruns the packet", 60, overrun.to_vec()),
        ("header is cut", 43, vec![17, 0, 0]),
        ("nothing where a header is named", 60, vec![]),
        (
            "two fragment headers",
            44,
            [fragment(44, 0, false), fragment(17, 0, false)].concat(),
        ),
        (
            "an option overruns its header",
            0,
            [&option_overruns[..], &UDP_DATAGRAM].concat(),
        ),
    ];
    for (what, first, rest) in chains {
        assert_eq!(
            Outline::read(&ipv6(first, &rest)),
            Err(Dropped::BadExtensionChain),
            "{what}"
        );
    }
    let eight = [&[pad(60); 7].concat()[..], &pad(17), &UDP_DATAGRAM].concat();
    assert!(Outline::read(&ipv6(60, &eight)).is_ok());
}

#[test]
fn a_jumbogram_is_unsupported_by_length_and_by_option() {
    let mut packet = ipv6(
        0,
        &[&[17, 0, 0xc2, 4, 0, 1, 0, 0][..], &UDP_DATAGRAM].concat(),
    );
    assert_eq!(Outline::read(&packet), Err(Dropped::Unsupported));
    packet[4..6].fill(0);
    assert_eq!(Outline::read(&packet), Err(Dropped::Unsupported));
}

#[test]
fn an_empty_ipv6_packet_is_a_packet() {
    let outline = Outline::read(&ipv6(59, &[])).unwrap();
    assert_eq!(
        (outline.protocol, outline.total_len, outline.ports),
        (59, 40, None)
    );
}

#[test]
fn ipsec_headers_count_as_upper_layers() {
    for protocol in [50, 51] {
        let outline = Outline::read(&ipv6(protocol, &[0; 16])).unwrap();
        assert_eq!((outline.protocol, outline.header_len), (protocol, 40));
    }
}

#[test]
fn a_packet_that_ends_before_its_ports_is_malformed() {
    for (protocol, too_short) in [
        (6, 3),
        (17, 3),
        (132, 3),
        (33, 3),
        (136, 3),
        (58, 1),
        (1, 1),
    ] {
        let packet = ipv6(protocol, &vec![0; too_short]);
        assert_eq!(Outline::read(&packet), Err(Dropped::Malformed));
        assert!(Outline::read(&ipv6(protocol, &vec![0; too_short + 1])).is_ok());
    }
}

/// A packet that etherparse built: family, options, protocol, tos, hop limit and payload drawn at random.
fn built_by_etherparse() -> impl Strategy<Value = Vec<u8>> {
    let addresses = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<bool>());
    let rest = (0u8..3, any::<(u16, u16, u8, u8)>(), 0usize..10);
    (
        addresses,
        rest,
        proptest::collection::vec(any::<u8>(), 0..200),
    )
        .prop_map(
            |((source, destination, four), (upper, (from, to, hops, class), options), payload)| {
                let ip = if four {
                    let addresses =
                        [&source[..4], &destination[..4]].map(|a| a.try_into().unwrap());
                    let mut header = etherparse::Ipv4Header::new(
                        0,
                        hops,
                        Default::default(),
                        addresses[0],
                        addresses[1],
                    )
                    .unwrap();
                    header.dscp = etherparse::IpDscp::try_new(class >> 2).unwrap();
                    header.ecn = etherparse::IpEcn::try_new(class & 3).unwrap();
                    header.options = (&[1; 36][..options * 4]).try_into().unwrap();
                    header.dont_fragment = from % 2 == 0;
                    IpHeaders::Ipv4(header, Default::default())
                } else {
                    IpHeaders::Ipv6(
                        etherparse::Ipv6Header {
                            traffic_class: class,
                            flow_label: etherparse::Ipv6FlowLabel::try_new(u32::from(to)).unwrap(),
                            hop_limit: hops,
                            source,
                            destination,
                            ..Default::default()
                        },
                        Default::default(),
                    )
                };
                let builder = PacketBuilder::ip(ip);
                let mut packet = Vec::new();
                match upper {
                    0 => builder.udp(from, to).write(&mut packet, &payload),
                    1 => builder.tcp(from, to, 7, 9).write(&mut packet, &payload),
                    2 if four => builder
                        .icmpv4_echo_request(from, to)
                        .write(&mut packet, &payload),
                    _ => builder
                        .icmpv6_echo_request(from, to)
                        .write(&mut packet, &payload),
                }
                .unwrap();
                packet
            },
        )
}

/// The outline of a packet as etherparse reads it.
fn second_opinion(packet: &[u8]) -> Option<Outline> {
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    let net = sliced.net?;
    let payload = net.ip_payload_ref()?;
    let start = payload.payload.as_ptr() as usize - packet.as_ptr() as usize;
    let common = |source: IpAddr, destination: IpAddr| Outline {
        source,
        destination,
        protocol: payload.ip_number.0,
        header_len: start,
        transport_offset: start,
        total_len: start + payload.payload.len(),
        ports: match (payload.ip_number.0, payload.payload) {
            (6 | 17 | 136 | 132 | 33, &[a, b, c, d, ..]) => {
                Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
            }
            (1 | 58, &[a, b, ..]) => Some((a.into(), b.into())),
            _ => None,
        },
        fragment: FragmentKind::Whole,
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 0,
    };
    Some(match &net {
        NetSlice::Ipv4(v4) => {
            let header = v4.header();
            Outline {
                traffic_class: header.dcp().value() << 2 | header.ecn().value(),
                dont_fragment: header.dont_fragment(),
                hop_limit: header.ttl(),
                ..common(
                    header.source_addr().into(),
                    header.destination_addr().into(),
                )
            }
        }
        NetSlice::Ipv6(v6) => {
            let header = v6.header();
            Outline {
                traffic_class: header.traffic_class(),
                hop_limit: header.hop_limit(),
                ..common(
                    header.source_addr().into(),
                    header.destination_addr().into(),
                )
            }
        }
        NetSlice::Arp(_) => return None,
    })
}

proptest! {
    #[test]
    fn etherparse_reads_the_same_in_packets_it_built(packet in built_by_etherparse()) {
        prop_assert_eq!(Outline::read(&packet).ok(), second_opinion(&packet));
    }

    #[test]
    fn the_checksums_of_packets_that_etherparse_built_verify(packet in built_by_etherparse()) {
        let outline = Outline::read(&packet).unwrap();
        let upper = &packet[outline.header_len..outline.total_len];
        let (source, destination) = (outline.source, outline.destination);
        let pseudo = match outline.protocol {
            number::ICMP => Sum::new(),
            _ => Sum::new().pseudo_header(source, destination, outline.protocol, upper.len()),
        };
        prop_assert_eq!(pseudo.bytes(upper).finish(), 0);
        if let Ip::V4(ipv4) = Ip::new_checked(&packet).unwrap() {
            prop_assert!(ipv4.checksum_is_right());
        }
    }

    #[test]
    fn no_bytes_panic_and_every_length_lies_inside(
        data in proptest::collection::vec(any::<u8>(), 0..200),
        first in prop_oneof![Just(0x45u8), Just(0x46), Just(0x60), any::<u8>()],
        next in prop_oneof![Just(0u8), Just(43), Just(44), Just(60), Just(17), Just(50)],
    ) {
        wire_headers::check(&data);
        let mut likely = data;
        if let [version, _, high, low, six_high, six_low, named, _, _, protocol, ..] = &mut likely[..] {
            (*version, *named, *protocol) = (first, next, next);
            (*high, *low, *six_high, *six_low) = (0, *low % 128, 0, *six_low % 128);
        }
        wire_headers::check(&likely);
        let len = (likely.len() as u16).to_be_bytes();
        fragments::check(&[&len[..], &likely, &len, &likely, &likely].concat());
    }

    #[test]
    fn every_single_corruption_of_a_real_packet_is_survived(
        packet in built_by_etherparse(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut packet = packet;
        let at = at.index(packet.len());
        packet[at] = value;
        wire_headers::check(&packet);
        let lax = LaxSlicedPacket::from_ip(&packet).is_ok();
        prop_assert!(Outline::read(&packet).is_err() || lax);
    }
}

/// A UDP datagram of either family, and a flow of it.
fn datagram(v6: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let udp = if v6 {
        PacketBuilder::ipv6([7; 16], [9; 16], 64).udp(1000, 2000)
    } else {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1000, 2000)
    };
    udp.write(&mut packet, payload).unwrap();
    packet
}

#[test]
fn the_next_packet_of_a_flow_is_familiar_whatever_its_length() {
    for v6 in [false, true] {
        let first = datagram(v6, &[1; 100]);
        let template = FlowTemplate::new(&first, &Outline::read(&first).unwrap()).unwrap();
        let mut next = datagram(v6, &[2; 60]);
        let len = next.len();
        next.extend([0; 6]);
        assert_eq!(template.total_len_of(&next), Some(len));
        assert_eq!(template.total_len_of(&next[..len - 1]), None);
    }
}

#[test]
fn fragments_and_packets_without_ports_are_never_familiar() {
    let later = ipv6(44, &[&fragment(17, 8, false)[..], &UDP_DATAGRAM].concat());
    let options = ipv6(60, &[&pad(17)[..], &UDP_DATAGRAM].concat());
    for packet in [later, options, ipv6(59, &[])] {
        let outline = Outline::read(&packet).unwrap();
        assert!(FlowTemplate::new(&packet, &outline).is_none());
    }
}

proptest! {
    #[test]
    fn what_is_familiar_would_be_read_the_same(
        v6: bool,
        changes in proptest::collection::vec((0usize..60, any::<u8>()), 0..3),
        cut in 0usize..80,
    ) {
        let first = datagram(v6, &[1; 24]);
        let outline = Outline::read(&first).unwrap();
        let template = FlowTemplate::new(&first, &outline).unwrap();
        let mut packet = datagram(v6, &[3; 20]);
        for (at, value) in changes {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        packet.truncate(packet.len().max(cut) - cut);
        if let Some(total_len) = template.total_len_of(&packet) {
            prop_assert_eq!(Outline::read(&packet), Ok(Outline { total_len, ..outline }));
        }
    }
}
