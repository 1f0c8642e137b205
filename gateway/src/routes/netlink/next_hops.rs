//! The next hop towards a peer, with the neighbour's link-layer address, for packets sent below the kernel's IP layer;
//! and notifications that it may have changed.

use super::{Netlink, bits, family, metrics_mtu};
use crate::netlink_socket::listen;
use dataplane::io::packet::{NextHop, NextHops};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType,
};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use std::io;
use std::net::IpAddr;

/// An Ethernet device whose queue may be bypassed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SimpleLink {
    /// Its name.
    pub name: String,
    /// Its MTU.
    pub mtu: u32,
    /// Its link-layer address.
    pub address: [u8; 6],
}

/// A route that has only a device, and optionally a gateway and an MTU.
struct SimpleRoute {
    device: u32,
    gateway: Option<IpAddr>,
    mtu: Option<u32>,
}

/// The kernel's errors for a destination without a route, or with a route of type unreachable, blackhole, prohibit or
/// throw.
const NO_WAY: [Errno; 5] = [
    Errno::NETUNREACH,
    Errno::HOSTUNREACH,
    Errno::INVAL,
    Errno::ACCESS,
    Errno::AGAIN,
];

/// Whether an error means that there is no way to a destination.
pub(super) fn has_no_way(error: &io::Error) -> bool {
    let numbers = NO_WAY.map(|errno| Some(errno.raw_os_error()));
    numbers.contains(&error.raw_os_error())
}

/// The qdiscs that the kernel sets by default. Any other was configured to shape or delay traffic.
const DEFAULT_QUEUES: [&str; 6] = ["noqueue", "noop", "pfifo_fast", "mq", "fq_codel", "fq"];

impl Netlink {
    /// The device of this index, if packets may bypass its queue and be written to its rings: Ethernet, up, in no
    /// bridge or bond, and with a default qdisc.
    pub(crate) fn simple_link(&mut self, index: u32) -> io::Result<Option<SimpleLink>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let answers = self.ask(RouteNetlinkMessage::GetLink(message), 0)?;
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => simple(&link),
            _ => None,
        }))
    }

    /// The next hop of marked packets between two addresses.
    fn next_hop(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        mark: u32,
    ) -> io::Result<Option<NextHop>> {
        let Some(SimpleRoute {
            device,
            gateway,
            mtu,
        }) = self.simple_route(source, destination, mark)?
        else {
            return Ok(None);
        };
        let Some(link) = self.simple_link(device)? else {
            return Ok(None);
        };
        let neighbour = self.neighbour(device, gateway.unwrap_or(destination))?;
        Ok(neighbour.map(|neighbour_mac| NextHop {
            device,
            mtu: mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
            local_mac: link.address,
            neighbour_mac,
        }))
    }

    /// The route, if it is a simple one.
    fn simple_route(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        mark: u32,
    ) -> io::Result<Option<SimpleRoute>> {
        let message = request(source, destination, mark);
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), 0)?;
        let Some(RouteNetlinkMessage::NewRoute(route)) = answers.into_iter().next() else {
            return Ok(None);
        };
        if route.header.kind != RouteType::Unicast {
            return Ok(None);
        }
        let (mut device, mut gateway) = (None, None);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => device = Some(*index),
                RouteAttribute::Gateway(RouteAddress::Inet(address)) => {
                    gateway = Some(IpAddr::V4(*address));
                }
                RouteAttribute::Gateway(RouteAddress::Inet6(address)) => {
                    gateway = Some(IpAddr::V6(*address));
                }
                // A gateway of the other family, or an encapsulation by the route.
                RouteAttribute::Via(_) | RouteAttribute::EncapType(_) => return Ok(None),
                _ => {}
            }
        }
        let Some(device) = device else {
            return Ok(None);
        };
        let mtu = self.configured_mtu(source, destination, mark)?;
        Ok(Some(SimpleRoute {
            device,
            gateway,
            mtu,
        }))
    }

    /// Type of the route of marked packets to a destination: unicast, local, unreachable and so on.
    fn kind_of_route(&mut self, destination: IpAddr, mark: u32) -> io::Result<Option<RouteType>> {
        let mut message = request(destination, destination, mark);
        // Packets of this host itself: any source.
        message.header.source_prefix_length = 0;
        message
            .attributes
            .retain(|attribute| !matches!(attribute, RouteAttribute::Source(_)));
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), 0)?;
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route.header.kind),
            _ => None,
        }))
    }

    /// The MTU that the route was configured with. The answer that has the next hop also has the path MTU that the
    /// kernel has learnt from unauthenticated ICMP messages.
    fn configured_mtu(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        mark: u32,
    ) -> io::Result<Option<u32>> {
        let mut message = request(source, destination, mark);
        message.header.flags = RouteFlags::FibMatch;
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), 0)?;
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => metrics_mtu(&route.attributes),
            _ => None,
        }))
    }

    /// A neighbour's link-layer address, if the kernel's neighbour entry is valid.
    fn neighbour(&mut self, device: u32, address: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = device;
        let destination = match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        };
        message.attributes = vec![NeighbourAttribute::Destination(destination)];
        let answers = self.ask(RouteNetlinkMessage::GetNeighbour(message), 0)?;
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(neighbour) => known(&neighbour),
            _ => None,
        }))
    }
}

