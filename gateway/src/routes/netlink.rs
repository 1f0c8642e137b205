//! Rules, routes, links and addresses by netlink, one blocking request after the other; no `ip` program is needed.

mod links;
mod next_hops;

pub use next_hops::{KernelNextHops, SimpleLink};

use super::plan::Family;
use super::steering::{OWNER, Route, Rule, RuleAction};
use ipsec::policy::Prefix;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::rule::{
    RuleAction as KernelAction, RuleAttribute, RuleMessage, RulePortRange,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// FIB_RULE_FIND_SADDR: an IPv6 rule with a source also fits a lookup whose source the kernel would choose from it.
const FIND_SOURCE: u32 = 0x0001_0000;

/// Both families, as netlink names them.
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// A connection to the kernel's routing tables.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// The way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The largest packet that fits, by route and device.
    pub mtu: u32,
    /// Index of the device.
    pub device: u32,
}

impl Netlink {
    /// Opens a connection.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Our rules with preferences from `first` on, as many as a block has.
    pub fn rules(&mut self, first: u32) -> io::Result<Vec<Rule>> {
        let mut rules = Vec::new();
        for family in FAMILIES {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let answers = self.ask(RouteNetlinkMessage::GetRule(message), NLM_F_DUMP);
            for answer in absent_is_empty(answers)? {
                if let RouteNetlinkMessage::NewRule(message) = answer {
                    rules.extend(read_rule(&message));
                }
            }
        }
        let block = first..first + super::steering::BLOCK;
        rules.retain(|rule| block.contains(&rule.preference));
        Ok(rules)
    }

    /// Adds a rule.
    pub fn add_rule(&mut self, rule: &Rule) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRule(write_rule(rule));
        self.ask(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
    }

    /// Takes a rule away.
    pub fn delete_rule(&mut self, rule: &Rule) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRule(write_rule(rule));
        self.ask(message, NLM_F_ACK).map(drop)
    }

    /// Our routes in a table. `tun` is the index of the TUN device.
    pub fn routes(&mut self, table: u32, tun: Option<u32>) -> io::Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in FAMILIES {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let answers = self.ask(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP);
            for answer in absent_is_empty(answers)? {
                if let RouteNetlinkMessage::NewRoute(message) = answer {
                    routes.extend(read_route(&message, table, tun));
                }
            }
        }
        Ok(routes)
    }

    /// Adds a route to a table, or replaces the one with this destination and metric.
    pub fn put_route(&mut self, table: u32, tun: Option<u32>, route: &Route) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRoute(write_route(table, tun, route));
        self.ask(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// Takes a route out of a table.
    pub fn delete_route(&mut self, table: u32, tun: Option<u32>, route: &Route) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRoute(write_route(table, tun, route));
        self.ask(message, NLM_F_ACK).map(drop)
    }

    /// How a marked packet from `source` gets to `destination`, by a device of this index if one is named, and how large
    /// it may be.
    pub fn path(
        &mut self,
        (source, destination): (IpAddr, IpAddr),
        mark: u32,
        device: Option<u32>,
    ) -> io::Result<Path> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = bits(destination);
        message.header.source_prefix_length = bits(source);
        // The route as it was configured: what the kernel has learnt since, it has learnt from anybody.
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

    /// Index of the device of this name, if there is one.
    pub fn link(&mut self, name: &str) -> io::Result<Option<u32>> {
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
    pub fn link_by_index(&mut self, index: u32) -> io::Result<(String, u32)> {
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

    /// All addresses of this host.
    pub fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.ask(message, NLM_F_DUMP)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => own_address(&message),
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
        self.sequence = self.sequence.wrapping_add(1);
        exchange(&self.socket, self.sequence, message, flags)
    }
}

/// Sends one request and collects what comes back until it is complete.
fn exchange<M>(socket: &Socket, sequence: u32, message: M, flags: u16) -> io::Result<Vec<M>>
where
    M: NetlinkSerializable + NetlinkDeserializable,
{
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let several = flags & NLM_F_DUMP == NLM_F_DUMP || flags & NLM_F_ACK != 0;
    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = &datagram[..];
        while rest.len() >= 16 {
            let answer = NetlinkMessage::<M>::deserialize(rest).map_err(io::Error::other)?;
            let len = (answer.header.length as usize).next_multiple_of(4);
            rest = rest.get(len..).unwrap_or_default();
            if answer.header.sequence_number != sequence {
                continue;
            }
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => answers.push(message),
                NetlinkPayload::Done(_) => return Ok(answers),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) => return Ok(answers),
                _ => {}
            }
        }
        if !several {
            return Ok(answers);
        }
    }
}

/// A kernel without IPv6, or without policy routing for it, has no rules and routes of it.
fn absent_is_empty<T>(answers: io::Result<Vec<T>>) -> io::Result<Vec<T>> {
    match answers {
        Err(error) if is_family_absent(&error) => Ok(Vec::new()),
        other => other,
    }
}

