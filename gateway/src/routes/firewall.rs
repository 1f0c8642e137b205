//! The drop rules: a separate nftables table, replaced as a whole in one transaction.
//!
//! ```text
//!   leaving    postrouting   by the TUN device, or the gateway's outer packets: pass; else protected -> drop
//!   arriving   input         from the TUN device, or ESP, AH, ESP in UDP: pass; else protected -> drop
//!   passing    forward       the same for forwarded traffic; clamps the MSS of TCP through the TUN device
//!   rerouting  output        reroutes packets of unbound local sockets, whose source address is chosen late
//!   marking    prerouting    marks forwarded packets; only if a policy matches fields that routing rules cannot
//!   forwarded  prerouting    without a TUN device: drops the kernel's copy of what the inner device's ring takes
//!   translated postrouting   by the kernel's own IPsec: drops what source NAT has taken from a policy
//! ```
//!
//! Where the kernel's own IPsec carries the traffic ([`by_kernel`]), what it has opened or is about to seal takes the
//! place of what comes from the TUN device or goes to it.
//!
//! Each hook costs time for every packet of the host, so there are as few as possible, and packets that no policy
//! matches (`unmatched`) are let through first.
//!
//! No rule is needed against ICMP "protocol unreachable" for native ESP: while the gateway's raw socket is open, the
//! kernel sends none. ESP that packet rings take is dropped after them by [`ring_bypass`].

mod by_kernel;
mod cases;
mod condition;
mod devices;
mod exceptions;
pub(crate) mod ring_bypass;
pub(crate) mod tables;
mod unmatched;

use super::Site;
use super::nftables::rule::{Field, Rule, Term};
use super::nftables::{Chain, Count, Hook, Ruleset, TableFamily};
use super::plan::{Disposition, Entry, Family, Plan};
use cases::{Case, cases};
use condition::{AH, ESP, TCP, UDP, when};
use devices::{by_tunnel, direction_devices, inside, ring, tun};
pub(crate) use exceptions::outer_sets;
use exceptions::{neighbours, on_the_link, our_own, path_mtu};
use tables::Firewall;
use unmatched::unmatched;

/// Names of the counters in the table: unencrypted packets that were about to leave, to arrive or to be forwarded.
pub(crate) const COUNTERS: [&str; 3] = ["clear_leaving", "clear_arriving", "clear_passing"];

/// Names of the counters of decrypted packets that policies let through in one direction, and that routing led to the
/// other: delivered here, or forwarded.
pub(crate) const REFUSED: [&str; 2] = ["policy_in", "policy_fwd"];

/// The rules that make the table enforce `plan`.
pub(crate) fn ruleset(site: &Site, plan: &Plan) -> Ruleset {
    let mut counters = COUNTERS.to_vec();
    if direction_devices(site, plan).is_some() {
        counters.extend(REFUSED);
    }
    let mut chains = vec![
        leaving(site, plan),
        arriving(site, plan),
        passing(site, plan),
    ];
    if let Some(device) = ring(site, plan) {
        chains.push(forwarded(device, plan));
    }
    chains.extend(by_kernel::translated(site, plan, COUNTERS[0]));
    if site.tun().is_some() || plan.planes.by_kernel() {
        chains.push(rerouting(site, plan));
        chains.extend(marking(site, plan));
    }
    Ruleset {
        family: TableFamily::Inet,
        table: site.firewall_table(),
        counters,
        sets: outer_sets(plan),
        chains,
    }
}

/// Packets and bytes of each of [`COUNTERS`] and [`REFUSED`], as far as they can be read.
pub(crate) fn counters(site: &Site) -> Vec<Count> {
    Firewall::new(TableFamily::Inet, site.firewall_table())
        .counts(&[&COUNTERS[..], &REFUSED].concat())
}

/// Whether a running gateway has installed the drop rules of this site. Before Linux 6.9 that is not known, and false.
pub(crate) fn is_in_use(site: &Site) -> bool {
    let mut table = Firewall::new(TableFamily::Inet, site.firewall_table());
    table.has_owner().unwrap_or(false)
}

fn chain(name: &str, kind: &'static str, hook: Hook, priority: i32, rules: Vec<Rule>) -> Chain {
    Chain {
        name: name.to_owned(),
        kind,
        hook,
        priority,
        rules,
    }
}

