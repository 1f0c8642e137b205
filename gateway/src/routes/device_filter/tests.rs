//! Programs, run by an interpreter and by the kernel, are compared with a naive evaluation of the plan.

mod machine;
mod packet;
mod reading;

use super::compiler::{MAX_INSTRUCTIONS_PER_PROGRAM, programs, programs_of};
use super::task::Target;
use super::{FilterHook, LinkKind};
use crate::routes::plan::tests::{entry, prefix};
use crate::routes::plan::{Disposition, Entry, Plan, Planes};
use ipsec::policy::Upper;
use machine::{Kernel, cost, drops};
use packet::{Fragment, Packet};
use proptest::prelude::*;
use reading::reads_drop;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MARK: u32 = 0x1000_0000;

fn target(hook: FilterHook, link: LinkKind) -> Target {
    Target {
        hook,
        link,
        mark: MARK,
        delivers: false,
        is_bridged: false,
    }
}

fn address(v6: bool, bits: u16) -> IpAddr {
    let [a, b, c, d] = [bits & 3, bits >> 2 & 3, bits >> 4 & 3, bits >> 6 & 3];
    if v6 {
        // Differences in the first, second, third and last word.
        Ipv6Addr::new(0x2001, 0xdb8 + a, 0, b, 0, c, 0x8000 * (c & 1), d).into()
    } else {
        Ipv4Addr::new(10, a as u8, b as u8, (c * 64 + d) as u8).into()
    }
}

fn addresses(v6: bool) -> impl Strategy<Value = IpAddr> {
    (0u16..256).prop_map(move |bits| address(v6, bits))
}

fn prefixes(v6: bool) -> impl Strategy<Value = String> {
    let lens = if v6 {
        vec![0, 16, 31, 32, 48, 63, 64, 80, 95, 96, 127, 128]
    } else {
        vec![0, 8, 14, 16, 23, 24, 26, 31, 32]
    };
    (addresses(v6), proptest::sample::select(lens)).prop_map(|(address, len)| {
        let net = ipsec::policy::Prefix { address, len };
        let cut = crate::routes::range::Range::of(crate::routes::plan::tests::normal(net)).first;
        match address {
            IpAddr::V4(_) => format!("{}/{len}", Ipv4Addr::from(cut as u32)),
            IpAddr::V6(_) => format!("{}/{len}", Ipv6Addr::from(cut)),
        }
    })
}

fn port() -> impl Strategy<Value = u16> {
    proptest::sample::select(vec![53, 67, 68, 443, 500, 546, 547, 4500])
}