/// Whether an error means that the kernel does not know this address family.
pub fn is_family_absent(error: &io::Error) -> bool {
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

fn write_rule(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(any(rule.family));
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.preference));
    attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(OWNER)));
    message.header.action = match rule.action {
        RuleAction::Lookup(table) => {
            attributes.push(RuleAttribute::Table(table));
            KernelAction::ToTable
        }
        RuleAction::Goto(preference) => {
            attributes.push(RuleAttribute::Goto(preference));
            KernelAction::Goto
        }
        RuleAction::Drop => KernelAction::Blackhole,
        RuleAction::Nothing => KernelAction::Nop,
    };
    if let Some(prefix) = rule.source.filter(|prefix| prefix.len > 0) {
        message.header.src_len = prefix.len;
        attributes.push(RuleAttribute::Source(prefix.address));
        if rule.family == Family::V6 {
            message.header.flags =
                netlink_packet_route::rule::RuleFlags::from_bits_retain(FIND_SOURCE);
        }
    }
    if let Some(prefix) = rule.destination.filter(|prefix| prefix.len > 0) {
        message.header.dst_len = prefix.len;
        attributes.push(RuleAttribute::Destination(prefix.address));
    }
    if let Some(protocol) = rule.protocol {
        attributes.push(RuleAttribute::IpProtocol(protocol.into()));
    }
    let only = |port| RulePortRange {
        start: port,
        end: port,
    };
    attributes.extend(
        rule.source_port
            .map(only)
            .map(RuleAttribute::SourcePortRange),
    );
    attributes.extend(
        rule.destination_port
            .map(only)
            .map(RuleAttribute::DestinationPortRange),
    );
    if let Some(mark) = rule.mark {
        attributes.push(RuleAttribute::FwMark(mark));
        attributes.push(RuleAttribute::FwMask(mark));
    }
    message
}

/// The rule as we would have written it, if it is one of ours.
fn read_rule(message: &RuleMessage) -> Option<Rule> {
    let ours = RuleAttribute::Protocol(RouteProtocol::Other(OWNER));
    if !message.attributes.contains(&ours) {
        return None;
    }
    let family = match message.header.family {
        AddressFamily::Inet => Family::V4,
        _ => Family::V6,
    };
    let whole = Prefix {
        address: any(family),
        len: 0,
    };
    let (mut table, mut goto) = (u32::from(message.header.table), 0);
    let mut rule = Rule {
        family,
        preference: 0,
        action: RuleAction::Nothing,
        source: Some(whole),
        destination: Some(whole),
        protocol: None,
        source_port: None,
        destination_port: None,
        mark: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(value) => rule.preference = *value,
            RuleAttribute::Table(value) => table = *value,
            RuleAttribute::Goto(value) => goto = *value,
            RuleAttribute::Source(address) => {
                rule.source = Some(Prefix {
                    address: *address,
                    len: message.header.src_len,
                });
            }
            RuleAttribute::Destination(address) => {
                rule.destination = Some(Prefix {
                    address: *address,
                    len: message.header.dst_len,
                });
            }
            RuleAttribute::IpProtocol(protocol) => rule.protocol = Some((*protocol).into()),
            RuleAttribute::SourcePortRange(range) => rule.source_port = Some(range.start),
            RuleAttribute::DestinationPortRange(range) => rule.destination_port = Some(range.start),
            RuleAttribute::FwMark(mark) => rule.mark = Some(*mark),
            _ => {}
        }
    }
    rule.action = match message.header.action {
        KernelAction::ToTable => RuleAction::Lookup(table),
        KernelAction::Goto => RuleAction::Goto(goto),
        KernelAction::Blackhole => RuleAction::Drop,
        _ => RuleAction::Nothing,
    };
    // Rules of marks and the place behind the block have no prefixes at all.
    if rule.mark.is_some() || rule.action == RuleAction::Nothing {
        rule.source = None;
        rule.destination = None;
    }
    Some(rule)
}

/// The bit of RTAX_MTU in RTAX_LOCK: this MTU is never lowered, and packets leave without DF.
const LOCK_MTU: u32 = 1 << 2;

/// IPv4 and TCP headers without options, as the kernel counts them between MTU and MSS.
const TCP_HEADERS: u32 = 40;

fn metrics(mtu: u32, whole: bool) -> Vec<RouteMetric> {
    match whole {
        false => vec![RouteMetric::Mtu(mtu)],
        true => vec![
            RouteMetric::Lock(LOCK_MTU),
            RouteMetric::Mtu(u16::MAX.into()),
            RouteMetric::Advmss(mtu.saturating_sub(TCP_HEADERS)),
        ],
    }
}

fn write_route(table: u32, tun: Option<u32>, route: &Route) -> RouteMessage {
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
    if route.by_tun {
        message.header.kind = RouteType::Unicast;
        message.header.scope = match route.family {
            Family::V4 => RouteScope::Link,
            Family::V6 => RouteScope::Universe,
        };
        message.attributes.extend(tun.map(RouteAttribute::Oif));
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

/// The route as we would have written it, if it is one of ours in this table.
fn read_route(message: &RouteMessage, table: u32, tun: Option<u32>) -> Option<Route> {
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
        by_tun: message.header.kind == RouteType::Unicast,
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
                        route.mtu = Some(mss + TCP_HEADERS);
                    }
                }
            }
            RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                route.destination.address = IpAddr::V4(*address);
            }
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                route.destination.address = IpAddr::V6(*address);
            }
            _ => {}
        }
    }
    let ours = message.header.protocol == RouteProtocol::Other(OWNER) && in_table == table;
    let by_ours = !route.by_tun || device == tun;
    (ours && by_ours).then_some(route)
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