/// Runs before source NAT (100), after everything else that may change an address or mark.
fn leaving(site: &Site, plan: &Plan) -> Chain {
    let mut rules = by_kernel::redirects(plan);
    rules.extend(unmatched(&plan.leaving, Entry::drops));
    rules.push(
        when()
            .device(Field::OutDevice, inside(site, plan), false)
            .accept(),
    );
    rules.extend(by_kernel::sealed(site, plan));
    rules.extend(our_own(site, plan));
    rules.push(neighbours());
    rules.extend(on_the_link(&plan.leaving));
    rules.extend(entries(COUNTERS[0], &plan.leaving));
    chain("leaving", "filter", Hook::Postrouting, -10, rules)
}

/// Counts and drops packets that arrive by device `refused`, and accepts those that arrive by `passing`.
fn one_way(refused: &str, passing: &str, counter: &'static str) -> [Rule; 2] {
    let by = |device| when().device(Field::InDevice, [device], false);
    [
        by(refused).and(Term::Count(counter)).drop(),
        by(passing).accept(),
    ]
}

fn arriving(site: &Site, plan: &Plan) -> Chain {
    let mut rules = Vec::new();
    if let Some([here, onward]) = direction_devices(site, plan) {
        rules.extend(one_way(&onward, &here, REFUSED[0]));
    }
    rules.extend(unmatched(&plan.arriving, Entry::drops));
    rules.push(
        when()
            .device(Field::InDevice, inside(site, plan), false)
            .accept(),
    );
    rules.extend(by_kernel::opened(plan));
    rules.extend([
        when().protocols(&[ESP, AH]).accept(),
        // IPv6 reassembles after this hook; all fragments of one packet have the same next header.
        when()
            .family(Family::V6)
            .any(Field::FragmentNextHeader, [[ESP], [AH]], false)
            .accept(),
    ]);
    if !plan.udp_ports.is_empty() {
        let ports = plan.udp_ports.iter().map(|port| port.to_be_bytes());
        rules.push(
            when()
                .protocols(&[UDP])
                .any(Field::DestinationPort, ports, false)
                .accept(),
        );
        // IPv6 passes this hook before reassembly. A later fragment has no ports, and is useless without the first
        // one, which has them.
        rules.push(
            when()
                .family(Family::V6)
                .later_fragment(Family::V6)
                .protocols(&[UDP])
                .accept(),
        );
    }
    rules.extend(path_mtu(plan));
    rules.push(neighbours());
    rules.extend(on_the_link(&plan.arriving));
    rules.extend(entries(COUNTERS[1], &plan.arriving));
    chain("arriving", "filter", Hook::Input, -160, rules)
}

fn passing(site: &Site, plan: &Plan) -> Chain {
    let mut rules = clamping(site, plan);
    if let Some([here, onward]) = direction_devices(site, plan) {
        rules.extend(one_way(&here, &onward, REFUSED[1]));
    }
    rules.extend(unmatched(&plan.passing, Entry::drops));
    if let Some(from_tunnel) = by_tunnel(site, plan, Field::InDevice, false) {
        rules.push(from_tunnel.accept());
    }
    rules.extend(by_kernel::opened(plan));
    rules.extend(entries(COUNTERS[2], &plan.passing));
    chain("passing", "filter", Hook::Forward, -160, rules)
}

/// The kernel also receives a copy of each packet that the ring on this device takes. The policies by which the gateway
/// handles a packet drop the copy here, before connection tracking, routing or a reply. The chain stays when the
/// gateway stops.
fn forwarded(device: &str, plan: &Plan) -> Chain {
    // PACKET_HOST.
    let for_us = [[0]];
    let mut rules = vec![
        when().device(Field::InDevice, [device], true).accept(),
        when().any(Field::FrameKind, for_us, true).accept(),
    ];
    rules.extend(unmatched(&plan.leaving, Entry::drops));
    rules.push(neighbours());
    rules.extend(on_the_link(&plan.leaving));
    for Case { entry, conditions } in cases(&plan.leaving) {
        for condition in conditions {
            // Packets to this host's own addresses are not dropped, whatever policy covers the address.
            rules.push(match entry.verdict {
                Disposition::Bypass => condition.accept(),
                Disposition::Protect | Disposition::Discard => condition.taken_here(true).drop(),
            });
        }
    }
    chain("forwarded", "filter", Hook::Prerouting, -300, rules)
}

