//! Rules, routes, links and addresses by netlink, with blocking requests; no `ip` program is needed.
//!
//! This file has the connection, the path to a peer and this host's addresses. `rules` and `table` write and read back
//! routing rules and routes, `links` handles devices, `first_hop` finds the way to an address, `next_hops` the same for
//! packet sockets, `traffic_control` handles filters on devices, `xfrm` policies of the kernel's own IPsec,
//! `xfrm_interfaces` its devices.

mod first_hop;
#[cfg(any(test, fuzzing))]
pub mod fuzz_body;
mod links;
mod next_hops;
mod raw;
mod rules;
mod table;
pub(crate) mod traffic_control;
pub(crate) mod xfrm;
mod xfrm_interfaces;

pub(crate) use next_hops::{KernelNextHops, SimpleLink};
pub(crate) use xfrm_interfaces::DeviceKind;

use super::plan::Family;
use crate::netlink_socket::NetlinkSocket;
use crate::netlink_socket::message::KernelMessage;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteMetric};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Both families, as netlink names them.
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// A connection to the kernel's routing tables.
pub(crate) struct Netlink {
    socket: NetlinkSocket,
}

/// The path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    /// The largest packet that fits, by route and device.
    pub mtu: u32,
    /// Index of the device.
    pub device: u32,
}

impl Netlink {
    /// Opens a connection.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = NetlinkSocket::open(NETLINK_ROUTE)?;
        Ok(Self { socket })
    }

    /// The number by which notifications name what this connection has changed.
    pub(crate) fn port(&self) -> u32 {
        self.socket.port()
    }

    /// The path of a marked packet from `source` to `destination`, by `device` if one is given.
    pub(crate) fn path(
        &mut self,
        (source, destination): (IpAddr, IpAddr),
        mark: u32,
        device: Option<u32>,
    ) -> io::Result<Path> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = bits(destination);
        message.header.source_prefix_length = bits(source);
        // The route as configured, without the path MTU that the kernel has learnt from unauthenticated ICMP messages.
        message.header.flags = RouteFlags::FibMatch;
        message.attributes = vec![
            RouteAttribute::Destination(destination.into()),
            RouteAttribute::Source(source.into()),
            RouteAttribute::Mark(mark),
        ];
        message.attributes.extend(device.map(RouteAttribute::Oif));
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), 0)?;
        let Some(RouteNetlinkMessage::NewRoute(route)) = answers.into_iter().next() else {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        };
        let device = route
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                RouteAttribute::MultiPath(hops) => hops.first().map(|hop| hop.interface_index),
                _ => None,
            });
        let device = device.ok_or(io::ErrorKind::NetworkUnreachable)?;
        let (_, device_mtu) = self.link_by_index(device)?;
        let mtu = metrics_mtu(&route.attributes).map_or(device_mtu, |mtu| mtu.min(device_mtu));
        Ok(Path { mtu, device })
    }

    /// All addresses of this host.
    pub(crate) fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        let all = self.addresses_by_device()?;
        Ok(all.into_iter().map(|(_, address)| address).collect())
    }

    /// All addresses of this host, each with the index of its device.
    pub(crate) fn addresses_by_device(&mut self) -> io::Result<Vec<(u32, IpAddr)>> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.ask(message, NLM_F_DUMP)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => {
                    own_address(&message).map(|address| (message.header.index, address))
                }
                _ => None,
            })
            .collect())
    }

    /// One request and all its answers.
    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.socket.exchange_typed(&message, flags, parse)
    }
}

fn parse(message: &KernelMessage<'_>) -> io::Result<RouteNetlinkMessage> {
    message.parse().map_err(io::Error::other)
}

/// A kernel without IPv6, or without policy routing for it, has no rules and routes of it.
fn absent_is_empty<T>(answers: io::Result<Vec<T>>) -> io::Result<Vec<T>> {
    match answers {
        Err(error) if is_family_absent(&error) => Ok(Vec::new()),
        other => other,
    }
}

/// Whether an error means that the kernel does not know this address family.
pub(crate) fn is_family_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
    )
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let local = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
    local.or_else(|| {
        message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })
    })
}

fn metrics_mtu(attributes: &[RouteAttribute]) -> Option<u32> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => metrics.iter().find_map(|metric| match metric {
            RouteMetric::Mtu(mtu) => Some(*mtu),
            _ => None,
        }),
        _ => None,
    })
}
