//! A plan as XFRM policies, in the order in which the kernel looks them up. They drop nothing that the plan lets pass.
//! They do not cover everything that the plan drops; each function below documents what it leaves out.

use crate::routes::combined_plan::both_lists;
use crate::routes::netlink::xfrm::{Direction, Match};
use crate::routes::plan::{Disposition, Entry, Family, Plan, WITH_PORTS, overlap};
use ipsec::policy::{Prefix, Upper};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ICMP: u8 = 1;
const IGMP: u8 = 2;
const UDP: u8 = 17;
const ESP: u8 = 50;
const AH: u8 = 51;
const ICMP6: u8 = 58;

/// One policy, without its place in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub fits: Match,
    pub blocks: bool,
}

/// Facts about the host that decide which packets belong to the tunnel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Surroundings {
    /// Devices through which packets enter the tunnel.
    pub tunnels: Vec<u32>,
    /// The bit in the mark of decrypted IPv6 packets; none if it cannot be set.
    pub opened: Option<u32>,
}

/// The policies of one direction.
pub(super) fn rules(plan: &Plan, direction: Direction, around: &Surroundings) -> Vec<Rule> {
    let families = [Family::V4, Family::V6].into_iter();
    let rules = families.flat_map(|family| match direction {
        Direction::In => arriving(plan, family, around),
        Direction::Fwd => passing(plan, family, around),
        Direction::Out => leaving(plan, family),
    });
    first_of_each(rules.collect())
}

/// In IPv6, XFRM checks packets from the tunnel's device and from the loopback device too: they pass by their mark.
fn arriving(plan: &Plan, family: Family, around: &Surroundings) -> Vec<Rule> {
    let entries = of_family(&plan.arriving, family);
    if !drops_any(&entries) || family == Family::V6 && around.opened.is_none() {
        return Vec::new();
    }
    let all = Match::all(family);
    let mut rules: Vec<_> = opened(family, around).collect();
    for protocol in [ESP, AH] {
        rules.push(allow(Match { protocol, ..all }));
    }
    for port in &plan.udp_ports {
        rules.push(allow(Match {
            protocol: UDP,
            destination_port: Some(*port),
            ..all
        }));
    }
    // RFC 4301 8.2.1: "too big". XFRM cannot match the packet that it quotes.
    let (protocol, kind, code) = match family {
        Family::V4 => (ICMP, 3, Some(4)),
        Family::V6 => (ICMP6, 2, None),
    };
    rules.push(allow(Match {
        protocol,
        source_port: Some(kind),
        destination_port: code,
        ..all
    }));
    rules.extend(of_the_link(&entries, family));
    rules.extend(entries.iter().flat_map(stated));
    rules
}

/// The `fwd` list enforces `fwd` policies and `out` policies on forwarded packets. XFRM's `out` list also applies to
/// packets of this host, of which it cannot block all that the plan drops ([`leaving`]).
fn passing(plan: &Plan, family: Family, around: &Surroundings) -> Vec<Rule> {
    let (leaving, passing) = (
        of_family(&plan.leaving, family),
        of_family(&plan.passing, family),
    );
    // If the two lists cannot be merged into one of acceptable length, `out` policies are left to the other barriers.
    let entries = both_lists(&leaving, &passing).unwrap_or(passing);
    if !drops_any(&entries) {
        return Vec::new();
    }
    let all = Match::all(family);
    let into = around.tunnels.iter();
    let mut rules: Vec<_> = into.map(|&device| allow(Match { device, ..all })).collect();
    rules.extend(opened(family, around));
    for entry in &entries {
        rules.extend(stated(entry));
        rules.extend(fragments(entry));
    }
    rules
}

/// Only IPv4 can exempt a device's outgoing packets (`disable_xfrm`), so only there are packets that enter the tunnel
/// distinguished from others. What cannot be blocked correctly passes, even if a later policy would block it.
fn leaving(plan: &Plan, family: Family) -> Vec<Rule> {
    let mut entries = of_family(&plan.leaving, family);
    for entry in &mut entries {
        if !is_right(plan, entry) {
            entry.verdict = Disposition::Bypass;
        }
    }
    if !drops_any(&entries) {
        return Vec::new();
    }
    let mut rules = of_the_link(&entries, family);
    rules.extend(entries.iter().flat_map(stated));
    rules
}

/// Whether XFRM can enforce an entry of `out` policies without blocking packets for the tunnel. It looks up a socket's
/// policy before the packet is rerouted. Where routing into the tunnel depends on a source address, a source port or a
/// mark that an unbound socket gets only later, a blocking policy would also keep the packet out of the tunnel.
fn is_right(plan: &Plan, entry: &Entry) -> bool {
    let is_v4 = entry.family() == Some(Family::V4);
    is_v4
        && match entry.verdict {
            Disposition::Bypass | Disposition::Discard => true,
            Disposition::Protect => {
                !plan.needs_marks() && entry.selector.source.len == 0 && !asks_late(entry)
            }
        }
}

/// Whether this host can send packets that the plan drops and no XFRM policy blocks.
pub(super) fn leaves_out(plan: &Plan) -> bool {
    let mut entries = plan.leaving.iter();
    entries.any(|entry| drops(entry) && !is_right(plan, entry))
}

