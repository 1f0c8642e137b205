use super::*;
use crate::routes::plan::Disposition;
use crate::routes::plan::Planes;
use crate::routes::plan::tests::prefix;
use proptest::prelude::*;

/// Entries of IPv4, of every kind, within few addresses.
pub fn entry() -> impl Strategy<Value = Entry> {
    let prefix = prop_oneof![
        Just("10.1.0.0/24"),
        Just("10.1.0.0/30"),
        Just("10.0.0.0/8"),
        Just("10.2.0.0/24"),
        Just("0.0.0.0/0"),
    ];
    let port = || prop_oneof![Just(None), (1u16..4).prop_map(Some)];
    let kind = prop_oneof![Just(None), (1u8..3).prop_map(Some)];
    let number = prop_oneof![Just(6u8), Just(17), Just(50)];
    let upper = prop_oneof![
        Just(Upper::Any),
        (number, port(), port()).prop_map(|(number, source_port, destination_port)| {
            Upper::Protocol {
                number,
                source_port,
                destination_port,
            }
        }),
        (port(), port()).prop_map(|(source_port, destination_port)| Upper::Ports {
            source_port,
            destination_port
        }),
        kind.prop_map(|kind| Upper::Icmp {
            number: 1,
            kind,
            code: None
        }),
    ];
    let verdict = prop_oneof![
        Just(Disposition::Protect),
        Just(Disposition::Discard),
        Just(Disposition::Bypass),
        Just(Disposition::Bypass),
    ];
    (prefix.clone(), prefix, upper, verdict).prop_map(|(source, destination, upper, verdict)| {
        crate::routes::plan::tests::entry(source, destination, upper, verdict)
    })
}

/// Source, destination, protocol, and ports or ICMP type.
pub type Packet = (&'static str, &'static str, u8, u16, u16);

/// Packets that match different entries of this kind.
pub fn packets() -> impl Iterator<Item = Packet> {
    let ends = ["10.1.0.1", "10.1.0.9", "10.2.0.1", "192.0.2.1"];
    let pairs = ends.into_iter().flat_map(move |a| ends.map(|b| (a, b)));
    pairs.flat_map(|(a, b)| {
        [1, 6, 17, 50]
            .into_iter()
            .flat_map(move |p| (0..4).flat_map(move |s| (0..4).map(move |d| (a, b, p, s, d))))
    })
}

/// Whether an entry matches a packet.
pub fn fits(entry: &Entry, (source, destination, protocol, a, b): Packet) -> bool {
    let upper = match entry.selector.upper {
        Upper::Any => true,
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => {
            number == protocol
                && source_port.is_none_or(|port| WITH_PORTS.contains(&protocol) && port == a)
                && destination_port.is_none_or(|port| WITH_PORTS.contains(&protocol) && port == b)
        }
        Upper::Ports {
            source_port,
            destination_port,
        } => {
            WITH_PORTS.contains(&protocol)
                && source_port.is_none_or(|port| port == a)
                && destination_port.is_none_or(|port| port == b)
        }
        Upper::Icmp { number, kind, .. } => {
            number == protocol && kind.is_none_or(|kind| u16::from(kind) == a)
        }
    };
    upper
        && entry.selector.source.contains(source.parse().unwrap())
        && entry
            .selector
            .destination
            .contains(destination.parse().unwrap())
}

/// Whether a list lets a packet pass.
pub fn passes(list: &[Entry], packet: Packet) -> bool {
    let first = list.iter().find(|entry| fits(entry, packet));
    first.is_none_or(|entry| !entry.drops())
}

proptest! {
    #[test]
    fn a_packet_passes_both_lists_only_if_each_lets_it_pass(
        one in proptest::collection::vec(entry(), 0..6),
        other in proptest::collection::vec(entry(), 0..6),
    ) {
        let exact = merged(&one, &other);
        for packet in packets() {
            let each = passes(&one, packet) && passes(&other, packet);
            prop_assert_eq!(passes(&exact, packet), each, "{:?} in {:?}", packet, exact);
            prop_assert!(each || !passes(&lists(&one, &other), packet));
        }
    }
}

#[test]
fn a_policy_that_comes_or_goes_leaves_the_others_as_they_are() {
    let entries: Vec<_> = (0..200u8)
        .map(|n| {
            let verdict = if n % 2 == 0 {
                Disposition::Protect
            } else {
                Disposition::Bypass
            };
            crate::routes::plan::tests::entry(
                "10.0.0.0/8",
                &format!("10.1.{n}.0/24"),
                Upper::Any,
                verdict,
            )
        })
        .collect();
    assert_eq!(lists(&entries, &entries), entries);
    let mut less = entries.clone();
    less.remove(100);
    assert_eq!(lists(&less, &entries), entries);
    assert_eq!(lists(&entries, &less), entries);
}

#[test]
fn where_policies_only_come_or_only_go_the_longer_list_is_what_both_drop() {
    let drop = |n: u8| {
        let theirs = format!("10.1.{n}.0/24");
        crate::routes::plan::tests::entry("10.0.0.0/8", &theirs, Upper::Any, Disposition::Protect)
    };
    let few: Vec<_> = (1..100).map(drop).collect();
    for more in [[0, 100], [100, 0], [150, 0]] {
        let mut many: Vec<_> = [drop(more[0])].into_iter().chain(few.clone()).collect();
        many.push(drop(more[1]));
        assert_eq!(lists(&few, &many), many);
        assert_eq!(lists(&many, &few), many);
    }
    // In another order, and with one entry replaced: each once.
    let mut other: Vec<_> = few.iter().rev().cloned().collect();
    other[7] = drop(200);
    assert_eq!(lists(&few, &other).len(), few.len() + 1);
}

#[test]
fn an_exception_for_a_port_stands_only_where_both_make_it() {
    let with = |ports: &[u16]| Plan {
        udp_ports: ports.iter().copied().collect(),
        ..Plan::default()
    };
    let joined = combined_plan(&with(&[4500, 5000]), &with(&[4500, 6000]));
    assert_eq!(joined.udp_ports, [4500].into());
    assert_eq!(
        narrower(prefix("10.0.0.0/8"), prefix("10.1.0.0/16")),
        Some(prefix("10.1.0.0/16"))
    );
}

#[test]
fn while_planes_change_both_pass_and_what_arrives_is_judged_as_before() {
    let by = |planes| Plan {
        planes,
        ..Plan::default()
    };
    let combined = |one, other| combined_plan(&by(one), &by(other)).planes;
    let (user, kernel) = (Planes::User, Planes::Kernel);
    let both = |kernel_opens| Planes::Both { kernel_opens };
    for (one, other, expected) in [
        (user, user, user),
        (kernel, kernel, kernel),
        (user, kernel, both(false)),
        (kernel, user, both(true)),
        (user, both(true), both(false)),
        (both(true), kernel, both(true)),
        (both(true), user, both(true)),
        (kernel, both(true), both(true)),
    ] {
        assert_eq!(combined(one, other), expected, "{one:?} {other:?}");
        assert!(expected.by_user() || one == kernel);
    }
    assert!(!by(user).drops_as(&by(kernel)));
}
