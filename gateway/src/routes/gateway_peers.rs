//! The peers that are their own gateways: between which outer addresses policies protect traffic too.

use super::plan::{Disposition, Family, OuterPairs, Plan};
use super::range::{Range, address};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses between which all others are, in the order of [`IpAddr`].
const LOWEST_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const HIGHEST_ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::from_bits(u128::MAX));

/// Those of `pairs` between which a policy protects packets. There may be thousands of both: for each policy the pairs
/// whose destination it has are looked up.
pub(crate) fn protected_among(plan: &Plan, pairs: &OuterPairs) -> OuterPairs {
    let by_destination: BTreeSet<_> = pairs.iter().map(|(from, to)| (*to, *from)).collect();
    let protecting = plan.leaving.iter();
    let protecting = protecting.filter(|entry| entry.verdict == Disposition::Protect);
    let covered = protecting.flat_map(|entry| {
        let destination = entry.selector.destination;
        let family = Family::of(destination.address);
        let Range { first, last } = Range::of(destination);
        let first = (address(first, family), LOWEST_ADDRESS);
        let last = (address(last, family), HIGHEST_ADDRESS);
        let found = by_destination.range(first..=last);
        found.filter(|(to, from)| entry.covers((*from, *to)))
    });
    covered.map(|(to, from)| (*from, *to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::plan::Entry;
    use crate::routes::plan::tests::{normal, prefix};
    use ipsec::policy::{Prefix, Selector, Upper};
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    /// A prefix of few addresses, so that many overlap.
    fn some_prefix() -> impl Strategy<Value = Prefix> {
        let v4 = (0..8_u8, 28..=32_u8).prop_map(|(host, len)| Prefix {
            address: Ipv4Addr::new(192, 0, 2, host).into(),
            len,
        });
        let v6 = (0..8_u16, 124..=128_u8).prop_map(|(host, len)| Prefix {
            address: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into(),
            len,
        });
        let all = prop_oneof![Just("0.0.0.0/0"), Just("::/0")].prop_map(prefix);
        prop_oneof![4 => v4, 4 => v6, 1 => all].prop_map(normal)
    }

    fn some_pair() -> impl Strategy<Value = (IpAddr, IpAddr)> {
        (some_prefix(), some_prefix()).prop_map(|(one, other)| (one.address, other.address))
    }

    proptest! {
        #[test]
        fn pairs_that_policies_protect_are_found_as_by_looking_at_each_policy(
            policies in vec((some_prefix(), some_prefix(), any::<bool>()), 0..12),
            pairs in btree_set(some_pair(), 0..12),
        ) {
            let leaving = policies.into_iter().map(|(source, destination, protects)| Entry {
                selector: Selector { source, destination, upper: Upper::Any },
                verdict: if protects { Disposition::Protect } else { Disposition::Discard },
                mtu: None,
                whole: false,
                device: None,
                via: None,
            });
            let plan = Plan { leaving: leaving.collect(), ..Plan::default() };
            let by_each = |pair: &&(IpAddr, IpAddr)| {
                plan.leaving.iter().any(|entry| entry.verdict == Disposition::Protect && entry.covers(**pair))
            };
            let expected: OuterPairs = pairs.iter().filter(by_each).copied().collect();
            prop_assert_eq!(protected_among(&plan, &pairs), expected);
        }
    }
}
