//! By which device and router an address is reached.

use super::{Netlink, bits, family};
use ipsec::database::Hop;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
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
}

fn hop(route: &RouteMessage) -> Option<Hop> {
    let (mut device, mut router) = (None, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => {
                router = Some((*address).into())
            }
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => {
                router = Some((*address).into());
            }
            _ => {}
        }
    }
    device.map(|device| Hop { device, router })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
