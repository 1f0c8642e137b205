//! What the kernel has to enforce, derived from the policies: data from which firewall, rules and routes are compiled.

mod destinations;
mod planes;
mod way;

pub(crate) use destinations::{Destination, Fit};
pub(crate) use planes::Planes;
pub(crate) use way::Way;

use ipsec::policy::{Action, Direction, Level, Policy, Prefix, Selector, Upper};
use ipsec::sa::Mode;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Numbers of the IP protocols that have ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
pub(crate) const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// What the kernel does with traffic that a policy matches and that is about to pass outside the TUN device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disposition {
    /// It must enter the tunnel, so it is dropped unencrypted.
    Protect,
    /// It is dropped everywhere.
    Discard,
    /// It passes unencrypted, by normal routing.
    Bypass,
}

/// One policy, as the kernel has to enforce it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Which packets it matches.
    pub selector: Selector,
    /// What happens to them.
    pub verdict: Disposition,
    /// The largest packet that fits the tunnel, if it is protected outbound traffic.
    pub mtu: Option<u32>,
    /// Whether its packets must not be fragmented before they are protected, however large (RFC 4301 4.1: transport
    /// mode does not apply to fragments); the outer packet is fragmented instead.
    pub whole: bool,
    /// The device of the peer whose traffic it is, if it is protected outbound traffic that has one.
    pub device: Option<Arc<str>>,
    /// The way to the peer, if it is protected outbound traffic that the kernel's own IPsec carries.
    pub via: Option<Way>,
}

/// Everything to enforce; each list is in the order in which policies are looked up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plan {
    /// Who carries the protected traffic.
    pub planes: Planes,
    /// The `out` policies.
    pub leaving: Vec<Entry>,
    /// The `in` policies.
    pub arriving: Vec<Entry>,
    /// The `fwd` policies.
    pub passing: Vec<Entry>,
    /// Whether decrypted packets that only `in` or only `fwd` policies let through are delivered by separate devices.
    pub has_direction_devices: bool,
    /// UDP ports at which protected packets arrive.
    pub udp_ports: BTreeSet<u16>,
    /// Pairs of outer addresses (the gateway's, the peer's) between which policies protect traffic too: both ends are
    /// their own gateways.
    pub gateway_peers: OuterPairs,
    /// Outer source and destination of every SA whose packets pass this network namespace.
    pub outer: OuterPairs,
    /// Users whose sockets send the gateway's outer packets.
    pub senders: Senders,
    /// Whether the gateway exchanges keys itself: then its packets from [`IKE_PORTS`] pass between any addresses,
    /// because peers may be anywhere, and those to these ports arrive.
    pub exchanges_keys: bool,
    /// The devices of peers into which policies lead: their packets are checked against the same policies as those of
    /// the first device.
    pub devices: BTreeSet<Arc<str>>,
}

/// Pairs of outer addresses: source, destination.
pub(crate) type OuterPairs = BTreeSet<(IpAddr, IpAddr)>;

/// UDP ports of key exchange (RFC 7296 2).
pub(crate) const IKE_PORTS: [u16; 2] = [500, 4500];

/// Users whose sockets send the gateway's outer packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Senders {
    /// There is no gateway.
    #[default]
    None,
    /// These user ids, as seen from the network namespace.
    Users(BTreeSet<u32>),
    /// The gateway's user id in the network namespace is not known.
    Any,
}

