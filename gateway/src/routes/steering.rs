//! The routing rules and routes that lead protected traffic, and only that, to the TUN device. Where the kernel's own
//! IPsec carries it, routes lead to the peer instead: a packet needs a route before the kernel seals it.
//!
//! ```text
//!   first        marked "outside"  ──► end of the block     the gateway's own outer packets, bypassed ones
//!   first + 1    marked "inside"   ──► gateway's table      packets marked by the firewall's chains
//!   first + 2 …  one policy each, in their order:
//!                  protect ──► gateway's table   bypass ──► end of the block   discard ──► dropped
//!   first + 999  end of the block: a rule without action, the target of `goto`
//! ```

use super::plan::{Destination, Disposition, Entry, Family, Fit, Plan};
use super::{PREFERENCES_PER_SITE, Site};
use crate::routes::plan::WITH_PORTS;
use ipsec::policy::{Prefix, Upper};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The protocol number that identifies the gateway's rules and routes (shown by `ip rule`; not assigned otherwise).
pub(crate) const OWNER: u8 = 229;

/// The metric of the "unreachable" routes, after the TUN device's routes: the largest that the kernel's own tools use.
const LAST_METRIC: u32 = 4_278_198_272;

/// One `ip rule`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RoutingRule {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Rules with smaller values are looked up first.
    pub preference: u32,
    /// What it does.
    pub action: RuleAction,
    /// Source addresses.
    pub source: Option<Prefix>,
    /// Destination addresses.
    pub destination: Option<Prefix>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination port.
    pub destination_port: Option<u16>,
    /// A bit of the mark that must be set.
    pub mark: Option<u32>,
}

impl RoutingRule {
    /// One that matches all packets of a family.
    pub(crate) fn of_all(family: Family, preference: u32, action: RuleAction) -> Self {
        Self {
            family,
            preference,
            action,
            source: None,
            destination: None,
            protocol: None,
            source_port: None,
            destination_port: None,
            mark: None,
        }
    }
}

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RuleAction {
    /// Look up this table.
    Lookup(u32),
    /// Continue at this preference.
    Goto(u32),
    /// Drop the packet.
    Drop,
    /// No action: the target of `goto`.
    Nothing,
}

/// One route of the gateway's table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Route {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Destination.
    pub destination: Prefix,
    /// The device that it leads to; without one it is "unreachable".
    pub device: Option<Arc<str>>,
    /// The router behind that device.
    pub next_hop: Option<IpAddr>,
    /// The source of packets that have none yet.
    pub source: Option<IpAddr>,
    /// The largest packet that fits.
    pub mtu: Option<u32>,
    /// Larger packets are routed there too, and not fragmented; only TCP's MSS is limited to what fits.
    pub whole: bool,
    /// Of several routes with the same destination, the smallest is used.
    pub metric: u32,
}

impl Plan {
    /// Whether policies match fields that routing rules cannot, or are too many for the block, so that the firewall
    /// must mark packets.
    pub(crate) fn needs_marks(&self) -> bool {
        self.leaving.iter().any(Entry::asks_icmp_type) || self.is_large()
    }

    fn is_large(&self) -> bool {
        let rules: usize = self.leaving.iter().map(|entry| uppers(entry).len()).sum();
        rules > PREFERENCES_PER_SITE as usize - 4
    }
}

/// All rules, in the order of their preferences.
pub(crate) fn rules(site: &Site, plan: &Plan) -> Vec<RoutingRule> {
    [Family::V4, Family::V6]
        .into_iter()
        .filter(|family| plan.steers(*family))
        .flat_map(|family| family_rules(site, plan, family))
        .collect()
}

