//! One family's part of a plan for one direction of a device, and how it is divided into areas of addresses.

use super::FilterHook;
use super::assembler::Label;
use super::headers::LinkKind;
use super::policies::{Area, FilterRule};
use crate::routes::plan::{Entry, Family, IKE_PORTS, Plan};
use crate::routes::range::{Range, joined};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The device and direction that programs are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Target {
    /// Direction of the packets.
    pub hook: FilterHook,
    /// Header that they begin with.
    pub link: LinkKind,
    /// The mark on the gateway's own outer packets.
    pub mark: u32,
    /// Whether this gateway sends decrypted packets out of the device by a socket of its own, with its mark.
    pub delivers: bool,
    /// Whether the device is a port of a bridge or switch of the host, which sends frames out of it that this host has
    /// not routed. Routed packets have passed the filter of the bridge device itself.
    pub is_bridged: bool,
}

/// Labels of a program's two ends.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub pass: Label,
    pub drop: Label,
}

/// One family's part of a plan.
pub(super) struct Task {
    pub family: Family,
    pub target: Target,
    /// A packet is dropped if each of these lists drops it.
    pub lists: Vec<Vec<FilterRule>>,
    /// Pairs of outer addresses, between which the gateway's own packets leave or those of peers arrive.
    pub outer: Vec<FilterRule>,
    /// Ports of protected packets.
    pub udp_ports: BTreeSet<u16>,
    /// Whether marked packets from the ports of IKE leave between any addresses.
    pub exchanges_keys: bool,
}

impl Task {
    pub(super) fn new(plan: &Plan, target: Target, family: Family) -> Self {
        let mut lists = match target.hook {
            FilterHook::Egress => vec![rules(&plan.leaving, family)],
            // What the kernel has opened in tunnel mode arrives once more by the same device, and a filter does not see
            // that it was protected.
            FilterHook::Ingress if plan.planes.kernel_opens() => vec![Vec::new()],
            FilterHook::Ingress => {
                vec![rules(&plan.arriving, family), rules(&plan.passing, family)]
            }
        };
        lists.dedup();
        let mut udp_ports = plan.udp_ports.clone();
        if target.hook == FilterHook::Egress {
            udp_ports.extend(IKE_PORTS);
        }
        Self {
            family,
            target,
            lists,
            outer: match target.hook {
                FilterHook::Egress => outer(plan, family, &[&plan.leaving]),
                FilterHook::Ingress => outer(plan, family, &[&plan.arriving, &plan.passing]),
            },
            udp_ports,
            exchanges_keys: plan.exchanges_keys,
        }
    }

    /// Its part within an area.
    pub(super) fn within(&self, area: &Area) -> Self {
        let inside =
            |rules: &Vec<FilterRule>| rules.iter().filter_map(|rule| rule.within(area)).collect();
        Self {
            lists: self.lists.iter().map(inside).collect(),
            outer: inside(&self.outer),
            udp_ports: self.udp_ports.clone(),
            ..*self
        }
    }

    pub(super) fn ever_drops(&self) -> bool {
        self.lists
            .iter()
            .all(|rules| rules.iter().any(|rule| rule.drops))
    }

    /// Destinations of packets that may be dropped. A packet is dropped only if every list drops it, so the list whose
    /// drops cover the fewest addresses suffices.
    pub(super) fn destinations(&self) -> Vec<Range> {
        let dropped = |rules: &Vec<FilterRule>| {
            let dropping = rules.iter().filter(|rule| rule.drops);
            let ranges = joined(dropping.map(|rule| rule.destination));
            coarse(ranges, self.family)
        };
        let lists = self.lists.iter().map(dropped);
        lists.min_by_key(|ranges| size(ranges)).unwrap_or_default()
    }