impl Senders {
    /// The users of both.
    pub(crate) fn and(&self, others: &Self) -> Self {
        match (self, others) {
            (Self::None, some) | (some, Self::None) => some.clone(),
            (Self::Users(some), Self::Users(others)) => Self::Users(some | others),
            _ => Self::Any,
        }
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl Plan {
    /// Appends a policy to its direction's list. `reachable`: whether an SA exists for it; `mtu`: the largest packet
    /// that fits this SA.
    pub(crate) fn push(&mut self, policy: &Policy, reachable: bool, mtu: Option<u32>) {
        let verdict = verdict(&policy.action, reachable);
        let entry = Entry {
            selector: normal(policy.selector),
            verdict,
            mtu: mtu.filter(|_| verdict == Disposition::Protect),
            whole: is_transport(&policy.action) && policy.selector.source.address.is_ipv4(),
            device: policy.device.clone(),
            via: None,
        };
        match policy.direction {
            Direction::Out => self.leaving.push(entry),
            Direction::In => self.arriving.push(entry),
            Direction::Fwd => self.passing.push(entry),
        }
    }

    /// Gives the last `out` policy the way to its peer, if it is protected.
    pub(crate) fn lead_last_by(&mut self, via: Option<Way>) {
        if let Some(entry) = self.leaving.last_mut() {
            entry.via = via.filter(|_| entry.verdict == Disposition::Protect);
        }
    }

    /// The plan of a list of policies, all of whose SAs exist.
    #[cfg(test)]
    pub(crate) fn of(policies: &[std::sync::Arc<Policy>]) -> Self {
        let mut plan = Self::default();
        for policy in policies {
            plan.push(policy, true, None);
        }
        plan
    }

    /// Whether another plan drops the same: they differ at most in where routes lead, in the size of packets that fit,
    /// and in the addresses of the gateway's own packets.
    pub(crate) fn drops_as(&self, other: &Self) -> bool {
        let same = |one: &[Entry], other: &[Entry]| {
            let mut both = one.iter().zip(other);
            one.len() == other.len()
                && both.all(|(one, other)| {
                    (one.selector, one.verdict, one.whole)
                        == (other.selector, other.verdict, other.whole)
                })
        };
        let Self {
            planes,
            leaving,
            arriving,
            passing,
            has_direction_devices,
            udp_ports,
            gateway_peers: _,
            outer: _,
            senders,
            exchanges_keys,
            devices,
        } = other;
        self.planes == *planes
            && same(&self.leaving, leaving)
            && same(&self.arriving, arriving)
            && same(&self.passing, passing)
            && self.has_direction_devices == *has_direction_devices
            && self.udp_ports == *udp_ports
            && self.senders == *senders
            && self.exchanges_keys == *exchanges_keys
            && self.devices == *devices
    }

    /// Whether there are `out` policies of this family, which need routing rules.
    pub(crate) fn steers(&self, family: Family) -> bool {
        self.leaving
            .iter()
            .any(|entry| entry.family() == Some(family))
    }

    /// Whether an entry of any list drops packets between two addresses.
    pub(crate) fn drops_between(&self, ends: (IpAddr, IpAddr)) -> bool {
        let lists = [&self.leaving, &self.arriving, &self.passing];
        let mut entries = lists.into_iter().flatten();
        entries.any(|entry| entry.drops() && entry.covers(ends))
    }

    /// Whether traffic to some address of `prefix` is protected.
    pub(crate) fn protects_some(&self, prefix: Prefix) -> bool {
        self.leaving.iter().any(|entry| {
            entry.verdict == Disposition::Protect
                && entry.family().is_some()
                && overlap(entry.selector.destination, prefix)
        })
    }
}

impl Entry {
    /// Whether its packets are dropped where they would pass outside the tunnel.
    pub(crate) fn drops(&self) -> bool {
        self.verdict != Disposition::Bypass
    }

    /// Whether it matches packets from the first address to the second one, of some protocol and port.
    pub(crate) fn covers(&self, (source, destination): (IpAddr, IpAddr)) -> bool {
        self.selector.source.contains(source) && self.selector.destination.contains(destination)
    }

    /// The family of both addresses; none for a selector with mixed families, which matches nothing.
    pub(crate) fn family(&self) -> Option<Family> {
        match (
            self.selector.source.address,
            self.selector.destination.address,
        ) {
            (IpAddr::V4(_), IpAddr::V4(_)) => Some(Family::V4),
            (IpAddr::V6(_), IpAddr::V6(_)) => Some(Family::V6),
            _ => None,
        }
    }

    /// Whether it matches by port, or by ICMP type or code, which later fragments do not carry.
    pub(crate) fn asks_ports(&self) -> bool {
        if let Upper::Icmp { kind, code, .. } = self.selector.upper {
            kind.is_some() || code.is_some()
        } else {
            self.selector.upper.ports() != (None, None)
        }
    }

    /// Whether it matches by ICMP type or code, which a routing rule cannot.
    pub(crate) fn asks_icmp_type(&self) -> bool {
        matches!(self.selector.upper, Upper::Icmp { .. }) && self.asks_ports()
    }
}

/// setkey's level `use` protects if an SA exists, and otherwise lets pass unencrypted, in both directions.
fn verdict(action: &Action, reachable: bool) -> Disposition {
    match action {
        Action::Discard => Disposition::Discard,
        Action::Bypass | Action::Entrust => Disposition::Bypass,
        Action::Protect(templates) => {
            let optional = templates
                .iter()
                .all(|template| template.level == Level::Use);
            if optional && !reachable {
                Disposition::Bypass
            } else {
                Disposition::Protect
            }
        }
    }
}

/// Whether only transport mode is applied.
fn is_transport(action: &Action) -> bool {
    matches!(action, Action::Protect(templates)
        if templates.iter().all(|template| template.mode == Mode::Transport))
}

/// The selector with the host bits of its prefixes cleared.
fn normal(selector: Selector) -> Selector {
    Selector {
        source: masked(selector.source),
        destination: masked(selector.destination),
        upper: selector.upper,
    }
}

fn masked(prefix: Prefix) -> Prefix {
    let address = match prefix.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.len.min(32)));
            IpAddr::V4((u32::from(address) & mask.unwrap_or(0)).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.len.min(128)));
            IpAddr::V6((u128::from(address) & mask.unwrap_or(0)).into())
        }
    };
    Prefix {
        address,
        len: prefix.len,
    }
}

/// Whether one of two masked prefixes contains the other.
pub(crate) fn overlap(one: Prefix, other: Prefix) -> bool {
    let len = one.len.min(other.len);
    let cut = |prefix: Prefix| masked(Prefix { len, ..prefix }).address;
    one.address.is_ipv4() == other.address.is_ipv4() && cut(one) == cut(other)
}

#[cfg(test)]
pub(crate) mod tests;
