//! Devices: their names and MTUs, and the gateway's additional devices, which are recognised by their alias and deleted
//! only when no route leads to them any more.

use super::Netlink;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RFC 7600 section 4.8: the IPv4 dummy address.
const DUMMY_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8));

impl Netlink {
    /// Index of the device of this name, if there is one.
    pub(crate) fn link(&mut self, name: &str) -> io::Result<Option<u32>> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        match self.ask(RouteNetlinkMessage::GetLink(message), 0) {
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(link.header.index),
                _ => None,
            })),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Name and MTU of a device.
    pub(crate) fn link_by_index(&mut self, index: u32) -> io::Result<(String, u32)> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let answers = self.ask(RouteNetlinkMessage::GetLink(message), 0)?;
        let (mut name, mut mtu) = (String::new(), 1500);
        for answer in answers {
            let RouteNetlinkMessage::NewLink(link) = answer else {
                continue;
            };
            for attribute in link.attributes {
                match attribute {
                    LinkAttribute::IfName(found) => name = found,
                    LinkAttribute::Mtu(found) => mtu = found,
                    _ => {}
                }
            }
        }
        Ok((name, mtu))
    }

    /// Name and index of every device with this alias.
    pub(crate) fn links_called(&mut self, alias: &str) -> io::Result<Vec<(String, u32)>> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.ask(question, NLM_F_DUMP)?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        let called = links.filter_map(|link| {
            let ours = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::IfAlias(found) if found == alias);
            link.attributes.iter().any(ours).then(|| named(link))?
        });
        Ok(called.collect())
    }

    /// Whether a device is up, and its MTU; none if there is no such device.
    pub(crate) fn link_state(&mut self, index: u32) -> io::Result<Option<(bool, u32)>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let answers = match self.ask(RouteNetlinkMessage::GetLink(message), 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            answers => answers?,
        };
        let link = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        Ok(link.map(|link| {
            let mtu = |attribute: &LinkAttribute| match attribute {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            };
            let mtu = link.attributes.iter().find_map(mtu);
            (link.header.flags.contains(LinkFlags::Up), mtu.unwrap_or(0))
        }))
    }

    /// Sets a device's alias, which `ip link` shows.
    pub(crate) fn call_link(&mut self, index: u32, alias: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::IfAlias(alias.to_owned())];
        self.ask(RouteNetlinkMessage::SetLink(message), NLM_F_ACK)
            .map(drop)
    }

    /// Renames a device. Kernels before 6.3 refuse that while it is up.
    pub(crate) fn rename_link(&mut self, index: u32, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        self.ask(RouteNetlinkMessage::SetLink(message), NLM_F_ACK)
            .map(drop)
    }

    /// Adds RFC 7600's IPv4 dummy address to a device, with a scope in which it is never chosen as a source address.
    pub(crate) fn add_dummy_address(&mut self, index: u32) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 32;
        message.header.index = index;
        message.header.scope = AddressScope::Link;
        message.attributes = vec![AddressAttribute::Local(DUMMY_ADDRESS)];
        self.ask(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_ACK | NLM_F_CREATE,
        )
        .map(drop)
    }

    /// Deletes a device, even if a process has it open.
    pub(crate) fn delete_link(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.ask(RouteNetlinkMessage::DelLink(message), NLM_F_ACK)
            .map(drop)
    }

    /// Whether a route leads to the device, in any table; routes that the kernel adds by itself do not count.
    pub(crate) fn is_led_to(&mut self, index: u32) -> io::Result<bool> {
        for family in super::FAMILIES {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let answers = self.ask(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP);
            for answer in super::absent_is_empty(answers)? {
                if let RouteNetlinkMessage::NewRoute(route) = answer
                    && leads(&route, index)
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

pub(super) fn named(link: LinkMessage) -> Option<(String, u32)> {
    let index = link.header.index;
    link.attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some((name, index)),
            _ => None,
        })
}

pub(super) fn leads(route: &RouteMessage, index: u32) -> bool {
    let by_device = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::Oif(device) => *device == index,
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
        _ => false,
    };
    route.header.kind == RouteType::Unicast
        && route.attributes.iter().any(by_device)
        && !route.attributes.iter().any(is_of_the_link)
}

/// The routes of IPv6's link-local prefix and multicast, which the kernel adds and deletes with the device.
fn is_of_the_link(attribute: &RouteAttribute) -> bool {
    let own = |address: &Ipv6Addr| address.is_unicast_link_local() || address.is_multicast();
    matches!(attribute, RouteAttribute::Destination(RouteAddress::Inet6(address)) if own(address))
}
