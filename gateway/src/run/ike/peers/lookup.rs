//! Which pairs there are, and whose an association or a policy is.

use super::super::networks::Child;
use super::Peers;
use ikev2::endpoint::ChildId;
use ipsec::sa::{Reqid, SaId};
use std::net::IpAddr;

impl Peers {
    /// The pairs that only receive, orphaned ones not counted: new ones that wait for their first packet, and old ones.
    pub(crate) fn on_standby(&self) -> impl Iterator<Item = &ChildId> {
        self.on_standby.iter()
    }

    /// An installed pair.
    pub(crate) fn child(&self, id: ChildId) -> Option<&Child> {
        let peer = self.all.get(self.by_child.get(&id)?)?;
        peer.children.get(&id)
    }

    /// Every installed pair, with the name of its peer.
    pub(crate) fn children(&self) -> impl Iterator<Item = (&str, ChildId, &Child)> {
        self.all.iter().flat_map(|(name, peer)| {
            let each = peer.children.iter();
            each.map(|(id, child)| (&**name, id, child))
        })
    }

    /// The installed pairs of a peer.
    pub(crate) fn children_of(&self, name: &str) -> impl Iterator<Item = (ChildId, &Child)> {
        let peer = self.all.get(name);
        peer.into_iter().flat_map(|peer| peer.children.iter())
    }

    /// Where the peer of the youngest orphaned pair was last: its address, and its port if ESP is in UDP.
    pub(crate) fn last_seen_at(&self, name: &str) -> Option<(IpAddr, Option<u16>)> {
        let orphans = self
            .children_of(name)
            .filter(|(_, child)| child.is_orphaned);
        let (_, youngest) = orphans.max_by_key(|(id, _)| *id)?;
        let outbound = &youngest.associations.outbound;
        let port = outbound.encapsulation.map(|udp| udp.destination_port);
        Some((outbound.id.destination, port))
    }

    /// The peer of an installed pair.
    pub(crate) fn peer_of(&self, id: ChildId) -> Option<&str> {
        self.by_child.get(&id).map(String::as_str)
    }

    /// Whether outbound traffic is still to move to a pair.
    pub(crate) fn stands_by(&self, id: ChildId) -> bool {
        self.child(id).is_some_and(Child::is_standby)
    }

    /// The pair to which an association belongs.
    pub(crate) fn child_of(&self, id: &SaId) -> Option<ChildId> {
        self.by_association.get(id).copied()
    }

    /// The pair that receives by this association, unless it is an orphan.
    pub(crate) fn received_by(&self, id: &SaId) -> Option<ChildId> {
        let child = self.child_of(id)?;
        let known = self.child(child)?;
        let receives = known.associations.inbound.id == *id && !known.is_orphaned;
        receives.then_some(child)
    }

    /// The peer and child whose closed policies have this number.
    pub(crate) fn named(&self, reqid: Reqid) -> Option<(&str, &str)> {
        let mut each = self.closed.iter();
        let found = each.find(|(_, known)| **known == reqid);
        found.map(|((peer, child), _)| (&**peer, &**child))
    }
}