fn asks_late(entry: &Entry) -> bool {
    let (source_port, _) = entry.selector.upper.ports();
    source_port.is_some() || entry.asks_icmp_type()
}

fn opened(family: Family, around: &Surroundings) -> impl Iterator<Item = Rule> {
    let mark = around.opened.filter(|_| family == Family::V6);
    mark.into_iter().map(move |mark| {
        allow(Match {
            mark,
            ..Match::all(family)
        })
    })
}

fn of_family(entries: &[Entry], family: Family) -> Vec<Entry> {
    let fits = |entry: &&Entry| entry.family() == Some(family);
    entries.iter().filter(fits).cloned().collect()
}

fn drops(entry: &Entry) -> bool {
    entry.verdict != Disposition::Bypass
}

fn drops_any(entries: &[Entry]) -> bool {
    entries.iter().any(drops)
}

fn allow(fits: Match) -> Rule {
    Rule {
        fits,
        blocks: false,
    }
}

/// An entry as the XFRM policies that it takes; none if no packet can match it.
fn stated(entry: &Entry) -> Vec<Rule> {
    let fits = Match {
        source: entry.selector.source,
        destination: entry.selector.destination,
        ..Match::all(Family::V4)
    };
    let rule = |protocol, source_port, destination_port| Rule {
        fits: Match {
            protocol,
            source_port,
            destination_port,
            ..fits
        },
        blocks: drops(entry),
    };
    match entry.selector.upper {
        Upper::Any => vec![rule(0, None, None)],
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => {
            let has_ports = !entry.asks_ports() || WITH_PORTS.contains(&number);
            let rule = rule(number, source_port, destination_port);
            has_ports.then_some(rule).into_iter().collect()
        }
        Upper::Ports {
            source_port,
            destination_port,
        } => WITH_PORTS
            .map(|number| rule(number, source_port, destination_port))
            .to_vec(),
        Upper::Icmp { number, kind, code } => {
            vec![rule(number, kind.map(u16::from), code.map(u16::from))]
        }
    }
}

/// XFRM reads the ports of every fragment, also of the first one, as zero. So an entry with ports also gets a policy
/// for port zero. An entry with ICMP types does not, because type zero is an echo reply.
fn fragments(entry: &Entry) -> Vec<Rule> {
    let is_icmp = matches!(entry.selector.upper, Upper::Icmp { .. });
    if !entry.asks_ports() || is_icmp {
        return Vec::new();
    }
    let portless = |rule: Rule| Rule {
        fits: Match {
            source_port: Some(0),
            destination_port: Some(0),
            ..rule.fits
        },
        ..rule
    };
    stated(entry).into_iter().map(portless).collect()
}

/// Neighbour discovery, DHCP and multicast group reports, which the drop rules let pass too; XFRM cannot match the hop
/// limit.
fn of_the_link(entries: &[Entry], family: Family) -> Vec<Rule> {
    let all = Match::all(family);
    let prefix = |address: IpAddr, len| Prefix { address, len };
    let udp = |fits: Match, ports: [(u16, u16); 2]| {
        ports.map(|(source, destination)| Match {
            protocol: UDP,
            source_port: Some(source),
            destination_port: Some(destination),
            ..fits
        })
    };
    let mut link = Vec::new();
    match family {
        Family::V4 => {
            let (unspecified, broadcast) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
            let from_unspecified = Match {
                source: prefix(unspecified.into(), 32),
                ..all
            };
            let to_broadcast = Match {
                destination: prefix(broadcast.into(), 32),
                ..all
            };
            for ends in [from_unspecified, to_broadcast] {
                link.extend(udp(ends, [(67, 68), (68, 67)]));
            }
            link.push(Match {
                destination: prefix(Ipv4Addr::new(224, 0, 0, 0).into(), 4),
                protocol: IGMP,
                ..all
            });
        }
        Family::V6 => {
            let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
            let from_link = Match {
                source: prefix(local.into(), 10),
                ..all
            };
            link.extend(udp(from_link, [(546, 547), (547, 546)]));
            let groups = prefix(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8);
            let icmp = |destination, kind| Match {
                destination,
                protocol: ICMP6,
                source_port: Some(kind),
                ..all
            };
            link.extend((133..=137).map(|kind| icmp(all.destination, kind)));
            link.extend([130, 131, 132, 143].map(|kind| icmp(groups, kind)));
        }
    }
    link.retain(|fits| meets_a_drop(entries, fits));
    link.into_iter().map(allow).collect()
}

fn meets_a_drop(entries: &[Entry], fits: &Match) -> bool {
    entries.iter().any(|entry| {
        drops(entry)
            && overlap(entry.selector.source, fits.source)
            && overlap(entry.selector.destination, fits.destination)
    })
}

/// XFRM has one policy for one selector; the first of several with the same selector is kept.
fn first_of_each(mut rules: Vec<Rule>) -> Vec<Rule> {
    let mut seen = HashSet::new();
    rules.retain(|rule| seen.insert(rule.fits));
    rules
}

#[cfg(test)]
mod tests;
