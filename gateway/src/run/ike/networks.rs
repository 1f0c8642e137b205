//! One peer: what is configured about its networks, and the child SAs that are installed.

use super::associations::Associations;
use super::policies::Protection;
use super::selectors::Pair;
use ikev2::endpoint::ChildId;
use ipsec::policy::{Direction, Policy, Prefix, Selector};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What names a policy.
pub(crate) type PolicyKey = (Selector, Direction);

/// One peer.
#[derive(Clone, Default)]
pub(crate) struct KeyedPeer {
    /// Its configured traffic.
    pub networks: Vec<Network>,
    /// Its installed pairs.
    pub children: BTreeMap<ChildId, Child>,
    /// Its policies in force.
    pub policies: HashMap<PolicyKey, Arc<Policy>>,
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
    /// The pair that it replaced.
    pub replaces: Option<ChildId>,
    /// Whether the IKE SA that negotiated it has gone with its process.
    pub is_orphaned: bool,
    /// Its traffic.
    pub pairs: Vec<Pair>,
    /// What its policies demand.
    pub protection: Protection,
}

impl Child {
    /// Its pairs of networks, each prefix as `text` writes it.
    pub(crate) fn networks(&self, text: impl Fn(Prefix) -> String) -> Vec<(String, String)> {
        let pairs = self.pairs.iter();
        pairs
            .map(|pair| (text(pair.local), text(pair.remote)))
            .collect()
    }
}

impl KeyedPeer {
    /// The policies that it should have: closed networks, and on top of them those of its child SAs, the youngest last.
    pub(crate) fn wanted(&self) -> HashMap<PolicyKey, Arc<Policy>> {
        let closed = self
            .networks
            .iter()
            .map(|network| (&network.closed, &network.pairs));
        let open = self
            .children
            .values()
            .map(|child| (&child.protection, &child.pairs));
        let all = closed.chain(open).flat_map(|(protection, pairs)| {
            let each = pairs.iter();
            each.flat_map(|pair| protection.policies(pair))
        });
        all.map(|policy| ((policy.selector, policy.direction), policy))
            .collect()
    }
}
