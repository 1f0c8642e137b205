//! The tables of RFC 4301 5.1.2.1, RFC 6040 and RFC 3948, case by case; etherparse reads the headers.

use super::*;
use crate::aggfrag::Aggfrag;
use crate::algorithm::Encryption;
use crate::sa::{Mode, Protocol, SaId, Spi, UdpEncapsulation};
use crate::suite::{Secret, Suite};
use etherparse::{Ipv4Header, Ipv6Header, UdpHeader};

const V4: (IpAddr, IpAddr) = (
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
);
const V6: (IpAddr, IpAddr) = (
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
);

fn sa((source, destination): (IpAddr, IpAddr)) -> SaConfig {
    let key = (
        Encryption::named("aes-gcm-16").unwrap(),
        Secret::new(vec![0; 20]),
    );
    let suite = Suite::new(Some(key), None, None).unwrap();
    let id = SaId {
        destination,
        protocol: Protocol::Esp,
        spi: Spi::new(0x1001).unwrap(),
    };
    SaConfig {
        mode: Mode::Tunnel,
        df: DontFragment::Copy,
        dscp: Dscp::Copy,
        ..SaConfig::new(id, source, suite)
    }
}

/// A packet of 28 bytes (IPv4) or 48 (IPv6) with this traffic class and DF bit.
fn inner(v4: bool, traffic_class: u8, dont_fragment: bool) -> Vec<u8> {
    let payload = [0x13, 0x88, 0x00, 0x35, 0, 8, 0, 0];
    let header = if v4 {
        Ipv4Fields {
            traffic_class,
            identification: 7,
            dont_fragment,
            hop_limit: 17,
            protocol: 17,
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
        }
        .emit(8)
        .to_vec()
    } else {
        Ipv6Fields {
            traffic_class,
            flow_label: 0x12345,
            next_header: 17,
            hop_limit: 17,
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::LOCALHOST,
        }
        .emit(8)
        .to_vec()
    };
    [&header[..], &payload].concat()
}

fn around(sa: &SaConfig, packet: &[u8]) -> Outer {
    Outer::around(sa, &Outline::read(packet).unwrap())
}

#[test]
fn the_df_bit_is_copied_set_or_cleared_as_configured() {
    // The cases of DPDK's and VPP's tables: DF of the inner header, the configuration, expected DF of the outer header.
    for (inner_df, configured, expected) in [
        (true, DontFragment::Copy, true),
        (false, DontFragment::Copy, false),
        (true, DontFragment::Set, true),
        (false, DontFragment::Set, true),
        (true, DontFragment::Clear, false),
        (false, DontFragment::Clear, false),
    ] {
        let config = SaConfig {
            df: configured,
            ..sa(V4)
        };
        let outer = around(&config, &inner(true, 0, inner_df));
        assert_eq!(
            outer.dont_fragment, expected,
            "inner {inner_df}, {configured:?}"
        );
    }
}

#[test]
fn an_ipv6_packet_counts_as_one_that_must_not_be_fragmented() {
    assert!(around(&sa(V4), &inner(false, 0, false)).dont_fragment);
    let clear = SaConfig {
        df: DontFragment::Clear,
        ..sa(V4)
    };
    assert!(!around(&clear, &inner(false, 0, false)).dont_fragment);
}

#[test]
fn dscp_is_copied_or_set_and_ecn_copied_or_zero_independently() {
    for v4 in [true, false] {
        for class in 0..=255 {
            let packet = inner(v4, class, true);
            let outside = |dscp, ecn| {
                around(
                    &SaConfig {
                        dscp,
                        ecn,
                        ..sa(V4)
                    },
                    &packet,
                )
                .traffic_class
            };
            assert_eq!(outside(Dscp::Copy, true), class);
            assert_eq!(outside(Dscp::Copy, false), class & 0xfc);
            assert_eq!(outside(Dscp::Set(46), true), 0xb8 | class & 3);
            assert_eq!(outside(Dscp::Set(46), false), 0xb8);
            assert_eq!(outside(Dscp::Set(0), true), class & 3);
        }
    }
}

#[test]
fn the_inner_hop_limit_does_not_travel_outside() {
    for ends in [V4, V6] {
        assert_eq!(around(&sa(ends), &inner(true, 0, true)).hop_limit, 64);
    }
}

#[test]
fn every_family_goes_inside_every_family_natively_and_in_udp() {
    let ports = UdpEncapsulation {
        source_port: 4500,
        destination_port: 4511,
    };
    for ends in [V4, V6] {
        for encapsulation in [None, Some(ports)] {
            for v4 in [true, false] {
                let config = SaConfig {
                    encapsulation,
                    ..sa(ends)
                };
                let outer = around(&config, &inner(v4, 0x2e, true));
                assert_eq!((outer.source, outer.destination), ends);
                assert_eq!(
                    outer.protocol,
                    if encapsulation.is_some() { 17 } else { 50 }
                );
                assert_eq!(outer.ports, encapsulation.map(|_| (4500, 4511)));
                assert_what_is_written_is_read(&outer);
            }
        }
    }
}

