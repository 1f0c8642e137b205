//! Compares what XFRM policies block, by a model of the kernel's lookup, with a naive evaluation of the plan.

use super::*;
use crate::routes::combined_plan::tests::{Packet, entry, fits, packets, passes};
use crate::routes::plan::tests::entry as entry_of;
use proptest::prelude::*;

const TUNNEL: u32 = 9;

fn around() -> Surroundings {
    Surroundings {
        tunnels: vec![TUNNEL],
        opened: Some(0x4000_0000),
    }
}

/// What XFRM policies match besides addresses, protocol and ports.
#[derive(Clone, Copy, Default)]
struct Way {
    device: u32,
    mark: u32,
}

/// The first matching policy decides.
fn blocks(rules: &[Rule], packet: Packet, way: Way) -> bool {
    let first = rules.iter().find(|rule| is_asked(&rule.fits, packet, way));
    first.is_some_and(|rule| rule.blocks)
}

fn is_asked(fits: &Match, (source, destination, protocol, a, b): Packet, way: Way) -> bool {
    let within = |prefix: Prefix, address: &str| prefix.contains(address.parse().unwrap());
    // The kernel compares ICMP type and code in place of ports, and zeros for protocols that have neither.
    let (a, b) = match protocol {
        ICMP => (a, 0),
        protocol if WITH_PORTS.contains(&protocol) => (a, b),
        _ => (0, 0),
    };
    within(fits.source, source)
        && within(fits.destination, destination)
        && (fits.protocol == 0 || fits.protocol == protocol)
        && fits.source_port.is_none_or(|port| port == a)
        && fits.destination_port.is_none_or(|port| port == b)
        && (fits.device == 0 || fits.device == way.device)
        && way.mark & fits.mark == fits.mark
}

fn list() -> impl Strategy<Value = Vec<Entry>> {
    proptest::collection::vec(entry(), 0..6)
}

/// All test packets whose fields XFRM can match: ICMP packets have code 0, ports are not 0.
fn all() -> impl Iterator<Item = Packet> {
    packets().filter(|(_, _, protocol, a, b)| {
        let has_ports = WITH_PORTS.contains(protocol);
        (*protocol != ICMP || *b == 0) && (!has_ports || *a > 0 && *b > 0)
    })
}

proptest! {
    #[test]
    fn what_is_delivered_is_blocked_where_the_plan_drops_it(arriving in list(), port in 1u16..4) {
        let plan = Plan { arriving, udp_ports: [port].into(), ..Plan::default() };
        let rules = rules(&plan, Direction::In, &around());
        for packet in all() {
            let (_, _, protocol, _, to) = packet;
            let is_excepted = protocol == ESP || protocol == UDP && to == port;
            let drops = !is_excepted && !passes(&plan.arriving, packet);
            prop_assert_eq!(blocks(&rules, packet, Way::default()), drops, "{:?} by {:?}", packet, rules);
        }
    }

    #[test]
    fn what_is_forwarded_is_blocked_where_either_list_drops_it(leaving in list(), passing in list()) {
        let plan = Plan { leaving, passing, ..Plan::default() };
        let rules = rules(&plan, Direction::Fwd, &around());
        let is_exact = both_lists(&plan.leaving, &plan.passing).is_some();
        for packet in all() {
            let (forwarded, leaves) = (passes(&plan.passing, packet), passes(&plan.leaving, packet));
            let blocked = blocks(&rules, packet, Way::default());
            prop_assert_eq!(blocked, !forwarded || is_exact && !leaves, "{:?} by {:?}", packet, rules);
            let into = Way { device: TUNNEL, mark: 0 };
            prop_assert!(!blocks(&rules, packet, into));
        }
    }

    #[test]
    fn what_leaves_is_blocked_only_where_no_socket_needs_another_way(leaving in list()) {
        let plan = Plan { leaving, ..Plan::default() };
        let rules = rules(&plan, Direction::Out, &around());
        for packet in all() {
            let first = plan.leaving.iter().find(|entry| fits(entry, packet));
            let is_due = first.is_some_and(|entry| match entry.verdict {
                Disposition::Bypass => false,
                Disposition::Discard => true,
                Disposition::Protect => {
                    let late = matches!(entry.selector.upper,
                        Upper::Protocol { source_port: Some(_), .. } | Upper::Ports { source_port: Some(_), .. });
                    entry.selector.source.len == 0 && !late && !plan.needs_marks()
                }
            });
            prop_assert_eq!(blocks(&rules, packet, Way::default()), is_due, "{:?} by {:?}", packet, rules);
        }
    }
}

