//! The index against RFC 4301 4.4.1 as it is written: policies in order, and the first that fits.

use super::*;
use crate::policy::Prefix;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn address(is_v6: bool, host: u8) -> IpAddr {
    if is_v6 {
        Ipv6Addr::from_bits(0xfd << 120 | u128::from(host)).into()
    } else {
        Ipv4Addr::new(10, 0, 0, host).into()
    }
}

/// A prefix shorter by some bits than the address of a host.
fn prefix((is_v6, host, shorter): (bool, u8, u8)) -> Prefix {
    let whole = if is_v6 { 128 } else { 32 };
    Prefix {
        address: address(is_v6, host),
        len: whole - shorter,
    }
}

fn selector(source: (bool, u8, u8), destination: (bool, u8, u8), upper: Upper) -> Selector {
    Selector {
        source: prefix(source),
        destination: prefix(destination),
        upper,
    }
}

fn packet(
    is_v6: bool,
    (source, destination): (u8, u8),
    protocol: u8,
    ports: Option<(u16, u16)>,
    fragment: FragmentKind,
) -> Outline {
    Outline {
        source: address(is_v6, source),
        destination: address(is_v6, destination),
        protocol,
        header_len: 20,
        transport_offset: 20,
        total_len: 60,
        ports,
        fragment,
        traffic_class: 0,
        dont_fragment: false,
        hop_limit: 64,
    }
}

/// One selector after the other.
fn first_that_fits(selectors: &[Selector], packet: &Outline) -> Option<(u32, Fit)> {
    (0..).zip(selectors).find_map(|(rank, selector)| {
        let is_between = selector.source.contains(packet.source)
            && selector.destination.contains(packet.destination);
        match judged(&selector.upper, packet) {
            Fit::No => None,
            fit => is_between.then_some((rank, fit)),
        }
    })
}

fn judged(upper: &Upper, packet: &Outline) -> Fit {
    let (protocols, wanted) = match *upper {
        Upper::Any => return Fit::Yes,
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => (vec![number], [source_port, destination_port]),
        Upper::Icmp { number, kind, code } => {
            (vec![number], [kind.map(u16::from), code.map(u16::from)])
        }
        Upper::Ports {
            source_port,
            destination_port,
        } => (vec![6, 17, 33, 132, 136], [source_port, destination_port]),
    };
    if !protocols.contains(&packet.protocol) {
        return Fit::No;
    }
    let missed = |(one, other): (&Option<u16>, u16)| one.is_some_and(|one| one != other);
    match packet.ports {
        _ if wanted == [None, None] => Fit::Yes,
        Some((a, b)) if wanted.iter().zip([a, b]).any(missed) => Fit::No,
        Some(_) => Fit::Yes,
        None if packet.fragment == FragmentKind::Later => Fit::Unclear,
        None => Fit::No,
    }
}

const PROTOCOLS: [u8; 8] = [1, 6, 17, 33, 50, 58, 132, 136];

fn some_upper() -> impl Strategy<Value = Upper> {
    let protocol = || prop::sample::select(PROTOCOLS.to_vec());
    let port = || prop::option::of(0..3_u16);
    prop_oneof![
        Just(Upper::Any),
        (protocol(), port(), port()).prop_map(|(number, source_port, destination_port)| {
            Upper::Protocol {
                number,
                source_port,
                destination_port,
            }
        }),
        (prop::sample::select(vec![1_u8, 58]), port(), port()).prop_map(|(number, kind, code)| {
            Upper::Icmp {
                number,
                kind: kind.map(|kind| kind as u8),
                code: code.map(|code| code as u8),
            }
        }),
        (port(), port()).prop_map(|(source_port, destination_port)| Upper::Ports {
            source_port,
            destination_port,
        }),
    ]
}

fn some_prefix() -> impl Strategy<Value = (bool, u8, u8)> {
    (
        any::<bool>(),
        0..4_u8,
        prop::sample::select(vec![0_u8, 1, 2, 32]),
    )
}

proptest! {
    #[test]
    fn the_first_selector_that_fits_is_found_whatever_others_there_are(
        selectors in prop::collection::vec((some_prefix(), some_prefix(), some_upper()), 0..24),
        is_v6 in any::<bool>(),
        hosts in (0..4_u8, 0..4_u8),
        protocol in prop::sample::select(PROTOCOLS.to_vec()),
        ports in prop::option::of((0..3_u16, 0..3_u16)),
        is_later in any::<bool>(),
    ) {
        let selectors: Vec<_> = selectors
            .into_iter()
            .map(|(source, destination, upper)| selector(source, destination, upper))
            .collect();
        let packet = if is_later {
            packet(is_v6, hosts, protocol, None, FragmentKind::Later)
        } else {
            packet(is_v6, hosts, protocol, ports, FragmentKind::Whole)
        };
        let index = Index::new(selectors.iter());
        prop_assert_eq!(index.find(&packet), first_that_fits(&selectors, &packet));
    }
}

/// Two shapes whose ranks interleave: both must be searched, even if one has a match.
#[test]
fn of_two_shapes_that_fit_the_better_rank_counts_whichever_is_asked_first() {
    let host = |host, upper| selector((false, host, 0), (false, 9, 0), upper);
    let pair = |host, upper| selector((false, host, 1), (false, 8, 1), upper);
    let sought = packet(false, (1, 9), 17, Some((1, 2)), FragmentKind::Whole);
    let before = [host(4, Upper::Any), pair(6, Upper::Any)];
    for (fitting, expected) in [
        ([host(1, Upper::Any), pair(1, Upper::Any)], 2),
        ([pair(1, Upper::Any), host(1, Upper::Any)], 2),
    ] {
        let selectors = [before, fitting].concat();
        let found = Index::new(selectors.iter()).find(&sought);
        assert_eq!(found, Some((expected, Fit::Yes)));
    }
}