/// The request for the route of marked packets between two addresses.
pub(super) fn request(source: IpAddr, destination: IpAddr, mark: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination);
    message.header.destination_prefix_length = bits(destination);
    message.header.source_prefix_length = bits(source);
    message.attributes = vec![
        RouteAttribute::Destination(destination.into()),
        RouteAttribute::Source(source.into()),
        RouteAttribute::Mark(mark),
    ];
    message
}

pub(super) fn simple(link: &LinkMessage) -> Option<SimpleLink> {
    let flags = link.header.flags;
    let is_ready = flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
    if link.header.link_layer_type != LinkLayerType::Ether
        || !is_ready
        || flags.contains(LinkFlags::Noarp)
    {
        return None;
    }
    let (mut name, mut mtu, mut address, mut queue) = (None, None, None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name = Some(found.clone()),
            LinkAttribute::Mtu(found) => mtu = Some(*found),
            LinkAttribute::Address(found) => address = found.as_slice().try_into().ok(),
            LinkAttribute::Qdisc(found) => queue = Some(found.as_str()),
            // A bridge, a bond or a VRF decides too what the device carries.
            LinkAttribute::Controller(_) => return None,
            _ => {}
        }
    }
    queue.filter(|queue| DEFAULT_QUEUES.contains(queue))?;
    Some(SimpleLink {
        name: name?,
        mtu: mtu?,
        address: address?,
    })
}

pub(super) fn known(neighbour: &NeighbourMessage) -> Option<[u8; 6]> {
    use NeighbourState::{Delay, Permanent, Probe, Reachable, Stale};
    if ![Reachable, Stale, Delay, Probe, Permanent].contains(&neighbour.header.state) {
        return None;
    }
    neighbour
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(address) => address.as_slice().try_into().ok(),
            _ => None,
        })
}

/// Multicast groups, as `linux/rtnetlink.h` numbers them: links, neighbours, traffic control, and of both families
/// addresses, routes and rules.
const GROUPS: [u32; 9] = [1, 3, 4, 5, 7, 8, 9, 11, 19];

/// The kernel's next hops, with its notifications about changes.
pub(crate) struct KernelNextHops {
    netlink: Netlink,
    news: Socket,
    mark: u32,
}

impl KernelNextHops {
    /// Finds next hops for packets with this mark.
    pub(crate) fn open(mark: u32) -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            news: listen(NETLINK_ROUTE, &GROUPS)?,
            mark,
        })
    }
}

impl NextHops for KernelNextHops {
    fn changed(&mut self) -> bool {
        let mut any = false;
        let mut room = [0u8; 1];
        loop {
            // It does not matter what has changed: reading the first byte of a message removes it from the queue.
            match self.news.recv(&mut &mut room[..], 0) {
                Ok(_) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return any,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The queue has overflowed.
                Err(_) => return true,
            }
        }
    }

    fn find(&mut self, source: IpAddr, destination: IpAddr) -> Option<NextHop> {
        // An error is ignored: the packet goes to the raw socket, which reports it more precisely.
        self.netlink
            .next_hop(source, destination, self.mark)
            .ok()
            .flatten()
    }

    fn is_ours(&mut self, destination: IpAddr) -> bool {
        let kind = self.netlink.kind_of_route(destination, self.mark);
        let ours = [RouteType::Local, RouteType::Broadcast, RouteType::Anycast];
        match kind {
            Ok(kind) => kind.is_some_and(|kind| ours.contains(&kind)),
            // There is no route: the raw socket gets the same error. After any other error the destination may be this
            // host, so the packet is dropped.
            Err(error) => !has_no_way(&error),
        }
    }
}