fn uppers() -> impl Strategy<Value = Upper> {
    let some = || proptest::option::of(port());
    let number = || proptest::sample::select(vec![6, 17, 58, 1, 50, 47, 2]);
    prop_oneof![
        4 => Just(Upper::Any),
        3 => (number(), some(), some()).prop_map(|(number, source_port, destination_port)| Upper::Protocol {
            number, source_port, destination_port
        }),
        1 => (some(), some()).prop_map(|(source_port, destination_port)| {
            Upper::Ports { source_port, destination_port }
        }),
        2 => (any::<bool>(), proptest::option::of(prop_oneof![Just(2u8), Just(3), Just(128), Just(135)]),
              proptest::option::of(prop_oneof![Just(0u8), Just(4)])).prop_map(|(v6, kind, code)| Upper::Icmp {
            number: if v6 { 58 } else { 1 }, kind, code
        }),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let verdict = prop_oneof![
        Just(Disposition::Protect),
        Just(Disposition::Discard),
        Just(Disposition::Bypass)
    ];
    let one = any::<bool>()
        .prop_flat_map(|v6| (prefixes(v6), prefixes(v6)))
        .prop_flat_map(move |(source, destination)| {
            (Just(source), Just(destination), uppers(), verdict.clone())
        })
        .prop_map(|(source, destination, upper, verdict)| {
            entry(&source, &destination, upper, verdict)
        });
    proptest::collection::vec(one, 0..12)
}

fn plans() -> impl Strategy<Value = Plan> {
    let pair = any::<bool>().prop_flat_map(|v6| (addresses(v6), addresses(v6)));
    let outer = proptest::collection::btree_set(pair, 0..6);
    let ports = prop_oneof![Just(vec![]), Just(vec![4500]), Just(vec![4500, 5000])];
    let fwd = proptest::option::of(entries());
    let planes = prop_oneof![
        4 => Just(Planes::User),
        1 => Just(Planes::Kernel),
        1 => any::<bool>().prop_map(|kernel_opens| Planes::Both { kernel_opens }),
    ];
    let others = (ports, any::<bool>(), planes);
    (entries(), entries(), fwd, outer, others).prop_map(
        |(leaving, arriving, passing, outer, (ports, exchanges_keys, planes))| Plan {
            planes,
            leaving,
            passing: passing.unwrap_or_else(|| arriving.clone()),
            arriving,
            outer,
            udp_ports: ports.into_iter().collect(),
            exchanges_keys,
            ..Plan::default()
        },
    )
}

fn packets() -> impl Strategy<Value = Packet> {
    let tags = proptest::collection::vec(
        proptest::sample::select(vec![0x8100u16, 0x88a8, 0x9100]),
        0..4,
    );
    let extensions = prop_oneof![
        4 => Just(Vec::new()),
        1 => proptest::collection::vec(proptest::sample::select(vec![0u8, 43, 60, 135]), 0..11),
    ];
    let fragment = prop_oneof![4 => Just(None), 1 => Just(Some(Fragment::First)), 1 => Just(Some(Fragment::Later))];
    let number =
        proptest::sample::select(vec![2u8, 6, 17, 17, 17, 58, 58, 1, 1, 50, 51, 47, 59, 132]);
    let icmp = prop_oneof![
        Just((3u8, 4u8)),
        Just((2, 0)),
        Just((8, 0)),
        Just((128, 0)),
        Just((135, 0)),
        Just((143, 0)),
        Just((3, 1))
    ];
    let quoted =
        proptest::sample::select(vec![(50u8, 0u16), (17, 4500), (17, 53), (6, 4500), (51, 9)]);
    let payload = prop_oneof![3 => Just(64usize), 1 => 0usize..64];
    let facts = (
        prop_oneof![3 => Just(0u32), 1 => Just(MARK)],
        prop_oneof![4 => Just(0u32), 1 => Just(3u32)],
    );
    let hops = prop_oneof![Just(255u8), Just(64), Just(1)];
    (any::<bool>(), tags, extensions, fragment)
        .prop_flat_map(|(v6, tags, extensions, fragment)| {
            (
                Just((v6, tags, extensions, fragment)),
                special(v6, true),
                special(v6, false),
            )
        })
        .prop_flat_map(move |first| {
            let ports = (port(), port());
            (
                Just(first),
                number.clone(),
                ports,
                icmp.clone(),
                quoted.clone(),
                payload.clone(),
                facts.clone(),
                hops.clone(),
            )
        })
        .prop_map(
            |(first, protocol, ports, icmp, quoted, payload, (mark, kind), hops)| {
                let ((_, tags, extensions, fragment), source, destination) = first;
                Packet {
                    source,
                    destination,
                    tags,
                    extensions,
                    fragment,
                    protocol,
                    ports,
                    icmp,
                    quoted,
                    payload,
                    mark,
                    kind,
                    hops,
                }
            },
        )
}

/// Mostly addresses of the plans; sometimes those of DHCP or a multicast group.
fn special(v6: bool, is_source: bool) -> impl Strategy<Value = IpAddr> {
    let other: IpAddr = match (v6, is_source) {
        (false, true) => Ipv4Addr::UNSPECIFIED.into(),
        (false, false) => Ipv4Addr::BROADCAST.into(),
        (true, _) => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into(),
    };
    let group: IpAddr = if v6 {
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16).into()
    } else {
        Ipv4Addr::new(224, 0, 0, 22).into()
    };
    let special = if is_source { other } else { group };
    prop_oneof![18 => addresses(v6), 2 => Just(other), 1 => Just(special)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn programs_drop_what_a_naive_reading_of_the_plan_drops(
        plan in plans(),
        packets in proptest::collection::vec(packets(), 40),
        (delivers, is_bridged) in any::<(bool, bool)>(),
    ) {
        for hook in [FilterHook::Ingress, FilterHook::Egress] {
            for link in [LinkKind::Ethernet, LinkKind::Other] {
                let target = Target { delivers, is_bridged, ..target(hook, link) };
                let programs = programs(&plan, target).unwrap();
                for packet in &packets {
                    let wanted = reads_drop(&plan, target, packet);
                    prop_assert_eq!(drops(&programs, packet, link), wanted, "{:?} {:?} {:?}", hook, link, packet);
                }
            }
        }
    }

    #[test]
    fn many_small_programs_drop_what_one_large_program_drops(
        plan in plans(),
        packets in proptest::collection::vec(packets(), 20),
    ) {
        for hook in [FilterHook::Ingress, FilterHook::Egress] {
            let target = target(hook, LinkKind::Ethernet);
            // An area that cannot be divided further may not fit so small a program.
            let Ok(small) = programs_of(&plan, target, 700) else { continue };
            for packet in &packets {
                // Areas that drop nothing have no program: without any, frames with too many tags pass too.
                let is_parsed = packet.tags.len() <= 2 || !small.is_empty();
                let wanted = is_parsed && reads_drop(&plan, target, packet);
                prop_assert_eq!(drops(&small, packet, LinkKind::Ethernet), wanted, "{:?} {:?}", hook, packet);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_kernel_takes_the_programs_and_runs_them_to_the_same_end(
        plan in plans(),
        packets in proptest::collection::vec(packets(), 40),
    ) {
        for hook in [FilterHook::Ingress, FilterHook::Egress] {
            let target = target(hook, LinkKind::Ethernet);
            for program in programs(&plan, target).unwrap() {
                let kernel = Kernel::with(&program);
                for packet in packets.iter().filter(|packet| packet.mark == 0 && packet.kind == 0) {
                    let wanted = reads_drop(&plan, target, packet);
                    prop_assert_eq!(kernel.drops(&packet.frame()), wanted, "{:?} {:?}", hook, packet);
                }
            }
        }
    }
}

/// Policies between one network and as many others.
fn hub(policies: u32, v6: bool) -> Plan {
    let mut plan = Plan::default();
    for n in 0..policies {
        // Every second network, so that adjacent ones are not joined to one range.
        let (mine, theirs) = if v6 {
            (
                format!("fd00:{:x}::/64", n % 200),
                format!("2001:db8:{:x}::/48", 2 * n),
            )
        } else {
            (
                format!("10.{}.0.0/24", n % 200),
                format!("172.{}.{}.0/24", 16 + n / 128, n % 128 * 2),
            )
        };
        plan.leaving
            .push(entry(&mine, &theirs, Upper::Any, Disposition::Protect));
        plan.arriving
            .push(entry(&theirs, &mine, Upper::Any, Disposition::Protect));
    }
    plan.passing.clone_from(&plan.arriving);
    plan
}

#[test]
fn four_thousand_policies_are_a_few_programs() {
    for (v6, most) in [(false, 10), (true, 16)] {
        let plan = hub(4000, v6);
        for hook in [FilterHook::Ingress, FilterHook::Egress] {
            let target = target(hook, LinkKind::Ethernet);
            let programs = programs(&plan, target).unwrap();
            assert!(
                (2..=most).contains(&programs.len()),
                "{} programs, {hook:?}, v6 {v6}",
                programs.len()
            );
            assert!(
                programs
                    .iter()
                    .all(|program| program.len() <= MAX_INSTRUCTIONS_PER_PROGRAM)
            );
            for n in [0u32, 1, 199, 1999, 3999] {
                let packet = hub_packet(n, v6, hook);
                assert!(
                    drops(&programs, &packet, LinkKind::Ethernet),
                    "policy {n}, {hook:?}"
                );
                let other = hub_packet(n + 1, v6, hook);
                let astray = Packet {
                    source: other.source,
                    ..hub_packet(n, v6, hook)
                };
                assert!(
                    !drops(&programs, &astray, LinkKind::Ethernet),
                    "no policy, {n}, {hook:?}"
                );
            }
        }
    }
}

/// Policies between two networks of each family, and packets to other destinations.
#[test]
fn what_goes_where_no_policy_leads_costs_a_handful_of_instructions() {
    let mut one = Plan::default();
    for (mine, theirs) in [
        ("10.1.0.0/24", "10.2.0.0/24"),
        ("fd00:1::/64", "fd00:2::/64"),
    ] {
        one.leaving
            .push(entry(mine, theirs, Upper::Any, Disposition::Protect));
        one.arriving
            .push(entry(theirs, mine, Upper::Any, Disposition::Protect));
    }
    one.passing.clone_from(&one.arriving);
    let v4 = Packet::udp(
        Ipv4Addr::new(10, 1, 0, 2).into(),
        Ipv4Addr::new(192, 0, 2, 1).into(),
    );
    let v6 = Packet::udp(
        Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2).into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2).into(),
    );
    for hook in [FilterHook::Ingress, FilterHook::Egress] {
        let costs = |plan: &Plan, packet: &Packet| -> Vec<usize> {
            let programs = programs(plan, target(hook, LinkKind::Ethernet)).unwrap();
            let each = programs.iter();
            each.map(|program| cost(program, packet, LinkKind::Ethernet))
                .collect()
        };
        assert!(costs(&one, &v4)[0] <= 6, "{:?}", costs(&one, &v4));
        assert!(costs(&one, &v6)[0] <= 7, "{:?}", costs(&one, &v6));
        for v6_policies in [false, true] {
            let many = hub(4000, v6_policies);
            let dear = [&v4, &v6].map(|packet| costs(&many, packet).into_iter().max());
            assert!(
                dear.into_iter().flatten().all(|cost| cost <= 12),
                "{dear:?}"
            );
        }
    }
}

fn hub_packet(n: u32, v6: bool, hook: FilterHook) -> Packet {
    let (mine, theirs): (IpAddr, IpAddr) = if v6 {
        (
            Ipv6Addr::new(0xfd00, (n % 200) as u16, 0, 0, 1, 2, 3, 4).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 2 * n as u16, 9, 9, 9, 9, 9).into(),
        )
    } else {
        (
            Ipv4Addr::new(10, (n % 200) as u8, 0, 7).into(),
            Ipv4Addr::new(172, (16 + n / 128) as u8, (n % 128 * 2) as u8, 9).into(),
        )
    };
    match hook {
        FilterHook::Egress => Packet::udp(mine, theirs),
        FilterHook::Ingress => Packet::udp(theirs, mine),
    }
}

#[test]
fn ingress_drops_only_what_neither_delivery_nor_forwarding_would_let_in() {
    let packet = Packet::udp(address(false, 1), address(false, 2));
    let policy = |verdict: Option<Disposition>| match verdict {
        Some(verdict) => vec![entry("10.0.0.0/8", "10.0.0.0/8", Upper::Any, verdict)],
        None => Vec::new(),
    };
    let verdicts = [
        Some(Disposition::Protect),
        Some(Disposition::Discard),
        Some(Disposition::Bypass),
        None,
    ];
    for (n, arriving) in verdicts.into_iter().enumerate() {
        for (m, passing) in verdicts.into_iter().enumerate() {
            let plan = Plan {
                arriving: policy(arriving),
                passing: policy(passing),
                ..Plan::default()
            };
            let programs =
                programs(&plan, target(FilterHook::Ingress, LinkKind::Ethernet)).unwrap();
            let dropped = drops(&programs, &packet, LinkKind::Ethernet);
            assert_eq!(dropped, n < 2 && m < 2, "in {arriving:?}, fwd {passing:?}");
        }
    }
}

#[test]
fn a_plan_that_drops_nothing_needs_no_program() {
    let mut plan = Plan::default();
    plan.leaving.push(entry(
        "0.0.0.0/0",
        "0.0.0.0/0",
        Upper::Any,
        Disposition::Bypass,
    ));
    for hook in [FilterHook::Ingress, FilterHook::Egress] {
        assert!(
            programs(&plan, target(hook, LinkKind::Ethernet))
                .unwrap()
                .is_empty()
        );
    }
}

#[test]
fn more_ports_between_the_same_addresses_than_a_program_holds_are_refused() {
    let mut plan = Plan::default();
    for port in 0..4000 {
        let upper = Upper::Protocol {
            number: 6,
            source_port: None,
            destination_port: Some(port),
        };
        plan.leaving.push(entry(
            "10.1.0.0/24",
            "10.2.0.0/24",
            upper,
            Disposition::Protect,
        ));
    }
    let refused = programs(&plan, target(FilterHook::Egress, LinkKind::Ethernet));
    assert_eq!(refused.unwrap_err(), super::TooMany);
}

#[test]
fn a_gateway_that_forwards_delivers_what_it_has_opened_even_where_all_is_protected() {
    let mut plan = Plan::default();
    plan.leaving.push(entry(
        "0.0.0.0/0",
        "0.0.0.0/0",
        Upper::Any,
        Disposition::Protect,
    ));
    let inner = Target {
        delivers: true,
        ..target(FilterHook::Egress, LinkKind::Ethernet)
    };
    let clear = Packet::udp(address(false, 1), address(false, 2));
    let opened = Packet {
        mark: MARK,
        ..clear.clone()
    };
    let programs = programs(&plan, inner).unwrap();
    assert!(drops(&programs, &clear, LinkKind::Ethernet));
    assert!(!drops(&programs, &opened, LinkKind::Ethernet));
    assert_eq!(prefix("0.0.0.0/0"), plan.leaving[0].selector.source);
}

#[test]
fn what_the_kernel_has_sealed_leaves_and_what_it_has_opened_arrives() {
    let both = |source, destination| entry(source, destination, Upper::Any, Disposition::Protect);
    let (here, there) = (address(false, 1), address(false, 2));
    let plan = |planes| Plan {
        planes,
        leaving: vec![both("10.0.0.0/8", "10.0.0.0/8")],
        arriving: vec![both("10.0.0.0/8", "10.0.0.0/8")],
        passing: vec![both("10.0.0.0/8", "10.0.0.0/8")],
        outer: [(here, there), (there, here)].into(),
        udp_ports: [4500].into(),
        ..Plan::default()
    };
    let dropped = |planes, hook, packet: &Packet| {
        let programs = programs(&plan(planes), target(hook, LinkKind::Ethernet)).unwrap();
        drops(&programs, packet, LinkKind::Ethernet)
    };
    let clear = Packet::udp(here, there);
    let sealed = |protocol, mark| Packet {
        protocol,
        mark,
        ports: (4500, 4500),
        ..clear.clone()
    };
    // XFRM adds to the mark of the packet inside, which carries that of a packet for the tunnel.
    let marks = [MARK, MARK | MARK << 1];
    let states = [
        (Planes::User, true),
        (
            Planes::Both {
                kernel_opens: false,
            },
            true,
        ),
        (Planes::Both { kernel_opens: true }, false),
        (Planes::Kernel, false),
    ];
    for (planes, judges_arriving) in states {
        assert!(dropped(planes, FilterHook::Egress, &clear));
        for protocol in [50, 51, 17] {
            assert!(dropped(
                planes,
                FilterHook::Egress,
                &sealed(protocol, MARK << 1)
            ));
            for mark in marks {
                assert!(!dropped(
                    planes,
                    FilterHook::Egress,
                    &sealed(protocol, mark)
                ));
            }
            assert!(!dropped(planes, FilterHook::Ingress, &sealed(protocol, 0)));
        }
        let opened = Packet::udp(there, here);
        assert_eq!(
            dropped(planes, FilterHook::Ingress, &opened),
            judges_arriving,
            "{planes:?}"
        );
    }
}
