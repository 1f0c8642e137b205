//! Each header compared with etherparse: each reads what the other writes. Wrong lengths are refused.

use super::ah::{Ah, AhFields};
use super::checksum::Sum;
use super::esp::{Esp, EspFields};
use super::ip::v4::Ipv4Options;
use super::ip::v6::{Ipv6Option, Options};
use super::ip::{Ipv4, Ipv4Fields, Ipv6, Ipv6Fields};
use super::tcp::Tcp;
use super::udp::{Encapsulated, Udp, UdpFields};
use crate::Dropped;
use etherparse::{IpAuthHeader, IpNumber, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader};
use proptest::prelude::*;

#[test]
fn a_tcp_header_is_read_as_etherparse_wrote_it() {
    let mut header = TcpHeader::new(40000, 443, 0xdead_beef, 29200);
    header.acknowledgment_number = 0x0102_0304;
    (header.syn, header.ece, header.cwr) = (true, true, true);
    header.set_options_raw(&[1, 1, 2, 4, 5, 0xb4]).unwrap();
    let bytes = [&header.to_bytes()[..], b"data"].concat();
    let tcp = Tcp::new_checked(&bytes).unwrap();
    assert_eq!((tcp.source_port(), tcp.destination_port()), (40000, 443));
    assert_eq!(
        (tcp.sequence(), tcp.acknowledgement()),
        (0xdead_beef, 0x0102_0304)
    );
    assert_eq!(
        (tcp.flags(), tcp.window()),
        (super::tcp::SYN | super::tcp::ECE | super::tcp::CWR, 29200)
    );
    assert_eq!((tcp.header_len(), tcp.payload()), (28, &b"data"[..]));
    assert_eq!(tcp.options(), [1, 1, 2, 4, 5, 0xb4, 0, 0]);
    assert_eq!(tcp.max_segment_size(), Some((1460, 24..26)));
}

#[test]
fn a_tcp_header_of_lying_length_is_malformed() {
    let mut bytes = TcpHeader::new(1, 2, 3, 4).to_bytes().to_vec();
    for words in 0..16 {
        bytes[12] = words << 4;
        let expected = (words == 5).then_some(20).ok_or(Dropped::Malformed);
        assert_eq!(
            Tcp::new_checked(&bytes).map(|tcp| tcp.header_len()),
            expected
        );
    }
    assert!(Tcp::new_checked(&bytes[..19]).is_err());
}

#[test]
fn no_segment_size_is_found_behind_the_end_or_a_broken_option() {
    for options in [
        &[0, 2, 4, 5, 0xb4][..],
        &[8, 0, 2, 4, 5, 0xb4],
        &[8, 1, 2, 4, 5, 0xb4],
        &[8, 200, 2, 4, 5, 0xb4],
        &[2, 3, 5, 0xb4],
        &[1, 1, 2, 4],
        &[1, 1, 1, 2],
        &[],
    ] {
        let mut header = TcpHeader::new(1, 2, 3, 4);
        header.set_options_raw(options).unwrap();
        let bytes = header.to_bytes();
        assert_eq!(
            Tcp::new_checked(&bytes).unwrap().max_segment_size(),
            None,
            "{options:?}"
        );
    }
}

#[test]
fn an_authentication_header_goes_both_ways() {
    let icv = [7; 12];
    let theirs = IpAuthHeader::new(IpNumber::TCP, 0x1001, 42, &icv).unwrap();
    let fields = AhFields {
        next_header: 6,
        spi: 0x1001,
        sequence: 42,
    };
    let ours = [&fields.emit(12)[..], &icv].concat();
    assert_eq!(ours, theirs.to_bytes()[..]);
    let bytes = [&ours[..], b"payload"].concat();
    let ah = Ah::new_checked(&bytes).unwrap();
    assert_eq!((ah.next_header(), ah.spi(), ah.sequence()), (6, 0x1001, 42));
    assert_eq!(
        (ah.header_len(), ah.icv(), ah.payload()),
        (24, &icv[..], &b"payload"[..])
    );
}

#[test]
fn an_authentication_header_of_lying_length_is_malformed() {
    let mut bytes = [0; 28];
    for (units, expected) in [
        (0, Err(Dropped::Malformed)),
        (1, Ok(12)),
        (5, Ok(28)),
        (6, Err(Dropped::Malformed)),
        (255, Err(Dropped::Malformed)),
    ] {
        bytes[1] = units;
        assert_eq!(Ah::new_checked(&bytes).map(|ah| ah.header_len()), expected);
    }
}

#[test]
fn the_esp_header_of_a_printed_packet_is_read() {
    // RFC 3602 4, case 5: SPI 0x4321, sequence number 1.
    let bytes = [0, 0, 0x43, 0x21, 0, 0, 0, 1, 0xe9, 0x6e];
    let esp = Esp::new_checked(&bytes).unwrap();
    assert_eq!(
        (esp.spi(), esp.sequence(), esp.rest()),
        (0x4321, 1, &[0xe9, 0x6e][..])
    );
    assert_eq!(
        EspFields {
            spi: 0x4321,
            sequence: 1
        }
        .emit(),
        bytes[..8]
    );
    assert_eq!(
        Esp::new_checked(&bytes[..7]).map(|_| ()),
        Err(Dropped::Malformed)
    );
}

#[test]
fn ipv4_options_are_separated_and_end_where_they_overrun() {
    let options = [1, 7, 3, 9, 0x94, 4, 0, 0, 0, 0, 0, 0];
    let read: Vec<_> = Ipv4Options::of(&options).collect();
    assert_eq!(
        read,
        [Some(&[1][..]), Some(&[7, 3, 9]), Some(&[0x94, 4, 0, 0])]
    );
    for broken in [&[1, 7, 9][..], &[1, 7, 1], &[1, 7, 0], &[1, 7]] {
        assert_eq!(
            Ipv4Options::of(broken).collect::<Vec<_>>(),
            [Some(&[1][..]), None]
        );
    }
}