fn family_rules(site: &Site, plan: &Plan, family: Family) -> Vec<RoutingRule> {
    let first = site.first_preference();
    let behind = first + PREFERENCES_PER_SITE - 1;
    let blank = |preference, action| RoutingRule::of_all(family, preference, action);
    let marked = |preference, action, mark| RoutingRule {
        mark: Some(mark),
        ..blank(preference, action)
    };
    let mut rules = vec![
        marked(first, RuleAction::Goto(behind), site.outside_mark()),
        marked(
            first + 1,
            RuleAction::Lookup(site.table()),
            site.inside_mark(),
        ),
    ];
    // Computed once: it counts the rules of every policy.
    let is_large = plan.is_large();
    let expressible = plan
        .leaving
        .iter()
        .filter(|entry| entry.family() == Some(family) && !is_large);
    for entry in expressible {
        let action = match entry.verdict {
            Disposition::Protect => RuleAction::Lookup(site.table()),
            Disposition::Bypass => RuleAction::Goto(behind),
            // The kernel's reverse path check (rp_filter) uses these rules too. So discarded traffic to destinations
            // of protected traffic is routed to the TUN device as well, where it is discarded and counted.
            Disposition::Discard if plan.protects_some(entry.selector.destination) => {
                RuleAction::Lookup(site.table())
            }
            Disposition::Discard => RuleAction::Drop,
        };
        for (protocol, source_port, destination_port) in uppers(entry) {
            let preference = first + rules.len() as u32;
            rules.push(RoutingRule {
                source: Some(entry.selector.source),
                destination: Some(entry.selector.destination),
                protocol,
                source_port,
                destination_port,
                ..blank(preference, action)
            });
        }
    }
    rules.push(blank(behind, RuleAction::Nothing));
    rules
}

/// Protocol and ports of the rules that one policy needs; none if only the firewall can match its packets.
fn uppers(entry: &Entry) -> Vec<(Option<u8>, Option<u16>, Option<u16>)> {
    match entry.selector.upper {
        Upper::Any => vec![(None, None, None)],
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => vec![(Some(number), source_port, destination_port)],
        Upper::Icmp { .. } if entry.asks_icmp_type() => Vec::new(),
        Upper::Icmp { number, .. } => vec![(Some(number), None, None)],
        Upper::Ports {
            source_port,
            destination_port,
        } => WITH_PORTS
            .into_iter()
            .map(|number| (Some(number), source_port, destination_port))
            .collect(),
    }
}

/// All routes of the gateway's table. The "unreachable" ones come first: they must exist before a rule leads there.
pub(crate) fn routes(site: &Site, plan: &Plan) -> Vec<Route> {
    let mut routes: Vec<_> = [
        (Family::V4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        (Family::V6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    ]
    .into_iter()
    .filter(|(family, _)| plan.steers(*family))
    .map(|(family, address)| unreachable((family, address, 0), LAST_METRIC))
    .collect();
    let Some(exit) = Exit::of(site, plan) else {
        return routes;
    };
    let destinations = plan.destinations().into_iter();
    routes.extend(destinations.map(|destination| exit.route_to(destination)));
    routes
}

/// The routes of `plan` that differ from those of `before`, a plan that drops the same.
pub(crate) fn changed_routes(site: &Site, before: &Plan, plan: &Plan) -> Vec<Route> {
    let Some(exit) = Exit::of(site, plan) else {
        return Vec::new();
    };
    let changed = plan.changed_destinations(before).into_iter();
    changed
        .map(|destination| exit.route_to(destination))
        .collect()
}

/// The metric of routes to a destination.
const METRIC: u32 = 1024;

fn unreachable((family, address, len): Destination, metric: u32) -> Route {
    Route {
        family,
        destination: Prefix { address, len },
        device: None,
        next_hop: None,
        source: None,
        mtu: None,
        whole: false,
        metric,
    }
}

/// Where protected traffic leaves.
struct Exit {
    /// The TUN device, if there is one.
    tun: Option<Arc<str>>,
    by_kernel: bool,
}

impl Exit {
    /// None for a gateway that forwards without a TUN device: nothing is routed.
    fn of(site: &Site, plan: &Plan) -> Option<Self> {
        let tun = site.tun().filter(|_| plan.planes.by_user());
        let exit = Self {
            tun: tun.map(Arc::from),
            by_kernel: plan.planes.by_kernel(),
        };
        (exit.tun.is_some() || exit.by_kernel).then_some(exit)
    }

    /// A peer's own device comes first, then its way by the kernel's own IPsec, then the TUN device. Without any the
    /// peer cannot be reached, and so cannot the destination.
    fn route_to(&self, (destination, fit): (Destination, Fit)) -> Route {
        let whole = fit.whole && fit.mtu.is_some();
        let blank = unreachable(destination, METRIC);
        if let Some(way) = fit.via.filter(|_| self.by_kernel && fit.device.is_none()) {
            // The kernel knows itself how large a packet may be before it is sealed.
            return Route {
                device: Some(way.device),
                next_hop: way.next_hop,
                source: way.source,
                ..blank
            };
        }
        match fit.device.or_else(|| self.tun.clone()) {
            Some(device) => Route {
                device: Some(device),
                mtu: fit.mtu,
                whole,
                ..blank
            },
            None => blank,
        }
    }
}

#[cfg(test)]
mod tests;
