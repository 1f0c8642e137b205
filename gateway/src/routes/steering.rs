//! The routing rules and routes that lead protected traffic, and only that, to the TUN device.
//!
//! ```text
//!   first        marked "outside"  ──► end of the block     the gateway's own outer packets, bypassed ones
//!   first + 1    marked "inside"   ──► gateway's table      packets marked by the firewall's chains
//!   first + 2 …  one policy each, in their order:
//!                  protect ──► gateway's table   bypass ──► end of the block   discard ──► dropped
//!   first + 999  end of the block: a rule without action, the target of `goto`
//! ```

use super::plan::{Disposition, Entry, Family, Plan};
use super::{PREFERENCES_PER_SITE, Site};
use crate::routes::plan::WITH_PORTS;
use ipsec::policy::{Prefix, Upper};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// Whether it leads to the TUN device; otherwise it is "unreachable".
    pub by_tun: bool,
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
    let blank = |preference, action| RoutingRule {
        family,
        preference,
        action,
        source: None,
        destination: None,
        protocol: None,
        source_port: None,
        destination_port: None,
        mark: None,
    };
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
pub(crate) fn routes(plan: &Plan) -> Vec<Route> {
    let mut routes: Vec<_> = [
        (Family::V4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        (Family::V6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    ]
    .into_iter()
    .filter(|(family, _)| plan.steers(*family))
    .map(|(family, address)| Route {
        family,
        destination: Prefix { address, len: 0 },
        by_tun: false,
        mtu: None,
        whole: false,
        metric: LAST_METRIC,
    })
    .collect();
    for ((family, address, len), fit) in plan.destinations() {
        routes.push(Route {
            family,
            destination: Prefix { address, len },
            by_tun: true,
            mtu: fit.mtu,
            whole: fit.whole && fit.mtu.is_some(),
            metric: 1024,
        });
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::super::DEFAULT_MARK;
    use super::super::plan::tests::entry;
    use super::*;

    fn site() -> Site {
        Site::new("esp0", None, DEFAULT_MARK).unwrap()
    }

    fn plan(leaving: Vec<Entry>) -> Plan {
        Plan {
            leaving,
            ..Plan::default()
        }
    }

    #[test]
    fn outer_packets_leave_the_block_before_any_policy_is_asked() {
        let plan = plan(vec![entry(
            "10.1.0.0/24",
            "10.2.0.0/24",
            Upper::Any,
            Disposition::Protect,
        )]);
        let rules = rules(&site(), &plan);
        assert_eq!(rules.len(), 4);
        assert_eq!(rules[0].mark, Some(DEFAULT_MARK));
        assert_eq!(rules[0].action, RuleAction::Goto(10_999));
        assert_eq!(rules[2].action, RuleAction::Lookup(4500));
        assert_eq!(rules[3].action, RuleAction::Nothing);
        assert!(rules.is_sorted_by_key(|rule| rule.preference));
    }

    #[test]
    fn the_order_of_policies_is_the_order_of_preferences() {
        let ssh = Upper::Protocol {
            number: 6,
            source_port: None,
            destination_port: Some(22),
        };
        let plan = plan(vec![
            entry("10.1.0.0/24", "10.2.0.0/24", ssh, Disposition::Bypass),
            entry(
                "10.1.0.9/32",
                "10.3.0.0/24",
                Upper::Any,
                Disposition::Discard,
            ),
            entry(
                "10.1.0.0/24",
                "10.2.0.0/24",
                Upper::Any,
                Disposition::Protect,
            ),
        ]);
        let rules = rules(&site(), &plan);
        let actions: Vec<_> = rules[2..5].iter().map(|rule| rule.action).collect();
        assert_eq!(
            actions,
            [
                RuleAction::Goto(10_999),
                RuleAction::Drop,
                RuleAction::Lookup(4500)
            ]
        );
        assert_eq!(rules[2].destination_port, Some(22));
    }

    #[test]
    fn what_is_discarded_on_the_way_of_protected_traffic_is_led_to_the_device_too() {
        let udp = Upper::Protocol {
            number: 17,
            source_port: None,
            destination_port: None,
        };
        let plan = plan(vec![
            entry("10.1.0.0/24", "10.2.0.7/32", udp, Disposition::Discard),
            entry(
                "10.1.0.0/24",
                "10.2.0.0/24",
                Upper::Any,
                Disposition::Protect,
            ),
        ]);
        let rules = rules(&site(), &plan);
        assert_eq!(rules[2].action, RuleAction::Lookup(4500));
    }

    #[test]
    fn ports_without_a_protocol_become_one_rule_for_each_protocol_that_has_ports() {
        let dns = Upper::Ports {
            source_port: None,
            destination_port: Some(53),
        };
        let plan = plan(vec![entry(
            "::/0",
            "2001:db8::/32",
            dns,
            Disposition::Protect,
        )]);
        let rules = rules(&site(), &plan);
        assert_eq!(rules.len(), 3 + WITH_PORTS.len());
        assert!(rules.iter().all(|rule| rule.family == Family::V6));
    }

    #[test]
    fn a_type_of_icmp_is_left_to_marks() {
        let echo = Upper::Icmp {
            number: 1,
            kind: Some(8),
            code: None,
        };
        let plan = plan(vec![entry(
            "0.0.0.0/0",
            "10.2.0.0/24",
            echo,
            Disposition::Protect,
        )]);
        assert!(plan.needs_marks());
        assert_eq!(rules(&site(), &plan).len(), 3);
    }

    #[test]
    fn more_policies_than_preferences_are_left_to_marks() {
        let many = (0..2000).map(|_| {
            entry(
                "10.1.0.0/24",
                "10.2.0.0/24",
                Upper::Any,
                Disposition::Protect,
            )
        });
        let plan = plan(many.collect());
        assert!(plan.needs_marks());
        assert_eq!(rules(&site(), &plan).len(), 3);
    }

    #[test]
    fn unreachable_stands_before_and_behind_the_device() {
        let plan = plan(vec![
            entry(
                "10.1.0.0/24",
                "10.2.0.0/24",
                Upper::Any,
                Disposition::Protect,
            ),
            entry(
                "2001:db8:1::/48",
                "2001:db8:2::/48",
                Upper::Any,
                Disposition::Protect,
            ),
        ]);
        let routes = routes(&plan);
        assert_eq!(routes.len(), 4);
        assert!(!routes[0].by_tun && !routes[1].by_tun);
        assert!(routes[2].by_tun && routes[2].metric < routes[0].metric);
    }
}