fn entries(counter: &'static str, entries: &[Entry]) -> Vec<Rule> {
    let rules = cases(entries).into_iter().flat_map(|case| {
        let verdict = case.entry.verdict;
        let end = move |condition: Rule| match verdict {
            Disposition::Bypass => condition.accept(),
            Disposition::Protect | Disposition::Discard => {
                condition.and(Term::Count(counter)).drop()
            }
        };
        case.conditions.into_iter().map(end)
    });
    rules.collect()
}

/// A local socket without a bound address gets its source address only after the routing rules were looked up. This
/// chain sets a mark, so that the kernel looks them up again and routes the packet into the tunnel. Bypassed traffic
/// that a coarser rule led into the tunnel is routed out of it in the same way.
///
/// The kernel's own IPsec looks up its policies after the source was chosen, wherever the packet is routed to. So only
/// what a peer's device takes has to be routed there.
fn rerouting(site: &Site, plan: &Plan) -> Chain {
    let mut rules = unmatched(&plan.leaving, |_| true);
    rules.extend([
        when().device(Field::OutDevice, ["lo"], false).accept(),
        when().marked(site.outside_mark()).accept(),
        neighbours(),
    ]);
    rules.extend(on_the_link(&plan.leaving));
    for Case { entry, conditions } in cases(&plan.leaving) {
        for condition in conditions {
            if entry.verdict == Disposition::Discard {
                rules.push(condition.drop());
                continue;
            }
            if let Some(mut astray) = astray(site, plan, entry) {
                astray.terms.extend(condition.terms.clone());
                rules.push(marked(site, entry.verdict, astray));
            }
            rules.push(condition.accept());
        }
    }
    chain("rerouting", "route", Hook::Output, -150, rules)
}

/// Which of an entry's packets are not routed as they should be, if any may be.
fn astray(site: &Site, plan: &Plan, entry: &Entry) -> Option<Rule> {
    let by_kernel = plan.planes.by_kernel();
    match entry.verdict {
        Disposition::Protect if by_kernel => {
            let is_led = plan.planes.by_user() || entry.device.is_some();
            let elsewhere = by_tunnel(site, plan, Field::OutDevice, true).filter(|_| is_led);
            elsewhere.map(|rule| rule.ipsec(Field::Sealed, false))
        }
        // No device shows that the packet was routed by the gateway's table.
        Disposition::Bypass if by_kernel => {
            let is_overlapped = plan.protects_some(entry.selector.destination);
            is_overlapped.then(when)
        }
        verdict => by_tunnel(
            site,
            plan,
            Field::OutDevice,
            verdict == Disposition::Protect,
        ),
    }
}

/// None if routing rules can match all policies.
fn marking(site: &Site, plan: &Plan) -> Option<Chain> {
    if !plan.needs_marks() {
        return None;
    }
    let mut rules = unmatched(&plan.leaving, |_| true);
    rules.push(when().taken_here(false).accept());
    for Case { entry, conditions } in cases(&plan.leaving) {
        let conditions = conditions.into_iter();
        rules.extend(conditions.map(|condition| marked(site, entry.verdict, condition)));
    }
    Some(chain("marking", "filter", Hook::Prerouting, -150, rules))
}

fn marked(site: &Site, verdict: Disposition, condition: Rule) -> Rule {
    match verdict {
        Disposition::Protect => condition.and(Term::AddMark(site.inside_mark())).accept(),
        Disposition::Bypass => condition.and(Term::AddMark(site.outside_mark())).accept(),
        Disposition::Discard => condition.drop(),
    }
}

/// Clamps the MSS in SYN segments without RST, by the TUN device or the kernel's own IPsec, in either direction.
fn clamping(site: &Site, plan: &Plan) -> Vec<Rule> {
    let mut ways = by_kernel::both_ways(plan);
    if tun(site, plan).is_some() || plan.planes.by_kernel() {
        let by = |way| by_tunnel(site, plan, way, false);
        ways.extend(
            [Field::InDevice, Field::OutDevice]
                .into_iter()
                .filter_map(by),
        );
    }
    if let Some([_, onward]) = direction_devices(site, plan) {
        ways.push(when().device(Field::InDevice, [&*onward], false));
    }
    let rules = ways.into_iter().map(|way| {
        way.protocols(&[TCP])
            .bits(Field::TcpFlags, &[0x06], &[0x02], false)
            .and(Term::ClampSegments)
    });
    rules.collect()
}

#[cfg(test)]
pub(crate) mod tests;