    /// Halves an area at the median end of the prefixes, by sources or by destinations, whichever have more such ends.
    pub(super) fn halves(&self, area: Area) -> Option<[Area; 2]> {
        let all = || self.lists.iter().flatten().chain(&self.outer);
        let destinations = cuts(area.destination, all().map(|rule| rule.destination));
        let sources = cuts(area.source, all().map(|rule| rule.source));
        if destinations.len() >= sources.len() {
            let [low, high] = halved(area.destination, &destinations)?;
            return Some([low, high].map(|destination| Area {
                destination,
                ..area
            }));
        }
        let [low, high] = halved(area.source, &sources)?;
        Some([low, high].map(|source| Area { source, ..area }))
    }
}

/// Whether `in` and `fwd` policies differ: what one of them lets pass no filter drops.
pub(crate) fn in_and_fwd_differ(plan: &Plan) -> bool {
    [Family::V4, Family::V6]
        .into_iter()
        .any(|family| rules(&plan.arriving, family) != rules(&plan.passing, family))
}

fn rules(entries: &[Entry], family: Family) -> Vec<FilterRule> {
    let of_family = entries
        .iter()
        .filter(|entry| entry.family() == Some(family));
    let rules = of_family.map(|entry| FilterRule {
        source: Range::of(entry.selector.source),
        destination: Range::of(entry.selector.destination),
        upper: entry.selector.upper,
        drops: entry.drops(),
    });
    rules.collect()
}

/// Pairs of outer addresses that a dropping policy of these lists covers; between others nothing is dropped.
fn outer(plan: &Plan, family: Family, lists: &[&Vec<Entry>]) -> Vec<FilterRule> {
    let covered = |ends: &&(IpAddr, IpAddr)| {
        let mut entries = lists.iter().copied().flatten();
        Family::of(ends.0) == family && entries.any(|entry| entry.drops() && entry.covers(**ends))
    };
    let pairs = plan.outer.iter().filter(covered);
    let rule = |(source, destination): &(IpAddr, IpAddr)| FilterRule {
        source: Range::host(*source),
        destination: Range::host(*destination),
        upper: ipsec::policy::Upper::Any,
        drops: false,
    };
    pairs.map(rule).collect()
}

/// Ranges of destinations that a program checks before anything else.
const MAX_COARSE_RANGES: usize = 4;

/// Fewer ranges that cover the given ones: the lower 64 bits of IPv6 addresses are ignored, and the narrowest gaps are
/// closed.
fn coarse(ranges: Vec<Range>, family: Family) -> Vec<Range> {
    let hosts = match family {
        Family::V4 => 0,
        Family::V6 => u128::from(u64::MAX),
    };
    let whole_nets = ranges.into_iter().map(|range| Range {
        first: range.first & !hosts,
        last: range.last | hosts,
    });
    let mut ranges = joined(whole_nets);
    while ranges.len() > MAX_COARSE_RANGES {
        let gaps = ranges.windows(2).map(|pair| pair[1].first - pair[0].last);
        let narrowest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
        let Some((place, _)) = narrowest else { break };
        ranges[place].last = ranges[place + 1].last;
        ranges.remove(place + 1);
    }
    ranges
}

/// How many addresses they hold.
fn size(ranges: &[Range]) -> u128 {
    let each = ranges.iter().map(|range| range.last - range.first);
    each.fold(0, u128::saturating_add)
}

/// Addresses before which a range may be cut.
fn cuts(area: Range, ranges: impl Iterator<Item = Range>) -> Vec<u128> {
    let ends = ranges.flat_map(|range| [Some(range.first), range.last.checked_add(1)]);
    let inside = ends
        .flatten()
        .filter(|end| area.first < *end && *end <= area.last);
    inside.collect::<BTreeSet<_>>().into_iter().collect()
}

fn halved(area: Range, cuts: &[u128]) -> Option<[Range; 2]> {
    let middle = *cuts.get(cuts.len() / 2)?;
    let low = Range {
        last: middle - 1,
        ..area
    };
    let high = Range {
        first: middle,
        ..area
    };
    Some([low, high])
}
