//! scapy's opinion on random headers, RFC 4302's appendix option by option, and what scapy does not do by hand.

use super::*;
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Vector {
    headers: String,
    covered: String,
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

#[test]
fn the_icv_covers_what_scapy_covers() {
    let text = include_str!("../../../tests/vectors/ah-mutable.json");
    let vectors: Vec<Vector> = serde_json::from_str(text).unwrap();
    assert_eq!(vectors.len(), 120);
    for vector in vectors {
        let mut headers = bytes(&vector.headers);
        assert_eq!(clear_mutable(&mut headers), Ok(()), "{}", vector.headers);
        assert_eq!(headers, bytes(&vector.covered), "{}", vector.headers);
    }
}

/// An IPv4 header with these options and AH behind it.
fn ipv4(options: &[u8]) -> Vec<u8> {
    let mut header = vec![
        0x45, 0xb9, 0, 200, 1, 2, 0x40, 0, 63, 51, 0xab, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    header.extend(options);
    header.resize(header.len().next_multiple_of(4), 0);
    header[0] = 0x40 | (header.len() / 4) as u8;
    header
}

#[test]
fn the_fixed_fields_of_ipv4_that_routers_change_are_zeroed() {
    let mut header = ipv4(&[]);
    assert_eq!(clear_mutable(&mut header), Ok(()));
    assert_eq!(
        header,
        [
            0x45, 0, 0, 200, 1, 2, 0, 0, 0, 51, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2
        ]
    );
}

#[test]
fn every_option_that_rfc_4302_does_not_call_immutable_is_zeroed_whole() {
    for kind in 2..=255 {
        let option = [kind, 4, 9, 9];
        let mut header = ipv4(&option);
        assert_eq!(clear_mutable(&mut header), Ok(()));
        let kept = [130, 133, 134, 148, 149].contains(&kind);
        assert_eq!(
            header[20..],
            if kept { option } else { [0; 4] },
            "option {kind}"
        );
    }
    let mut header = ipv4(&[1, 1, 1, 7, 3, 4, 1, 148, 4, 0, 0, 0]);
    assert_eq!(clear_mutable(&mut header), Ok(()));
    assert_eq!(header[20..], [1, 1, 1, 0, 0, 0, 1, 148, 4, 0, 0, 0]);
}

#[test]
fn nothing_behind_the_end_of_options_is_an_option() {
    let mut header = ipv4(&[0, 7, 3, 4]);
    assert_eq!(clear_mutable(&mut header), Ok(()));
    assert_eq!(header[20..], [0, 7, 3, 4]);
}

#[test]
fn a_source_route_ahead_makes_its_last_address_the_destination_at_both_ends() {
    for kind in [131, 137] {
        let mut sent = ipv4(&[kind, 11, 4, 192, 0, 2, 7, 192, 0, 2, 8]);
        assert_eq!(clear_mutable(&mut sent), Ok(()));
        assert_eq!(sent[16..20], [192, 0, 2, 8]);
        // What arrives: the destination is the last address and the pointer has passed the list.
        let mut arrived = ipv4(&[kind, 11, 12, 10, 0, 0, 2, 192, 0, 2, 7]);
        arrived[16..20].copy_from_slice(&[192, 0, 2, 8]);
        assert_eq!(clear_mutable(&mut arrived), Ok(()));
        assert_eq!(sent, arrived);
    }
}

/// An IPv6 header, extension headers, and AH behind them.
fn ipv6(first: u8, extensions: &[u8]) -> Vec<u8> {
    let mut headers = vec![0x6b, 0x9a, 0xbc, 0xde, 1, 0, first, 63];
    headers.extend([0xa; 16]);
    headers.extend([0xd; 16]);
    headers.extend(extensions);
    headers
}

/// A routing header of type 0 with these addresses, each of 16 equal bytes, and AH behind it.
fn route(left: u8, addresses: &[u8]) -> Vec<u8> {
    let mut header = vec![51, addresses.len() as u8 * 2, 0, left, 0, 0, 0, 0];
    addresses
        .iter()
        .for_each(|address| header.extend([*address; 16]));
    header
}

#[test]
fn a_routing_header_is_covered_as_it_arrives_wherever_it_is_on_its_way() {
    // From 0xd by 1 and 2 to 3: the packet at its source, behind each router, and at its destination.
    let on_the_way = [
        (0xd, 3, [1, 2, 3]),
        (1, 2, [0xd, 2, 3]),
        (2, 1, [0xd, 1, 3]),
        (3, 0, [0xd, 1, 2]),
    ];
    let mut expected = ipv6(43, &route(0, &[0xd, 1, 2]));
    expected[..8].copy_from_slice(&[0x60, 0, 0, 0, 1, 0, 43, 0]);
    expected[24..40].fill(3);
    for (destination, left, addresses) in on_the_way {
        let mut headers = ipv6(43, &route(left, &addresses));
        headers[24..40].fill(destination);
        assert_eq!(clear_mutable(&mut headers), Ok(()));
        assert_eq!(headers, expected, "{left} left");
    }
}

#[test]
fn headers_that_cannot_be_distinguished_are_refused() {
    let mut fragment = ipv4(&[]);
    fragment[6] = 0x20;
    let mut not_ah = ipv4(&[]);
    not_ah[9] = 6;
    let mut too_long = ipv4(&[]);
    too_long.push(0);
    let mut odd_route = route(1, &[1]);
    odd_route.truncate(16);
    odd_route[1] = 1;
    let mut strange_route = route(1, &[1]);
    strange_route[2] = 4;
    for (headers, expected) in [
        (vec![], Dropped::Malformed),
        (vec![0x45; 19], Dropped::Malformed),
        (vec![0x55; 40], Dropped::Malformed),
        (not_ah, Dropped::Malformed),
        (too_long, Dropped::Malformed),
        (fragment, Dropped::Fragment),
        (ipv4(&[7, 1, 0, 0]), Dropped::Malformed),
        (ipv4(&[7, 5, 0, 0]), Dropped::Malformed),
        (ipv4(&[1, 1, 1, 7]), Dropped::Malformed),
        (ipv6(6, &[]), Dropped::Malformed),
        (ipv6(0, &[51]), Dropped::Malformed),
        (ipv6(44, &[51, 0, 0, 0, 0, 0, 0, 1]), Dropped::Fragment),
        (
            ipv6(0, &[51, 1, 1, 4, 0, 0, 0, 0]),
            Dropped::BadExtensionChain,
        ),
        (
            ipv6(0, &[51, 0, 5, 9, 0, 0, 0, 0]),
            Dropped::BadExtensionChain,
        ),
        (
            ipv6(0, &[51, 0, 1, 3, 0, 0, 0, 5]),
            Dropped::BadExtensionChain,
        ),
        (
            ipv6(6, &[51, 0, 1, 4, 0, 0, 0, 0]),
            Dropped::BadExtensionChain,
        ),
        (ipv6(43, &route(2, &[1])), Dropped::BadExtensionChain),
        (ipv6(43, &odd_route), Dropped::BadExtensionChain),
        (ipv6(43, &strange_route), Dropped::Unsupported),
    ] {
        assert_eq!(
            clear_mutable(&mut headers.clone()),
            Err(expected),
            "{headers:02x?}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_and_covering_twice_changes_nothing(
        data in proptest::collection::vec(any::<u8>(), 0..100),
        kind in prop_oneof![Just(0u8), Just(43), Just(60), Just(51)],
    ) {
        for mut headers in [data.clone(), ipv4(&data[..data.len().min(40)]), ipv6(kind, &data)] {
            if clear_mutable(&mut headers).is_ok() {
                let once = headers.clone();
                prop_assert_eq!(clear_mutable(&mut headers), Ok(()));
                prop_assert_eq!(headers, once);
            }
        }
    }
}
