//! Generated entries and packets, and what the kernel would make of rules.

use crate::routes::firewall::condition::when;
use crate::routes::nftables::rule::{Field, Rule, Term};
use crate::routes::plan::tests::{entry, normal};
use crate::routes::plan::{Disposition, Entry, Family};
use crate::routes::range::Range;
use ipsec::policy::{Prefix, Upper};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses at the borders of prefixes.
pub(crate) fn addresses() -> impl Strategy<Value = IpAddr> {
    let few = || proptest::sample::select(vec![0u8, 1, 2, 63, 64, 127, 128, 254, 255]);
    let v4 = (few(), few(), few()).prop_map(|(a, b, c)| Ipv4Addr::new(a, 0, b, c).into());
    let v6 = (few(), few(), few()).prop_map(|(a, b, c)| {
        let [a, b, c] = [a, b, c].map(u16::from);
        Ipv6Addr::new(a << 8, 0, 0, b, 0, 0, 0, c).into()
    });
    prop_oneof![v4, v6]
}

fn prefixes() -> impl Strategy<Value = Prefix> {
    let lens = proptest::sample::select(vec![0u8, 7, 8, 9, 16, 24, 25, 31, 32, 64, 127, 128]);
    (addresses(), lens).prop_map(|(address, len)| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = len.min(most);
        normal(Prefix { address, len })
    })
}

/// Entries without protocol: runs of up to a dozen that have the verdict in common, mostly also the family.
pub(crate) fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let verdicts = prop_oneof![
        Just(Disposition::Protect),
        Just(Disposition::Discard),
        Just(Disposition::Bypass)
    ];
    let run = (
        verdicts,
        proptest::bool::ANY,
        proptest::collection::vec((prefixes(), prefixes(), proptest::bool::ANY), 1..20),
    );
    let run = run.prop_map(|(verdict, is_v4, pairs)| {
        let of_a_family = pairs.into_iter().filter(|(source, destination, any)| {
            let families = [source, destination].map(|prefix| prefix.address.is_ipv4());
            families == [is_v4; 2] || *any && families[0] != families[1] && source.len == 0
        });
        let of_a_family = of_a_family.map(|(source, destination, _)| {
            let [source, destination] =
                [source, destination].map(|side| format!("{}/{}", side.address, side.len));
            entry(&source, &destination, Upper::Any, verdict)
        });
        of_a_family.collect::<Vec<_>>()
    });
    proptest::collection::vec(run, 0..5).prop_map(|runs| runs.concat())
}

/// Evaluates the conditions of a rule as the kernel does.
pub(crate) fn fits(rule: &Rule, source: IpAddr, destination: IpAddr) -> bool {
    let family = Family::of(source);
    let end = |field: &Field| match field {
        Field::Source(of) if *of == family => Some(source),
        Field::Destination(of) if *of == family => Some(destination),
        _ => None,
    };
    rule.terms.iter().all(|term| match term {
        Term::Any {
            field: Field::Family,
            ..
        } => when().family(family).terms.contains(term),
        Term::Within(field, prefix) => end(field).is_some_and(|end| prefix.contains(end)),
        Term::Ranges {
            field,
            ranges,
            negated,
        } => end(field).is_some_and(|end| {
            let number = Range::host(end).first;
            let mut ranges = ranges.iter();
            ranges.any(|range| range.first <= number && number <= range.last) != *negated
        }),
        other => panic!("{other:?}"),
    })
}
