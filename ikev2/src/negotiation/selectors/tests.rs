use super::*;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

fn address(value: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, value)
}

/// Selectors of few addresses, ports and protocols, so that they meet.
fn selectors() -> impl Strategy<Value = Vec<TrafficSelector<'static>>> {
    let ports = prop_oneof![
        Just(Ports::ANY),
        Just(Ports::Opaque),
        (0u16..6, 0u16..6).prop_map(|(a, b)| Ports::new(a.min(b), a.max(b)).unwrap()),
    ];
    let selector = (
        prop::sample::select(vec![0u8, 6, 17]),
        ports,
        0u8..8,
        0u8..8,
    );
    let selector = selector.prop_map(|(protocol, ports, a, b)| {
        let addresses = AddressRange::V4 {
            first: address(a.min(b)),
            last: address(a.max(b)),
        };
        TrafficSelector::Range {
            protocol,
            ports,
            addresses,
        }
    });
    prop::collection::vec(selector, 0..6)
}

/// Whether a packet is selected; without a port if it cannot be seen.
fn selects(selectors: &[TrafficSelector<'_>], packet: (u8, Option<u16>, u8)) -> bool {
    selectors.iter().any(|selector| {
        let TrafficSelector::Range {
            protocol,
            ports,
            addresses,
        } = selector
        else {
            return false;
        };
        let port_fits = match (ports, packet.1) {
            (Ports::Range { first, last }, Some(port)) => (*first..=*last).contains(&port),
            (ports, None) => matches!(*ports, Ports::ANY | Ports::Opaque),
            (Ports::Opaque, Some(_)) => false,
        };
        let (first, last) = addresses.bounds();
        let host = IpAddr::V4(address(packet.2));
        (*protocol == 0 || *protocol == packet.0) && port_fits && first <= host && host <= last
    })
}

proptest! {
    #[test]
    fn narrowed_selectors_let_pass_what_both_ends_do_and_nothing_else(
        theirs in selectors(), ours in selectors(),
    ) {
        let narrowed = narrow((&theirs, &theirs), (&ours, &ours));
        let both = narrowed.as_ref().map_or(&[][..], |narrowed| &narrowed.initiator);
        for protocol in [1, 6, 17] {
            for port in (0..7).map(Some).chain([None, Some(u16::MAX)]) {
                for host in 0..9 {
                    let packet = (protocol, port, host);
                    let expected = selects(&theirs, packet) && selects(&ours, packet);
                    prop_assert_eq!(selects(both, packet), expected, "{:?}", packet);
                }
            }
        }
        if let Some(narrowed) = narrowed {
            prop_assert!(is_within(&narrowed.initiator, &theirs));
            prop_assert!(is_within(&narrowed.initiator, &ours));
            let pair = narrowed.clone().first_pair();
            prop_assert_eq!((pair.initiator.len(), pair.responder.len()), (1, 1));
            // The result also lies within the first selectors when the ends change roles.
            let other = narrow((&ours, &ours), (&theirs, &theirs)).unwrap();
            prop_assert!(is_within(&other.initiator, &theirs));
        }
    }
}

#[test]
fn what_the_peer_names_first_stays_first() {
    let range = |protocol, first, last| {
        let addresses = AddressRange::V4 {
            first: address(first),
            last: address(last),
        };
        TrafficSelector::Range {
            protocol,
            ports: Ports::ANY,
            addresses,
        }
    };
    let theirs = [range(6, 7, 7), range(0, 0, 9)];
    let ours = [range(0, 5, 9), range(0, 0, 2)];
    let narrowed = narrow((&theirs, &theirs[1..]), (&ours, &ours)).unwrap();
    // The packet lies within the wider range, which takes its place.
    assert_eq!(narrowed.initiator, [range(0, 5, 9), range(0, 0, 2)]);
    let ours = [range(6, 5, 9)];
    assert_eq!(
        narrow((&theirs[..1], &theirs), (&ours, &ours))
            .unwrap()
            .initiator,
        [range(6, 7, 7)]
    );
}

#[test]
fn families_and_unknown_selectors_have_nothing_in_common() {
    let (v4, v6) = (TrafficSelector::ANY_IPV4, TrafficSelector::ANY_IPV6);
    assert_eq!(narrow((&[v4], &[v4]), (&[v6], &[v4])), None);
    assert_eq!(narrow((&[v4], &[v4]), (&[v4], &[])), None);
    let label = TrafficSelector::Other {
        kind: 10,
        second: 0,
        bytes: b"label",
    };
    assert_eq!(narrow((&[label], &[v4]), (&[label], &[v4])), None);
    assert!(!is_within(&[], &[v4]));
}
