//! Ranges of addresses, as numbers: the form in which prefixes are compared, cut and joined.

use super::plan::Family;
use ipsec::policy::Prefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of one family from one to another, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Range {
    /// The first.
    pub first: u128,
    /// The last.
    pub last: u128,
}

impl Range {
    /// All addresses of a family.
    pub(crate) fn all(family: Family) -> Self {
        let last = u128::MAX >> (128 - bits(family));
        Self { first: 0, last }
    }

    /// The addresses of a prefix whose host bits are zero.
    pub(crate) fn of(prefix: Prefix) -> Self {
        let first = match prefix.address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address),
        };
        let bits = bits(Family::of(prefix.address));
        let hosts = bits - u32::from(prefix.len).min(bits);
        let mask = u128::MAX.checked_shl(hosts).map_or(u128::MAX, |net| !net);
        Self {
            first,
            last: first | mask,
        }
    }

    /// One address.
    pub(crate) fn host(address: IpAddr) -> Self {
        let len = if address.is_ipv4() { 32 } else { 128 };
        Self::of(Prefix { address, len })
    }

    /// The addresses that lie in both.
    pub(crate) fn within(self, other: Self) -> Option<Self> {
        let first = self.first.max(other.first);
        let last = self.last.min(other.last);
        (first <= last).then_some(Self { first, last })
    }

    /// The prefix that has exactly these addresses, if there is one.
    pub(crate) fn as_prefix(self, family: Family) -> Option<Prefix> {
        let differing = self.first ^ self.last;
        let hosts = u128::BITS - differing.leading_zeros();
        let is_prefix = differing.count_ones() == hosts && self.first & differing == 0;
        is_prefix.then(|| Prefix {
            address: address(self.first, family),
            len: (bits(family) - hosts) as u8,
        })
    }
}

/// The union of these ranges, as sorted ranges that neither overlap nor touch.
pub(crate) fn joined(ranges: impl IntoIterator<Item = Range>) -> Vec<Range> {
    let mut sorted: Vec<_> = ranges.into_iter().collect();
    sorted.sort_unstable();
    let mut joined: Vec<Range> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(before) if range.first <= before.last.saturating_add(1) => {
                before.last = before.last.max(range.last);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Converts a number to the address.
pub(crate) fn address(number: u128, family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from(number as u32).into(),
        Family::V6 => Ipv6Addr::from(number).into(),
    }
}

fn bits(family: Family) -> u32 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::plan::tests::prefix;

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        let range = |first, last| Range { first, last };
        let all = [
            range(7, 7),
            range(0, 3),
            range(2, 5),
            range(6, 6),
            range(9, u128::MAX),
            range(20, 30),
        ];
        assert_eq!(joined(all), [range(0, 7), range(9, u128::MAX)]);
        assert_eq!(joined([]), []);
    }

    #[test]
    fn a_range_that_is_a_prefix_is_known_as_one() {
        for text in [
            "0.0.0.0/0",
            "10.2.0.0/15",
            "10.2.0.9/32",
            "255.0.0.0/8",
            "::/0",
            "fd00:2::/64",
            "2001:db8::1/128",
        ] {
            let prefix = prefix(text);
            let family = Family::of(prefix.address);
            assert_eq!(Range::of(prefix).as_prefix(family), Some(prefix), "{text}");
        }
        for (first, last) in [(1, 2), (0, 2), (3, 4), (0, 0xffff_fffe)] {
            assert_eq!(Range { first, last }.as_prefix(Family::V4), None);
        }
    }
}