/// Writes and reads the headers; etherparse checks lengths, checksum and every field.
fn assert_what_is_written_is_read(outer: &Outer) {
    let mut packet = vec![0xaa; outer.len() + 100];
    outer.emit(100, 0xbeef, &mut packet);
    assert_eq!(Outer::read(&packet), Ok((*outer, outer.len())));
    let (protocol, rest) = if outer.destination.is_ipv4() {
        let (header, rest) = Ipv4Header::from_slice(&packet).unwrap();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(usize::from(header.total_len), packet.len());
        assert_eq!(
            header.dscp.value() << 2 | header.ecn.value(),
            outer.traffic_class
        );
        assert_eq!(
            (header.time_to_live, header.identification),
            (outer.hop_limit, 0xbeef)
        );
        assert_eq!(header.dont_fragment, outer.dont_fragment);
        assert_eq!(IpAddr::from(header.source), outer.source);
        assert_eq!(IpAddr::from(header.destination), outer.destination);
        (header.protocol, rest)
    } else {
        let (header, rest) = Ipv6Header::from_slice(&packet).unwrap();
        assert_eq!(usize::from(header.payload_length), packet.len() - 40);
        assert_eq!(header.traffic_class, outer.traffic_class);
        assert_eq!(header.hop_limit, outer.hop_limit);
        assert_eq!(IpAddr::from(header.source), outer.source);
        assert_eq!(IpAddr::from(header.destination), outer.destination);
        (header.next_header, rest)
    };
    assert_eq!(protocol.0, outer.protocol);
    if let Some(ports) = outer.ports {
        let (header, rest) = UdpHeader::from_slice(rest).unwrap();
        assert_eq!((header.source_port, header.destination_port), ports);
        assert_eq!((header.length, header.checksum), (108, 0));
        assert_eq!(rest.len(), 100);
    }
}

#[test]
fn one_tunnel_keeps_one_flow_label_and_its_neighbours_have_others() {
    let label = |last: u16, ports| {
        let to = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
        flow_label(Ipv6Addr::LOCALHOST, to, ports)
    };
    let mut labels: Vec<u32> = (0..64).map(|last| label(last, None)).collect();
    labels.extend((1..64).map(|port| label(0, Some((4500, port)))));
    assert_eq!(label(5, None), labels[5]);
    assert!(labels.iter().all(|label| *label < 1 << 20));
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), 127);
}

/// A datagram in IPv4 of this payload, on port 4500.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let outer = Outer {
        source: V4.0,
        destination: V4.1,
        protocol: 17,
        ports: Some((4500, 4500)),
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
        emitted_len: 0,
    };
    let mut packet = vec![0; 28];
    outer.emit(payload.len(), 0, &mut packet);
    packet.extend(payload);
    packet
}

#[test]
fn ike_and_keepalives_are_distinguished_from_esp() {
    for (payload, expected) in [
        (&[0, 0, 0, 0, 1, 2, 3, 4][..], Err(Dropped::Unsupported)),
        (&[0, 0, 0, 0], Err(Dropped::Unsupported)),
        (&[0xff], Err(Dropped::Unsupported)),
        (&[], Err(Dropped::Malformed)),
        (&[0, 0, 0], Err(Dropped::Malformed)),
        (&[0xff, 0xff], Err(Dropped::Malformed)),
        (&[0, 0, 0, 1, 0, 0, 0, 1], Ok(28)),
        (&[0xff, 0xff, 0xff, 0xff], Ok(28)),
    ] {
        let read = Outer::read(&datagram(payload)).map(|(_, at)| at);
        assert_eq!(read, expected, "{payload:?}");
    }
}

#[test]
fn a_udp_length_that_lies_is_malformed_and_a_short_one_ends_the_payload() {
    let mut packet = datagram(&[1; 20]);
    for (length, expected) in [
        (29, Err(Dropped::Malformed)),
        (0xffff, Err(Dropped::Malformed)),
        (7, Err(Dropped::Malformed)),
        (0, Err(Dropped::Malformed)),
        (28, Ok(28..48)),
        (20, Ok(28..40)),
    ] {
        packet[24..26].copy_from_slice(&u16::to_be_bytes(length));
        let read = Outer::payload(&packet).map(|(_, payload)| payload);
        assert_eq!(read, expected, "length {length}");
    }
}

#[test]
fn a_udp_checksum_is_neither_needed_nor_looked_at() {
    // RFC 3948 2.1: receivers MUST NOT depend upon the checksum being zero.
    let mut packet = datagram(&[1; 20]);
    packet[26..28].copy_from_slice(&[0xde, 0xad]);
    assert!(Outer::read(&packet).is_ok());
}

