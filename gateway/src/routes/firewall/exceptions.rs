//! What passes although policies would drop it: the gateway's own outer packets, ICMP errors about those, and what a
//! link needs to work.

use super::condition::{AH, ESP, UDP, when};
use super::devices::ring;
use crate::routes::Site;
use crate::routes::nftables::NamedSet;
use crate::routes::nftables::rule::{Field, Rule, Term, joined};
use crate::routes::plan::{Disposition, Entry, Family, IKE_PORTS, Plan, Senders, overlap};
use ipsec::policy::Prefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const ICMP: u8 = 1;
const IGMP: u8 = 2;
pub(super) const ICMP6: u8 = 58;

/// The families of outer packets that rules distinguish. A gateway that exchanges keys has both, whichever peers have
/// come: so their coming changes values alone.
fn outer_families(plan: &Plan) -> impl Iterator<Item = Family> {
    [Family::V4, Family::V6].into_iter().filter(|family| {
        let is_of_family = |pair| family_of(pair) == Some(*family);
        plan.exchanges_keys || plan.outer.iter().any(is_of_family)
    })
}

/// The family of both addresses.
fn family_of((source, destination): &(IpAddr, IpAddr)) -> Option<Family> {
    let family = Family::of(*source);
    (Family::of(*destination) == family).then_some(family)
}

/// The name of the set of pairs of outer addresses.
fn outer_set(family: Family) -> &'static str {
    match family {
        Family::V4 => "outer_v4",
        Family::V6 => "outer_v6",
    }
}

/// The sets that [`our_own`] names.
pub(crate) fn outer_sets(plan: &Plan) -> Vec<NamedSet> {
    let pairs = |family| {
        let pairs = plan.outer.iter();
        pairs.filter(move |pair| family_of(pair) == Some(family))
    };
    let set = |family| NamedSet {
        name: outer_set(family),
        field: Field::Ends(family),
        values: pairs(family).map(|pair| joined(*pair)).collect(),
    };
    outer_families(plan).map(set).collect()
}

/// The gateway's own outer packets. The mark alone is not enough, because any user of raw sockets may set it: they must
/// be ESP, AH or UDP from one of the gateway's ports, between addresses of an SA, or IKE; and from a socket of the
/// gateway's user. What the kernel's own IPsec has sealed bears the socket of the packet inside, or none, so its user
/// is not asked for.
pub(super) fn our_own(site: &Site, plan: &Plan) -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in outer_families(plan) {
        let between = when()
            .marked(site.outside_mark())
            .family(family)
            .and(Term::In(Field::Ends(family), outer_set(family)));
        rules.push(between.clone().protocols(&[ESP, AH]));
        if family == Family::V6 {
            // A packet fragmented before this hook has its protocol in the fragment header.
            rules.push(
                between
                    .clone()
                    .any(Field::FragmentNextHeader, [[ESP], [AH]], false),
            );
        }
        if !plan.udp_ports.is_empty() {
            let ports = plan.udp_ports.iter().map(|port| port.to_be_bytes());
            rules.push(
                between
                    .protocols(&[UDP])
                    .any(Field::SourcePort, ports, false),
            );
        }
    }
    if !plan.planes.by_kernel() {
        rules = sent_by(rules, plan);
    }
    rules.extend(sent_by(by_sockets(site, plan), plan));
    rules.into_iter().map(Rule::accept).collect()
}

/// Other packets that only the gateway's own sockets send.
fn by_sockets(site: &Site, plan: &Plan) -> Vec<Rule> {
    let mut rules = Vec::new();
    if plan.exchanges_keys {
        // RFC 7296 2.23: IKE leaves from these two ports alone.
        let ports = IKE_PORTS.map(u16::to_be_bytes);
        rules.push(when().marked(site.outside_mark()).protocols(&[UDP]).any(
            Field::SourcePort,
            ports,
            false,
        ));
    }
    if let Some(device) = ring(site, plan) {
        // Decrypted packets to a neighbour that is not resolved yet are sent to the inner hosts by a raw socket.
        rules.push(
            when()
                .marked(site.outside_mark())
                .device(Field::OutDevice, [device], false),
        );
    }
    rules
}

/// Checked last, because the kernel takes a lock to read a socket's user. None if no user sends.
fn sent_by(rules: Vec<Rule>, plan: &Plan) -> Vec<Rule> {
    match &plan.senders {
        Senders::None => Vec::new(),
        Senders::Any => rules,
        Senders::Users(users) => {
            let users: Vec<_> = users.iter().map(|user| user.to_ne_bytes()).collect();
            let of_them = |rule: Rule| rule.any(Field::SocketUser, &users, false);
            rules.into_iter().map(of_them).collect()
        }
    }
}

