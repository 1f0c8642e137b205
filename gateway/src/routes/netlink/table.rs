//! The gateway's routes of one table in the kernel.

use super::super::plan::Family;
use super::super::steering::{OWNER, Route};
use super::super::tables::Exits;
use super::{FAMILIES, Netlink, absent_is_empty, any, family, metrics_mtu};
use ipsec::policy::Prefix;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
    RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

impl Netlink {
    /// The gateway's routes in a table, each to one of the host's devices or to none.
    pub(crate) fn routes(&mut self, table: u32, exits: &Exits) -> io::Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in FAMILIES {
            for answer in absent_is_empty(self.table(family, table))? {
                if let RouteNetlinkMessage::NewRoute(message) = answer {
                    routes.extend(read_route(&message, table, exits));
                }
            }
        }
        Ok(routes)
    }

    /// Lists one table only, because others may have a full Internet routing table. A kernel before 4.20 lists all.
    fn table(&mut self, family: AddressFamily, table: u32) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        let is_strict = self.socket.set_strict_check(true).is_ok();
        if is_strict {
            message.attributes = vec![RouteAttribute::Table(table)];
        }
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP);
        if is_strict {
            self.socket.set_strict_check(false)?;
        }
        match answers {
            // The kernel creates a table with its first route.
            Err(error) if is_strict && error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
            answers => answers,
        }
    }

    /// Adds a route to a table, or replaces the one with this destination and metric.
    pub(crate) fn put_route(&mut self, table: u32, exits: &Exits, route: &Route) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRoute(write_route(table, exits, route));
        self.ask(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// Deletes a route of a table.
    pub(crate) fn delete_route(
        &mut self,
        table: u32,
        exits: &Exits,
        route: &Route,
    ) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRoute(write_route(table, exits, route));
        self.ask(message, NLM_F_ACK).map(drop)
    }
}

/// The bit of RTAX_MTU in RTAX_LOCK: this MTU is never lowered, and packets leave without DF.
const LOCK_MTU: u32 = 1 << 2;

/// IPv4 and TCP headers without options, as the kernel counts them between MTU and MSS.
const TCP_HEADERS: u32 = 40;

fn metrics(mtu: u32, whole: bool) -> Vec<RouteMetric> {
    if whole {
        vec![
            RouteMetric::Lock(LOCK_MTU),
            RouteMetric::Mtu(u16::MAX.into()),
            RouteMetric::Advmss(mtu.saturating_sub(TCP_HEADERS)),
        ]
    } else {
        vec![RouteMetric::Mtu(mtu)]
    }
}

pub(super) fn write_route(table: u32, exits: &Exits, route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.destination.address);
    message.header.destination_prefix_length = route.destination.len;
    message.header.protocol = RouteProtocol::Other(OWNER);
    message.attributes = vec![
        RouteAttribute::Table(table),
        RouteAttribute::Priority(route.metric),
    ];
    if route.destination.len > 0 {
        let destination: RouteAddress = route.destination.address.into();
        message
            .attributes
            .push(RouteAttribute::Destination(destination));
    }
    if let Some(device) = &route.device {
        message.header.kind = RouteType::Unicast;
        message.header.scope = match (route.family, route.next_hop) {
            (Family::V4, None) => RouteScope::Link,
            _ => RouteScope::Universe,
        };
        let index = exits.get(device).copied();
        message.attributes.extend(index.map(RouteAttribute::Oif));
        if let Some(router) = route.next_hop {
            // The kernel would look up the router itself by the gateway's own rules and table.
            message.header.flags |= RouteFlags::Onlink;
            message
                .attributes
                .push(router_attribute(route.family, router));
        }
        let source = route.source.map(RouteAddress::from);
        message
            .attributes
            .extend(source.map(RouteAttribute::PrefSource));
    } else {
        message.header.kind = RouteType::Unreachable;
    }
    if let Some(mtu) = route.mtu {
        message
            .attributes
            .push(RouteAttribute::Metrics(metrics(mtu, route.whole)));
    }
    message
}

/// RFC 8950: an IPv4 route may lead to a router by its IPv6 address.
fn router_attribute(family: Family, router: IpAddr) -> RouteAttribute {
    match (family, router) {
        (Family::V4, IpAddr::V6(router)) => RouteAttribute::Via(RouteVia::Inet6(router)),
        _ => RouteAttribute::Gateway(router.into()),
    }
}

/// The address in an attribute.
pub(super) fn address_of(attribute: &RouteAddress) -> Option<IpAddr> {
    match attribute {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

/// Parses a route; none if it is not the gateway's, in this table and by one of these devices.
pub(super) fn read_route(message: &RouteMessage, table: u32, exits: &Exits) -> Option<Route> {
    let family = match message.header.address_family {
        AddressFamily::Inet => Family::V4,
        _ => Family::V6,
    };
    let mut route = Route {
        family,
        destination: Prefix {
            address: any(family),
            len: message.header.destination_prefix_length,
        },
        device: None,
        next_hop: None,
        source: None,
        mtu: metrics_mtu(&message.attributes),
        whole: false,
        metric: 0,
    };
    let (mut in_table, mut device) = (u32::from(message.header.table), None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(value) => in_table = *value,
            RouteAttribute::Priority(value) => route.metric = *value,
            RouteAttribute::Oif(value) => device = Some(*value),
            RouteAttribute::Metrics(metrics) => {
                for metric in metrics {
                    if let RouteMetric::Advmss(mss) = metric {
                        route.whole = true;
                        route.mtu = Some(mss.saturating_add(TCP_HEADERS));
                    }
                }
            }
            RouteAttribute::Destination(address) => {
                if let Some(address) = address_of(address) {
                    route.destination.address = address;
                }
            }
            RouteAttribute::Gateway(router) => route.next_hop = address_of(router),
            RouteAttribute::Via(RouteVia::Inet6(router)) => route.next_hop = Some((*router).into()),
            RouteAttribute::PrefSource(address) => route.source = address_of(address),
            _ => {}
        }
    }
    let is_own = message.header.protocol == RouteProtocol::Other(OWNER) && in_table == table;
    if message.header.kind == RouteType::Unicast {
        let mut exits = exits.iter();
        let (name, _) = exits.find(|(_, index)| Some(**index) == device)?;
        route.device = Some(Arc::clone(name));
    }
    is_own.then_some(route)
}
