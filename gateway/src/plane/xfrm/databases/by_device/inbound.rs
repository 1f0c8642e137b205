//! What the kernel lets in from a device: in the order in which policies are searched, what each of them decides about
//! packets that the device's associations have opened.
//!
//! ```text
//!   policy of this device ──► what was negotiated within it is let in; nothing else
//!   policy of another, or of no device ──► nothing is let in: it asks for other associations
//! ```
//!
//! Where no policy leads into the device the second rule comes first for all of them, but not for those that ask for no
//! association, and what is left is let in as it was negotiated.

use super::super::compare::is_carried;
use super::entries::{FIRST_PRIORITY, closed, everything, narrowness, no_ends, opened};
use crate::routes::plan::overlap;
use ipsec::database::{Interface, Snapshot};
use ipsec::policy::{Action, Direction, Level, Policy, Prefix, Selector, Upper};
use ipsec::sa::SaConfig;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The associations that arrive by one device, and the packets that they were negotiated for: the youngest first.
type Arriving<'a> = Vec<(Selector, &'a SaConfig)>;

/// Adds those of all devices.
pub(super) fn policies(snapshot: &Snapshot, local: &[IpAddr], into: &mut Vec<Arc<Policy>>) {
    let arriving = arriving(snapshot, local);
    for direction in [Direction::In, Direction::Fwd] {
        let searched: Vec<_> = snapshot.policies(direction).map(|(_, each)| each).collect();
        let mut of_devices: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut of_none = Vec::new();
        for (place, policy) in searched.iter().enumerate() {
            match &policy.device {
                Some(device) => of_devices.entry(&**device).or_default().push(place),
                None => of_none.push(place),
            }
        }
        for interface in snapshot.interfaces() {
            let Some(arriving) = arriving.get(&*interface.name) else {
                continue;
            };
            let own = of_devices
                .get(&*interface.name)
                .map_or(&[][..], Vec::as_slice);
            let mut found = one_for_each_selector(arriving, direction);
            let mut places = [own, &of_none].concat();
            places.sort_unstable();
            let others = places.into_iter().map(|place| &**searched[place]);
            let all = in_order(interface, others, &mut found);
            into.extend(all.into_iter().zip(0..).map(|(policy, place)| {
                Arc::new(Policy {
                    priority: FIRST_PRIORITY - place,
                    ..policy
                })
            }));
        }
    }
}

fn arriving<'a>(snapshot: &'a Snapshot, local: &[IpAddr]) -> HashMap<&'a str, Arriving<'a>> {
    let mut arriving: HashMap<&str, Arriving> = HashMap::new();
    let mut sas: Vec<_> = snapshot.sas().collect();
    sas.reverse();
    for sa in sas {
        let config: &SaConfig = &sa.config;
        let Some(device) = config.interface.as_deref() else {
            continue;
        };
        if !local.contains(&config.id.destination) || !is_carried(sa) {
            continue;
        }
        let selectors = match &*config.selectors {
            [] => everything().to_vec(),
            some => some.to_vec(),
        };
        let each = selectors.into_iter().map(|selector| (selector, config));
        arriving.entry(device).or_default().extend(each);
    }
    arriving
}

/// Where several associations of the device have been negotiated for the same packets, and differ in their peer or
/// reqid, any of the device's will do.
fn one_for_each_selector(arriving: &Arriving, direction: Direction) -> Vec<Policy> {
    let mut found: Vec<Policy> = Vec::new();
    let mut places = HashMap::new();
    for (selector, config) in arriving {
        let policy = opened(config, *selector, direction);
        match places.get(selector) {
            None => {
                places.insert(selector, found.len());
                found.push(policy);
            }
            Some(place) if found[*place].action != policy.action => any_peer(&mut found[*place]),
            Some(_) => {}
        }
    }
    found.sort_by_key(|policy| std::cmp::Reverse(narrowness(&policy.selector)));
    found
}

fn any_peer(policy: &mut Policy) {
    if let Action::Protect(templates) = &mut policy.action {
        for template in templates {
            let near = template.endpoints.map(|(_, near)| near);
            let (near, unspecified) = no_ends(near, policy.selector.source.address);
            template.endpoints = Some((unspecified, near));
            template.level = Level::Require;
        }
    }
}

/// The policies of one device in the order in which they are searched. `found` are those that let something in.
fn in_order<'a>(
    interface: &Interface,
    searched: impl Iterator<Item = &'a Policy>,
    found: &mut Vec<Policy>,
) -> Vec<Policy> {
    let mut ordered = Vec::new();
    for policy in searched {
        if policy.device.as_ref() == Some(&interface.name) {
            let within = |one: &mut Policy| covers(&policy.selector, &one.selector);
            ordered.extend(found.extract_if(.., within));
            ordered.push(closed(policy));
        } else if (interface.follows_policies || policy.action != Action::Bypass)
            && found
                .iter()
                .any(|one| touches(&policy.selector, &one.selector))
        {
            ordered.push(Policy {
                action: Action::Discard,
                device: Some(Arc::clone(&interface.name)),
                ..policy.clone()
            });
        }
    }
    if !interface.follows_policies {
        ordered.append(found);
    }
    ordered
}

/// Whether there may be packets that both select; ports are not compared.
fn touches(one: &Selector, other: &Selector) -> bool {
    overlap(one.source, other.source) && overlap(one.destination, other.destination)
}

/// Whether all packets that `narrow` selects are selected by `wide`.
fn covers(wide: &Selector, narrow: &Selector) -> bool {
    let within =
        |wide: Prefix, narrow: Prefix| wide.len <= narrow.len && wide.contains(narrow.address);
    within(wide.source, narrow.source)
        && within(wide.destination, narrow.destination)
        && (wide.upper == Upper::Any || wide.upper == narrow.upper)
}
