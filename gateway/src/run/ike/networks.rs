//! One peer: what is configured about its networks, and the child SAs that are installed.

use super::associations::Associations;
use super::few::Few;
use super::policies::Protection;
use super::selectors::Pair;
use crate::config::Mode;
use ikev2::endpoint::ChildId;
use ipsec::database::KeptInterface;
use ipsec::policy::{Direction, Policy, Prefix, Selector};
use ipsec::sa::SaConfig;
use std::collections::HashMap;
use std::sync::Arc;

/// What names a policy.
pub(crate) type PolicyKey = (Selector, Direction);

/// One peer.
#[derive(Clone, Default)]
pub(crate) struct KeyedPeer {
    /// Its configured traffic.
    pub networks: Vec<Network>,
    /// Its installed pairs.
    pub children: Few<ChildId, Child>,
    /// Its policies in force.
    pub policies: HashMap<PolicyKey, Arc<Policy>>,
    /// Its device, in `mode = "route"`.
    pub device: Option<PeerDevice>,
}

/// The device of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PeerDevice {
    /// Its name.
    pub name: Arc<str>,
    /// Whether policies lead the peer's networks into it.
    pub by_networks: bool,
}

impl PeerDevice {
    /// Of this peer.
    pub(crate) fn of(mode: &Mode) -> Option<Self> {
        match mode {
            Mode::Route {
                device,
                by_networks,
                ..
            } => Some(Self {
                name: device.as_str().into(),
                by_networks: *by_networks,
            }),
            Mode::Policy | Mode::Transport => None,
        }
    }

    /// As the databases keep it.
    pub(crate) fn kept(&self) -> KeptInterface {
        KeptInterface {
            name: Arc::clone(&self.name),
            follows_policies: self.by_networks,
        }
    }
}

/// The traffic of one configured child.
#[derive(Clone)]
pub(crate) struct Network {
    /// Pairs of prefixes.
    pub pairs: Vec<Pair>,
    /// What the policies demand while there is no child SA: an association that does not exist.
    pub closed: Protection,
}

/// One installed pair of child SAs.
#[derive(Clone)]
pub(crate) struct Child {
    /// The child's name in the connection.
    pub name: String,
    /// The identity that the peer has proven.
    pub identity: String,
    /// Its associations.
    pub associations: Associations,
    /// Whether the IKE SA that negotiated it has gone with its process.
    pub is_orphaned: bool,
    /// Its traffic.
    pub pairs: Vec<Pair>,
    /// What its policies demand.
    pub protection: Protection,
}

impl Child {
    /// Whether outbound traffic does not take it.
    pub(crate) fn is_standby(&self) -> bool {
        self.associations.outbound.is_standby
    }

    /// Whether one of both has replaced the other, or both the same one.
    pub(crate) fn is_relative_of(&self, other: &Self) -> bool {
        self.protection.reqid == other.protection.reqid && self.pairs == other.pairs
    }

    /// Its pairs of networks, each prefix as `text` writes it.
    pub(crate) fn networks(&self, text: impl Fn(Prefix) -> String) -> Vec<(String, String)> {
        let pairs = self.pairs.iter();
        pairs
            .map(|pair| (text(pair.local), text(pair.remote)))
            .collect()
    }
}

impl KeyedPeer {
    /// Has the youngest pair that replaced this one, which has been removed, carry its traffic, if none does; returns
    /// its outbound association.
    pub(crate) fn carry_on_for(&mut self, removed: &Child) -> Option<Arc<SaConfig>> {
        let all = self.children.values_mut();
        let relatives: Vec<_> = all.filter(|child| child.is_relative_of(removed)).collect();
        if relatives.iter().any(|child| !child.is_standby()) {
            return None;
        }
        let youngest = relatives.into_iter().next_back()?;
        youngest.associations = youngest.associations.with_standby(false);
        Some(Arc::clone(&youngest.associations.outbound))
    }

    /// The policies that it should have: closed networks, and on top of them those of its child SAs, the youngest last.
    /// With a device of its own there are none but the closed ones, which the associations of the device satisfy; and
    /// none at all if this gateway leads nothing into the device.
    pub(crate) fn wanted(&self) -> HashMap<PolicyKey, Arc<Policy>> {
        let device = self.device.as_ref();
        let closed = self
            .networks
            .iter()
            .filter(|_| device.is_none_or(|device| device.by_networks))
            .map(|network| (&network.closed, &network.pairs));
        let open = self
            .children
            .values()
            .filter(|_| device.is_none())
            .map(|child| (&child.protection, &child.pairs));
        let name = device.map(|device| &device.name);
        let all = closed.chain(open).flat_map(|(protection, pairs)| {
            let each = pairs.iter();
            each.flat_map(|pair| protection.policies(pair, name))
        });
        all.map(|policy| ((policy.selector, policy.direction), policy))
            .collect()
    }
}
