//! Packets with changed next-header fields, as etherparse reads them, and the place of IPsec among IPv6's headers.

use super::*;
use etherparse::{IpHeaders, PacketBuilder};

fn udp(options: &[u8]) -> Vec<u8> {
    let mut header = etherparse::Ipv4Header::new(
        0,
        64,
        etherparse::IpNumber::UDP,
        [10, 0, 0, 1],
        [10, 0, 0, 2],
    )
    .unwrap();
    header.options = etherparse::Ipv4Options::try_from(options).unwrap();
    let builder = PacketBuilder::ip(IpHeaders::Ipv4(header, Default::default())).udp(1, 2);
    let mut packet = Vec::new();
    builder.write(&mut packet, &[7; 9]).unwrap();
    packet
}

#[test]
fn options_of_ipv4_stay_outside() {
    let packet = udp(&[148, 4, 0, 0]);
    let outside = UnprotectedHeaders::of(&packet).unwrap();
    assert_eq!((outside.len, outside.next), (24, 17));
    assert!(!outside.is_plain(false) && UnprotectedHeaders::of(&udp(&[])).unwrap().is_plain(false));
}

#[test]
fn renamed_headers_read_as_they_were_meant() {
    let mut packet = udp(&[148, 4, 0, 0]);
    packet[4..6].fill(0);
    let outside = UnprotectedHeaders::of(&packet).unwrap();
    packet.extend([0; 24]);
    let len = packet.len();
    outside.rename(&mut packet, 51, len, 77);
    let header = etherparse::Ipv4HeaderSlice::from_slice(&packet).unwrap();
    assert_eq!(usize::from(header.total_len()), len);
    assert_eq!((header.protocol().0, header.identification()), (51, 77));
    assert_eq!(
        header.header_checksum(),
        header.to_header().calc_header_checksum()
    );
    outside.rename(&mut packet, 17, len - 24, 99);
    let header = etherparse::Ipv4HeaderSlice::from_slice(&packet).unwrap();
    assert_eq!(
        (header.protocol().0, header.identification()),
        (17, 77),
        "only 0 is replaced"
    );
}

/// Extension headers of eight bytes, each naming the next, before UDP.
fn chain(kinds: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
    packet.extend([0xfd; 32]);
    let mut named_at = 6;
    for kind in kinds {
        packet[named_at] = *kind;
        named_at = packet.len();
        // Options: a PadN of four; a routing header with no segments left, of an experimental type.
        packet.extend(if *kind == 43 {
            [0, 0, 253, 0, 0, 0, 0, 0]
        } else {
            [0, 0, 1, 4, 0, 0, 0, 0]
        });
    }
    packet[named_at] = 17;
    packet.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    v6::set_total_len(&mut packet, kinds.len() * 8 + 48);
    packet
}

#[test]
fn ipsec_goes_behind_hop_by_hop_and_routing_and_before_the_last_destination_options() {
    let cases: [(&[u8], usize, u8); 5] = [
        (&[], 40, 17),
        (&[0], 48, 17),
        (&[60], 40, 60),
        // RFC 4302 3.1.1: destination options for every hop of a route stay before, those for the last one go behind.
        (&[0, 60, 43, 60], 64, 60),
        (&[60, 43], 56, 17),
    ];
    for (kinds, len, next) in cases {
        let outside = UnprotectedHeaders::of(&chain(kinds)).unwrap();
        assert_eq!((outside.len, outside.next), (len, next), "{kinds:?}");
        let mut packet = chain(kinds);
        outside.rename(&mut packet, 51, 2000, 0);
        assert_eq!(packet[outside.named_at], 51);
        assert_eq!(packet[4..6], 1960u16.to_be_bytes());
    }
}

#[test]
fn all_headers_before_a_protected_payload_are_its_outside() {
    let mut packet = chain(&[0, 60, 43, 60]);
    let last = packet.len() - 16;
    packet[last] = 51;
    let outside = UnprotectedHeaders::before(&packet).unwrap();
    assert_eq!((outside.len, outside.named_at, outside.next), (72, 64, 51));
}