fn both_ways(source: &str, destination: &str) -> Plan {
    let protect = || {
        vec![entry_of(
            source,
            destination,
            Upper::Any,
            Disposition::Protect,
        )]
    };
    Plan {
        leaving: protect(),
        arriving: protect(),
        passing: protect(),
        ..Plan::default()
    }
}

#[test]
fn ipv6_out_of_the_tunnel_passes_by_its_mark_and_what_leaves_has_no_policy() {
    let plan = both_ways("::/0", "::/0");
    let packet = ("fd00::1", "fd00::2", 47, 0, 0);
    let marked = Way {
        device: 0,
        mark: 0x4000_0001,
    };
    for direction in [Direction::In, Direction::Fwd] {
        let rules = rules(&plan, direction, &around());
        assert!(blocks(&rules, packet, Way::default()), "{direction:?}");
        assert!(!blocks(&rules, packet, marked), "{direction:?}");
    }
    assert_eq!(rules(&plan, Direction::Out, &around()), []);
    assert!(leaves_out(&plan));
    let unmarked = Surroundings {
        opened: None,
        ..around()
    };
    assert_eq!(rules(&plan, Direction::In, &unmarked), []);
}

#[test]
fn neighbours_leases_and_groups_pass_in_both_families() {
    let v6 = rules(&both_ways("::/0", "::/0"), Direction::In, &around());
    for kind in 133..=137 {
        assert!(!is_blocked_icmp6(&v6, "ff02::1", kind), "{kind}");
    }
    for kind in [130, 131, 132, 143] {
        assert!(!is_blocked_icmp6(&v6, "ff02::16", kind), "{kind}");
        assert!(is_blocked_icmp6(&v6, "fe80::2", kind), "{kind}");
    }
    assert!(is_blocked_icmp6(&v6, "fe80::2", 128));
    let v4 = both_ways("0.0.0.0/0", "0.0.0.0/0");
    for direction in [Direction::In, Direction::Out] {
        let v4 = rules(&v4, direction, &around());
        let is_blocked = |packet| blocks(&v4, packet, Way::default());
        assert!(!is_blocked(("0.0.0.0", "255.255.255.255", UDP, 68, 67)));
        assert!(!is_blocked(("192.0.2.1", "255.255.255.255", UDP, 67, 68)));
        assert!(!is_blocked(("192.0.2.1", "224.0.0.22", IGMP, 0, 0)));
        assert!(is_blocked(("192.0.2.1", "192.0.2.9", UDP, 68, 67)));
        assert!(is_blocked(("192.0.2.1", "192.0.2.9", IGMP, 0, 0)));
    }
}

fn is_blocked_icmp6(rules: &[Rule], to: &'static str, kind: u16) -> bool {
    let first = rules.iter().find(|rule| {
        let fits = &rule.fits;
        fits.destination.contains(to.parse().unwrap())
            && fits.source.contains("fe80::9".parse().unwrap())
            && [0, ICMP6].contains(&fits.protocol)
            && fits.source_port.is_none_or(|port| port == kind)
            && fits.mark == 0
    });
    first.is_some_and(|rule| rule.blocks)
}

#[test]
fn fragments_follow_the_first_entry_that_asks_for_ports() {
    let udp = |port, verdict| {
        let upper = Upper::Protocol {
            number: UDP,
            source_port: None,
            destination_port: Some(port),
        };
        entry_of("10.1.0.0/24", "10.2.0.0/24", upper, verdict)
    };
    let fragment = ("10.1.0.1", "10.2.0.1", UDP, 0, 0);
    for (entries, is_blocked) in [
        (vec![udp(53, Disposition::Protect)], true),
        (
            vec![udp(53, Disposition::Bypass), udp(54, Disposition::Protect)],
            false,
        ),
    ] {
        let plan = Plan {
            passing: entries,
            ..Plan::default()
        };
        let rules = rules(&plan, Direction::Fwd, &around());
        assert_eq!(blocks(&rules, fragment, Way::default()), is_blocked);
    }
}

#[test]
fn a_plan_that_drops_nothing_needs_no_policy() {
    let any = |verdict| {
        let list = vec![entry_of("10.1.0.0/24", "10.2.0.0/24", Upper::Any, verdict)];
        let plan = Plan {
            leaving: list.clone(),
            arriving: list.clone(),
            passing: list,
            ..Plan::default()
        };
        let directions = [Direction::In, Direction::Out, Direction::Fwd];
        directions.map(|direction| !rules(&plan, direction, &around()).is_empty())
    };
    assert_eq!(any(Disposition::Bypass), [false, false, false]);
    // With a source prefix there is no `out` policy, because unbound sockets get their source address late.
    assert_eq!(any(Disposition::Protect), [true, false, true]);
    assert_eq!(any(Disposition::Discard), [true, true, true]);
}
