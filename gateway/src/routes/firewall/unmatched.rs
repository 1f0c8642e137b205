//! Traffic that no policy matches passes first: a packet to or from other addresses is checked only for its addresses,
//! however many policies there are.

use super::condition::when;
use crate::routes::nftables::rule::{Field, Rule};
use crate::routes::plan::{Entry, Family};
use crate::routes::range::{Range, joined};

/// With fewer policies, their own rules are as fast as a check of the source addresses.
const MIN_ENTRIES_TO_ASK_SOURCES: usize = 8;

/// Rules that let pass what none of the entries selected by `is_meant` can match; none if there are no such entries.
pub(super) fn unmatched(entries: &[Entry], is_meant: fn(&Entry) -> bool) -> Vec<Rule> {
    let meant: Vec<_> = entries.iter().filter(|entry| is_meant(entry)).collect();
    if meant.is_empty() {
        return Vec::new();
    }
    let families = [Family::V4, Family::V6].into_iter();
    families
        .flat_map(|family| of_family(&meant, family))
        .collect()
}

fn of_family(meant: &[&Entry], family: Family) -> Vec<Rule> {
    let of_it = meant.iter().filter(|entry| entry.family() == Some(family));
    let (destinations, sources): (Vec<_>, Vec<_>) = of_it
        .map(|entry| {
            let selector = entry.selector;
            (Range::of(selector.destination), Range::of(selector.source))
        })
        .unzip();
    let asks_sources = sources.len() >= MIN_ENTRIES_TO_ASK_SOURCES;
    let mut sides = vec![(Field::Destination(family), joined(destinations))];
    if asks_sources {
        sides.push((Field::Source(family), joined(sources)));
    }
    sides.retain(|(_, ranges)| *ranges != [Range::all(family)]);
    let rule = |(field, ranges): (Field, Vec<Range>)| {
        let rule = when().family(family);
        if ranges.is_empty() {
            rule.accept()
        } else {
            rule.outside(field, ranges).accept()
        }
    };
    sides.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::firewall::tests::generated::{addresses, entries, fits};
    use crate::routes::nftables::rule::Verdict as End;
    use crate::routes::plan::Disposition;
    use crate::routes::plan::tests::{entry, prefix};
    use ipsec::policy::Upper;
    use proptest::prelude::*;

    fn drops(entry: &Entry) -> bool {
        entry.verdict != Disposition::Bypass
    }

    proptest! {
        #[test]
        fn only_what_no_entry_that_is_meant_fits_passes_at_once(
            entries in entries(),
            packets in proptest::collection::vec((addresses(), addresses()), 60),
        ) {
            let rules = unmatched(&entries, drops);
            for (source, destination) in packets {
                if source.is_ipv4() != destination.is_ipv4() {
                    continue;
                }
                let accepts = |rule: &Rule| {
                    rule.verdict == Some(End::Accept) && fits(rule, source, destination)
                };
                let passes = rules.iter().any(accepts);
                let meant = || entries.iter().filter(|entry| drops(entry));
                let is_named = meant().any(|entry| {
                    entry.selector.source.contains(source) && entry.selector.destination.contains(destination)
                });
                prop_assert!(!(passes && is_named), "{source} {destination} {rules:?}");
                // A packet to a destination of no entry passes here, so that the check is useful.
                let goes_there = meant().any(|entry| entry.selector.destination.contains(destination));
                prop_assert!(passes || goes_there || rules.is_empty(), "{source} {destination} {rules:?}");
            }
        }
    }

    #[test]
    fn a_family_without_policies_passes_and_one_with_policies_over_everything_is_not_asked() {
        let over = |destination| {
            [entry(
                "0.0.0.0/0",
                destination,
                Upper::Any,
                Disposition::Protect,
            )]
        };
        let v6 = when().family(Family::V6).accept();
        assert_eq!(
            unmatched(&over("0.0.0.0/0"), drops),
            std::slice::from_ref(&v6)
        );
        let range = Range::of(prefix("10.2.0.0/24"));
        let v4 = when().family(Family::V4);
        let v4 = v4
            .outside(Field::Destination(Family::V4), vec![range])
            .accept();
        assert_eq!(unmatched(&over("10.2.0.0/24"), drops), [v4, v6]);
        let bypass = [entry("::/0", "::/0", Upper::Any, Disposition::Bypass)];
        assert_eq!(unmatched(&bypass, drops), []);
    }
}