#[test]
fn link_padding_is_not_part_of_the_payload() {
    let mut packet = datagram(&[1; 4]);
    packet.resize(46, 0);
    assert_eq!(Outer::payload(&packet).unwrap().1, 28..32);
}

#[test]
fn outer_fragments_and_other_protocols_are_refused() {
    let mut packet = datagram(&[1; 20]);
    packet[6..8].copy_from_slice(&[0x20, 0]);
    assert_eq!(Outer::read(&packet), Err(Dropped::Fragment));
    packet[6..8].copy_from_slice(&[0, 2]);
    assert_eq!(Outer::read(&packet), Err(Dropped::Fragment));
    assert_eq!(
        Outer::read(&packet_of_protocol(6)),
        Err(Dropped::Unsupported)
    );
    assert_eq!(
        Outer::read(&packet_of_protocol(50)).map(|(_, at)| at),
        Ok(20)
    );
    assert_eq!(
        Outer::read(&packet_of_protocol(51)).map(|(_, at)| at),
        Ok(20)
    );
}

fn packet_of_protocol(protocol: u8) -> Vec<u8> {
    let mut packet = datagram(&[1; 20]);
    packet[9] = protocol;
    packet
}

#[test]
fn esp_is_found_behind_ipv6_extension_headers() {
    let outer = Outer {
        source: V6.0,
        destination: V6.1,
        ports: None,
        protocol: 60,
        ..around(&sa(V4), &inner(true, 0, true))
    };
    let mut packet = vec![0; 40];
    outer.emit(24, 0, &mut packet);
    packet.extend([50, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend([9; 16]);
    let (read, payload) = Outer::payload(&packet).unwrap();
    assert_eq!((read.protocol, payload), (50, 48..64));
}

/// RFC 6040 4.2, figure 4: rows by inner field, columns Not-ECT, ECT(0), ECT(1), CE; `None` is a drop.
const FIGURE_4: [(u8, [Option<u8>; 4]); 4] = [
    (0b00, [Some(0b00), Some(0b00), Some(0b00), None]),
    (0b10, [Some(0b10), Some(0b10), Some(0b01), Some(0b11)]),
    (0b01, [Some(0b01), Some(0b01), Some(0b01), Some(0b11)]),
    (0b11, [Some(0b11), Some(0b11), Some(0b11), Some(0b11)]),
];

#[test]
fn all_sixteen_combinations_of_ecn_leave_the_tunnel_by_rfc_6040() {
    for v4 in [true, false] {
        for (inner_ecn, row) in FIGURE_4 {
            for (outer_ecn, expected) in [0b00, 0b10, 0b01, 0b11].into_iter().zip(row) {
                assert_decapsulated(v4, inner_ecn, outer_ecn, expected);
            }
        }
    }
}

/// The outer DSCP never enters, nothing but the ECN field changes, and the checksum stays right.
fn assert_decapsulated(v4: bool, inner_ecn: u8, outer_ecn: u8, expected: Option<u8>) {
    for dscp in [0x00, 0x28, 0xfc] {
        let mut packet = inner(v4, dscp | inner_ecn, true);
        let before = packet.clone();
        let result = decapsulate_ecn(0x58 | outer_ecn, &mut packet);
        let after = match expected {
            Some(ecn) => inner(v4, dscp | ecn, true),
            None => before,
        };
        assert_eq!(result, expected.map(|_| ()).ok_or(Dropped::Congested));
        assert_eq!(
            packet, after,
            "inner {inner_ecn:02b}, outer {outer_ecn:02b}"
        );
    }
}

#[test]
fn what_is_no_ip_packet_cannot_take_an_ecn_field() {
    assert_eq!(decapsulate_ecn(3, &mut []), Err(Dropped::BadInner));
    assert_eq!(decapsulate_ecn(3, &mut [0x45; 19]), Err(Dropped::BadInner));
    assert_eq!(decapsulate_ecn(3, &mut [0x55; 60]), Err(Dropped::BadInner));
}

#[test]
fn an_outer_header_that_packets_share_has_fixed_fields() {
    let sa = SaConfig {
        aggfrag: Some(Aggfrag::default()),
        ..sa(V4)
    };
    let outer = Outer::for_aggfrag(&sa);
    assert_eq!((outer.protocol, outer.traffic_class), (50, 0));
    assert!(outer.dont_fragment);
    let set = SaConfig {
        dscp: Dscp::Set(46),
        df: DontFragment::Clear,
        ..sa
    };
    let outer = Outer::for_aggfrag(&set);
    assert_eq!((outer.traffic_class, outer.dont_fragment), (46 << 2, false));
}
