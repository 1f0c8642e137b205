//! By which device and router an address is reached, and by which way the kernel's own IPsec reaches a peer.

use super::super::plan::Way;
use super::next_hops::{has_no_way, request};
use super::table::address_of;
use super::{Netlink, bits, family, is_family_absent};
use ipsec::database::Hop;
use ipsec::policy::Prefix;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType, RouteVia};
use std::io;
use std::net::IpAddr;

impl Netlink {
    /// The first hop of marked packets to `destination`; none if the route has several, or no device.
    pub(crate) fn first_hop(&mut self, destination: IpAddr, mark: u32) -> io::Result<Option<Hop>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = bits(destination);
        message.attributes = vec![
            RouteAttribute::Destination(destination.into()),
            RouteAttribute::Mark(mark),
        ];
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), 0)?;
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => hop(route),
            _ => None,
        }))
    }

    /// The way of marked packets between two outer addresses, for traffic from `selected`; none without a route, or if
    /// the peer is this host. `own` are the addresses of this host.
    pub(crate) fn way(
        &mut self,
        (source, destination): (IpAddr, IpAddr),
        mark: u32,
        own: &[IpAddr],
        selected: Prefix,
    ) -> io::Result<Option<Way>> {
        let message = request(source, destination, mark);
        let answers = match self.ask(RouteNetlinkMessage::GetRoute(message), 0) {
            Err(error) if has_no_way(&error) || is_family_absent(&error) => return Ok(None),
            answers => answers?,
        };
        let found = answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) if route.header.kind == RouteType::Unicast => {
                hop(route)
            }
            _ => None,
        });
        let Some(Hop { device, router }) = found else {
            return Ok(None);
        };
        let (name, _) = match self.link_by_index(device) {
            // Deleted since.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            link => link?,
        };
        let is_one_family = selected.address.is_ipv4() == destination.is_ipv4();
        Ok(Some(Way {
            device: name.into(),
            next_hop: router.filter(|_| is_one_family),
            source: source_within(selected, source, own),
        }))
    }
}

/// This host's address inside a prefix: the outer one if it lies there, otherwise the first.
fn source_within(selected: Prefix, outer: IpAddr, own: &[IpAddr]) -> Option<IpAddr> {
    let fits = |address: &IpAddr| {
        let is_of_link = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        selected.contains(*address) && !address.is_loopback() && !is_of_link
    };
    let fitting = || own.iter().copied().filter(fits);
    fitting()
        .find(|address| *address == outer)
        .or(fitting().min())
}

fn hop(route: &RouteMessage) -> Option<Hop> {
    let (mut device, mut router) = (None, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(address) => router = address_of(address),
            RouteAttribute::Via(RouteVia::Inet6(address)) => router = Some((*address).into()),
            _ => {}
        }
    }
    device.map(|device| Hop { device, router })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::firewall::tests::kernel::{in_a_namespace, isolated, said};
    use crate::routes::plan::tests::prefix;
    use netlink_packet_route::route::RouteAddress;

    #[test]
    fn a_hop_has_a_device_and_behind_a_router_its_address() {
        let mut route = RouteMessage::default();
        assert_eq!(hop(&route), None);
        route.attributes = vec![RouteAttribute::Oif(3)];
        let direct = Hop {
            device: 3,
            router: None,
        };
        assert_eq!(hop(&route), Some(direct));
        let router: std::net::Ipv4Addr = "192.0.2.254".parse().unwrap();
        let behind = RouteAttribute::Gateway(RouteAddress::Inet(router));
        route.attributes.push(behind);
        let router = Some(IpAddr::V4(router));
        assert_eq!(hop(&route), Some(Hop { router, ..direct }));
    }
    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_source_is_an_address_of_this_host_inside_the_policys_prefix() {
        let own = [
            "127.0.0.1",
            "192.0.2.1",
            "10.1.0.9",
            "10.1.0.1",
            "fe80::1",
            "2001:db8::1",
        ];
        let own = own.map(address);
        for (selected, outer, expected) in [
            ("10.1.0.0/24", "192.0.2.1", Some("10.1.0.1")),
            ("0.0.0.0/0", "192.0.2.1", Some("192.0.2.1")),
            ("0.0.0.0/0", "192.0.2.77", Some("10.1.0.1")),
            ("10.7.0.0/24", "192.0.2.1", None),
            ("127.0.0.0/8", "192.0.2.1", None),
            ("::/0", "192.0.2.1", Some("2001:db8::1")),
        ] {
            let found = source_within(prefix(selected), address(outer), &own);
            assert_eq!(found, expected.map(address), "{selected} {outer}");
        }
    }

    #[test]
    fn the_way_is_the_kernels_for_marked_packets_between_the_outer_addresses() {
        fn every_way() {
            for words in [
                "link add wan type veth peer name far-wan",
                "link add lan type veth peer name far-lan",
                "link set lo up",
                "link set wan up",
                "link set lan up",
                "link set far-wan up",
                "link set far-lan up",
                "address add 192.0.2.1/24 dev wan",
                "address add 10.1.0.1/24 dev lan",
                "-6 address add 2001:db8::1/64 dev wan nodad",
                "route add default via 10.1.0.254 dev lan",
                "rule add fwmark 0x10000000 lookup 77",
                "route add default via 192.0.2.254 dev wan table 77",
                "route add 203.0.113.0/24 via inet6 fe80::7 dev wan",
                "route add unreachable 198.51.100.9",
            ] {
                let argv: Vec<_> = ["ip"].into_iter().chain(words.split(' ')).collect();
                said(&argv, "");
            }
            let mut netlink = Netlink::open().unwrap();
            let own = netlink.addresses().unwrap();
            let mut way = |source, destination, mark, selected| {
                let ends = (address(source), address(destination));
                netlink.way(ends, mark, &own, prefix(selected)).unwrap()
            };
            let of = |device: &str, next_hop: Option<&str>, source: Option<&str>| {
                Some(Way {
                    device: device.into(),
                    next_hop: next_hop.map(address),
                    source: source.map(address),
                })
            };
            let (wan, lan) = ("192.0.2.1", "10.1.0.0/24");
            let mark = 0x1000_0000;
            let own = Some("10.1.0.1");
            let marked = way(wan, "198.51.100.1", mark, lan);
            assert_eq!(marked, of("wan", Some("192.0.2.254"), own));
            let unmarked = way(wan, "198.51.100.1", 0, "10.7.0.0/24");
            assert_eq!(unmarked, of("lan", Some("10.1.0.254"), None));
            let beside = way(wan, "192.0.2.2", 0, "192.0.2.1/32");
            assert_eq!(beside, of("wan", None, Some(wan)));
            let mixed = way(wan, "203.0.113.1", 0, "192.0.2.1/32");
            assert_eq!(mixed, of("wan", Some("fe80::7"), Some(wan)));
            let inside = way(wan, "198.51.100.1", mark, "2001:db8::/48");
            assert_eq!(inside, of("wan", None, Some("2001:db8::1")));
            for nowhere in ["198.51.100.9", "192.0.2.1"] {
                assert_eq!(way(wan, nowhere, 0, lan), None, "{nowhere}");
            }
            assert_eq!(way("192.0.2.77", "192.0.2.2", 0, lan), None);
        }
        isolated(|| in_a_namespace(every_way));
    }
}
