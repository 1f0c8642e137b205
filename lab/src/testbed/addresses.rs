//! The addresses of a topology, which follow from its topology and families.

use std::net::IpAddr;

use super::families::{Families, Family};
use super::topology_spec::Layout;

/// The addresses of a topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The client's own.
    pub client: IpAddr,
    /// The server's own.
    pub server: IpAddr,
    /// The network behind the left gateway, as `10.1.0.0/24`.
    pub left_network: String,
    /// The network behind the right gateway.
    pub right_network: String,
    /// The left gateway's on the wire.
    pub left: IpAddr,
    /// The right gateway's on the wire.
    pub right: IpAddr,
}

impl Addresses {
    /// Those of a testbed in namespaces. A pair of hosts has only the family of the wire.
    pub fn of(layout: Layout, families: Families) -> Addresses {
        let [left, right] = families.outer.wire();
        if layout == Layout::Pair {
            return Addresses::of_two(left, right);
        }
        let [[_, client], [_, server]] = families.inner.lans();
        let [left_network, right_network] = families.inner.networks();
        Addresses {
            client,
            server,
            left_network,
            right_network,
            left,
            right,
        }
    }

    /// Those of two hosts alone that have these.
    pub fn of_two(left: IpAddr, right: IpAddr) -> Addresses {
        let bits = 8 * match Family::of(left) {
            Family::V4 => 4,
            Family::V6 => 16,
        };
        Addresses {
            client: left,
            server: right,
            left_network: format!("{left}/{bits}"),
            right_network: format!("{right}/{bits}"),
            left,
            right,
        }
    }

    /// The families of these addresses.
    pub fn families(&self) -> Families {
        Families {
            inner: Family::of(self.client),
            outer: Family::of(self.left),
        }
    }
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses::of(Layout::Gateways, Families::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_addresses() {
        let of = |word: &str| Addresses::of(Layout::Gateways, Families::read(word).unwrap());
        let six_in_four = of("6in4");
        assert_eq!(six_in_four.client.to_string(), "fd00:1::2");
        assert_eq!(six_in_four.right_network, "fd00:2::/64");
        assert_eq!(six_in_four.right.to_string(), "192.0.2.2");
        let four_in_six = of("4in6");
        assert_eq!(four_in_six.server.to_string(), "10.2.0.2");
        assert_eq!(four_in_six.left.to_string(), "2001:db8::1");
        for word in ["4in4", "6in4", "4in6", "6in6"] {
            assert_eq!(of(word).families(), Families::read(word).unwrap());
        }
        assert_eq!(Families::read("5in4"), None);
    }

    #[test]
    fn two_hosts_alone_are_their_own_networks() {
        let six = Families::read("6in6").unwrap();
        let map = Addresses::of(Layout::Pair, six);
        assert_eq!(map.left_network, "2001:db8::1/128");
        assert_eq!((map.client, map.server), (map.left, map.right));
    }
}