/// RFC 4301 8.2.1: "too big" about the gateway's outer packets must reach it, even if a policy protects the router's
/// address. The header of the outer packet follows the 8 bytes of ICMP: its protocol, then its source port.
pub(super) fn path_mtu(plan: &Plan) -> Vec<Rule> {
    let unreachable = when().family(Family::V4).protocols(&[ICMP]);
    let v4 = unreachable
        .is(Field::IcmpType, [3])
        .is(Field::IcmpCode, [4]);
    let too_big = when().family(Family::V6).protocols(&[ICMP6]);
    let v6 = too_big.is(Field::IcmpType, [2]);
    let mut rules = Vec::new();
    for (kind, protocol, port) in [(v4, 17, 28), (v6, 14, 48)] {
        let about = |number: u8| kind.clone().is(Field::Behind(protocol, 1), [number]);
        rules.extend([ESP, AH].map(|number| about(number).accept()));
        rules.extend(plan.udp_ports.iter().map(|udp| {
            about(UDP)
                .is(Field::Behind(port, 2), udp.to_be_bytes())
                .accept()
        }));
    }
    rules
}

/// Neighbour discovery is IPv6's ARP: it never leaves the link, and outer packets need it.
pub(super) fn neighbours() -> Rule {
    when()
        .family(Family::V6)
        .protocols(&[ICMP6])
        .any(Field::IcmpType, (133..=137).map(|kind| [kind]), false)
        .is(Field::HopLimit, [255])
        .accept()
}

/// Source, destination, and further conditions.
type Case<'a> = (Prefix, Prefix, &'a dyn Fn(Rule) -> Rule);

/// DHCP and multicast group reports: never forwarded, and needed before or beside any protected traffic. A rule is
/// added only if a policy would drop such packets, so that it costs other packets nothing.
pub(super) fn on_the_link(entries: &[Entry]) -> Vec<Rule> {
    let v4 = |address, len| Prefix {
        address: IpAddr::V4(address),
        len,
    };
    let v6 = |address, len| Prefix {
        address: IpAddr::V6(address),
        len,
    };
    let (any4, any6) = (v4(Ipv4Addr::UNSPECIFIED, 0), v6(Ipv6Addr::UNSPECIFIED, 0));
    let (unspecified4, broadcast4) = (v4(Ipv4Addr::UNSPECIFIED, 32), v4(Ipv4Addr::BROADCAST, 32));
    let groups4 = v4(Ipv4Addr::new(224, 0, 0, 0), 4);
    let groups6 = v6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);
    let link = v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);
    let lease4 = |rule: Rule| ports(rule, [(67, 68), (68, 67)]);
    let lease6 = |rule: Rule| ports(rule, [(546, 547), (547, 546)]);
    let cases: [Case<'_>; 5] = [
        // RFC 2131 4.1: a client that requests a lease has no address yet, or broadcasts.
        (unspecified4, any4, &lease4),
        (any4, broadcast4, &lease4),
        // RFC 8415 16: from link-local addresses.
        (link, any6, &lease6),
        // RFC 3376 4: no router forwards a hop limit of 1.
        (any4, groups4, &|rule| {
            rule.protocols(&[IGMP]).is(Field::TimeToLive, [1])
        }),
        // RFC 3810 5.
        (any6, groups6, &|rule| {
            rule.protocols(&[ICMP6])
                .any(Field::IcmpType, [[130], [131], [132], [143]], false)
                .is(Field::HopLimit, [1])
        }),
    ];
    let wanted = cases.into_iter().filter(|(source, destination, _)| {
        entries.iter().any(|entry| {
            entry.verdict != Disposition::Bypass
                && overlap(entry.selector.source, *source)
                && overlap(entry.selector.destination, *destination)
        })
    });
    let rule = |(source, destination, rest): Case<'_>| {
        let family = Family::of(source.address);
        let addresses = when()
            .family(family)
            .within(Field::Source(family), source)
            .within(Field::Destination(family), destination);
        rest(addresses).accept()
    };
    wanted.map(rule).collect()
}

/// UDP with one of these pairs of source and destination port.
fn ports(rule: Rule, pairs: [(u16, u16); 2]) -> Rule {
    let pairs = pairs
        .map(|(source, destination)| [source.to_be_bytes(), destination.to_be_bytes()].concat());
    rule.protocols(&[UDP]).any(Field::Ports, pairs, false)
}