#[test]
fn ipv6_options_are_separated_and_end_where_they_overrun() {
    let header = [59, 1, 0, 5, 2, 0xaa, 0xbb, 1, 0, 0xc2, 4, 0, 0, 0, 0, 0];
    let read: Vec<_> = Options::of(&header).collect();
    let option = |kind, data_at, data_len| {
        Some(Ipv6Option {
            kind,
            data_at,
            data_len,
        })
    };
    assert_eq!(
        read,
        [
            option(0, 3, 0),
            option(5, 5, 2),
            option(1, 9, 0),
            option(0xc2, 11, 4),
            option(0, 16, 0)
        ]
    );
    let overrun = [59, 0, 0, 5, 4, 0, 0, 0];
    assert_eq!(
        Options::of(&overrun).collect::<Vec<_>>(),
        [option(0, 3, 0), None]
    );
    assert_eq!(Options::of(&[59, 0, 5]).collect::<Vec<_>>(), [None]);
}

#[test]
fn a_udp_checksum_of_zero_is_written_as_ffff() {
    let all_ones = Sum::new().bytes(&[0xff, 0xff]);
    assert_eq!((all_ones.finish(), all_ones.finish_udp()), (0, 0xffff));
    assert_eq!(Sum::new().bytes(&[0xff, 0xfe]).finish_udp(), 1);
}

#[test]
fn what_udp_carries_on_its_esp_port_is_classified_by_its_first_bytes() {
    for (payload, expected) in [
        (&[0xff][..], Encapsulated::Keepalive),
        (&[0, 0, 0, 0], Encapsulated::Ike),
        (&[0, 0, 0, 1], Encapsulated::Esp),
        (&[0xff; 4], Encapsulated::Esp),
        (&[0xff; 2], Encapsulated::Short),
        (&[0; 3], Encapsulated::Short),
        (&[0], Encapsulated::Short),
        (&[], Encapsulated::Short),
    ] {
        assert_eq!(Encapsulated::of(payload), expected, "{payload:?}");
    }
}

proptest! {
    #[test]
    fn an_ipv4_header_is_read_by_both_as_it_was_meant(
        (source, destination) in any::<([u8; 4], [u8; 4])>(),
        (traffic_class, hop_limit, protocol) in any::<(u8, u8, u8)>(),
        (identification, dont_fragment) in any::<(u16, bool)>(),
        payload_len in 0usize..100,
    ) {
        let fields = Ipv4Fields {
            traffic_class, identification, dont_fragment, hop_limit, protocol,
            source: source.into(),
            destination: destination.into(),
        };
        let mut bytes = fields.emit(payload_len).to_vec();
        let (theirs, _) = Ipv4Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(&theirs.to_bytes()[..], &bytes[..]);
        prop_assert_eq!(theirs.calc_header_checksum(), theirs.header_checksum);
        prop_assert_eq!(theirs.dscp.value() << 2 | theirs.ecn.value(), traffic_class);
        prop_assert_eq!((theirs.time_to_live, theirs.protocol.0), (hop_limit, protocol));
        prop_assert_eq!((theirs.source, theirs.destination), (source, destination));
        bytes.resize(20 + payload_len, 0);
        let view = Ipv4::new_checked(&bytes).unwrap();
        let read = Ipv4Fields {
            traffic_class: view.traffic_class(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            hop_limit: view.hop_limit(),
            protocol: view.protocol(),
            source: view.source(),
            destination: view.destination(),
        };
        prop_assert_eq!(read, fields);
        prop_assert!(view.checksum_is_right() && !view.is_fragment() && view.options().is_empty());
    }

    #[test]
    fn an_ipv6_header_is_read_by_both_as_it_was_meant(
        (source, destination) in any::<([u8; 16], [u8; 16])>(),
        (traffic_class, hop_limit, next_header) in any::<(u8, u8, u8)>(),
        flow_label in 0u32..1 << 20,
        payload_len in 1usize..100,
    ) {
        let fields = Ipv6Fields {
            traffic_class, flow_label, next_header, hop_limit,
            source: source.into(),
            destination: destination.into(),
        };
        let mut bytes = fields.emit(payload_len).to_vec();
        let (theirs, _) = Ipv6Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(&theirs.to_bytes()[..], &bytes[..]);
        prop_assert_eq!((theirs.traffic_class, theirs.flow_label.value()), (traffic_class, flow_label));
        prop_assert_eq!((theirs.hop_limit, theirs.next_header.0), (hop_limit, next_header));
        prop_assert_eq!((theirs.source, theirs.destination), (source, destination));
        bytes.resize(40 + payload_len, 0);
        let view = Ipv6::new_checked(&bytes).unwrap();
        let read = Ipv6Fields {
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            source: view.source(),
            destination: view.destination(),
        };
        prop_assert_eq!(read, fields);
    }

    #[test]
    fn a_udp_header_is_read_by_both_as_it_was_meant(
        (source_port, destination_port, checksum) in any::<(u16, u16, u16)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let fields = UdpFields { source_port, destination_port, checksum };
        let bytes = [&fields.emit(payload.len())[..], &payload].concat();
        let (theirs, rest) = UdpHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!((theirs.source_port, theirs.destination_port), (source_port, destination_port));
        prop_assert_eq!((usize::from(theirs.length), rest.len()), (bytes.len(), payload.len()));
        let view = Udp::new_checked(&bytes).unwrap();
        let read = UdpFields {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            checksum: view.checksum(),
        };
        prop_assert_eq!((read, view.payload()), (fields, &payload[..]));
    }
}
