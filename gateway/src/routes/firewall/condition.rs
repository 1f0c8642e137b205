//! When a rule applies: a policy's selector as conditions on a packet.

use crate::routes::nftables::rule::{Field, Rule};
use crate::routes::plan::{Disposition, Entry, WITH_PORTS};
use ipsec::policy::Upper;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ESP: u8 = 50;
pub(super) const AH: u8 = 51;

/// A rule without conditions.
pub(super) fn when() -> Rule {
    Rule::default()
}

/// Rules without verdict: a packet that matches any of them matches the entry. None for a selector that no packet can
/// match.
pub(super) fn conditions(entry: &Entry) -> Vec<Rule> {
    let Some(family) = entry.family() else {
        return Vec::new();
    };
    let addresses = when()
        .family(family)
        .within(Field::Source(family), entry.selector.source)
        .within(Field::Destination(family), entry.selector.destination);
    let mut conditions = vec![upper(addresses.clone(), entry.selector.upper)];
    // RFC 4301 7: a later fragment carries no ports. One that might belong to protected traffic is not let through.
    if entry.asks_ports() && entry.verdict != Disposition::Bypass {
        let later = addresses.later_fragment(family);
        conditions.push(protocol(later, entry.selector.upper));
    }
    conditions
}

fn protocol(rule: Rule, upper: Upper) -> Rule {
    match upper {
        Upper::Any => rule,
        Upper::Protocol { number, .. } | Upper::Icmp { number, .. } => rule.protocols(&[number]),
        Upper::Ports { .. } => rule.protocols(&WITH_PORTS),
    }
}

fn upper(rule: Rule, upper: Upper) -> Rule {
    let rule = protocol(rule, upper);
    if let Upper::Icmp { kind, code, .. } = upper {
        let conditions = [(Field::IcmpType, kind), (Field::IcmpCode, code)];
        return conditions
            .into_iter()
            .fold(rule, |rule, (field, value)| match value {
                Some(value) => rule.is(field, [value]),
                None => rule,
            });
    }
    let (source, destination) = upper.ports();
    let conditions = [
        (Field::SourcePort, source),
        (Field::DestinationPort, destination),
    ];
    conditions
        .into_iter()
        .fold(rule, |rule, (field, port)| match port {
            Some(port) => rule.is(field, port.to_be_bytes()),
            None => rule,
        })
}
