//! The peers of IKE in the databases: networks that are closed, child SAs that are installed, and the commands that
//! lead from one to the other.
//!
//! ```text
//!   configured networks ─┐
//!                        ├──► the policies that a peer should have ──► difference ──► commands ──► plane
//!   installed child SAs ─┘                                                              │
//!                          associations to add, update, delete ─────────────────────────┘
//! ```
//!
//! A [`Change`] is computed and taken over, so that the next one is computed from it; if the plane refuses it, it is
//! taken back, and everything is as it was.

mod devices;
mod lookup;
mod passing;
mod take_over;

pub(crate) use take_over::Replaced;

use super::associations::{Associations, protocol};
use super::networks::{Child, KeyedPeer, Network, PeerDevice, PolicyKey};
use super::policies::{Protection, unspecified_like};
use super::selectors::{Pair, pairs};
use crate::failure::Failure;
use ikev2::connection::{ChildMode, Connection};
use ikev2::endpoint::{ChildId, ChildSa};
use ipsec::command::Command;
use ipsec::sa::{Mode, Reqid, SaConfig, SaId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The first number of those that tie associations of peers to their policies: above those that setkey files use.
const FIRST_REQID: u32 = 1 << 30;

/// All peers.
#[derive(Default)]
pub(crate) struct Peers {
    all: BTreeMap<String, KeyedPeer>,
    /// Of each configured child the number of its closed policies, which no association has: what was narrowed away
    /// stays closed.
    closed: BTreeMap<(String, String), Reqid>,
    /// How many numbers are in use.
    reqids: u32,
    /// The child SA of each association.
    by_association: HashMap<SaId, ChildId>,
    /// The peer of each child SA.
    by_child: HashMap<ChildId, String>,
    /// The peer to which each policy belongs.
    owners: HashMap<PolicyKey, String>,
    /// The pairs that only receive, orphaned ones not counted.
    on_standby: BTreeSet<ChildId>,
}

/// Where a pair comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// An IKE SA that is there.
    Negotiated,
    /// The gateway before, with the number of its policies: its IKE SA has gone.
    PassedOn(Option<Reqid>),
}

/// What to apply, and what is true afterwards.
pub(crate) struct Change {
    /// For the plane, in this order.
    pub commands: Vec<Command>,
    name: String,
    after: KeyedPeer,
}

impl Peers {
    /// Closes the networks of a connection, new or changed; what overlaps exactly with those of another peer, or cannot
    /// be a policy, is an error.
    pub(crate) fn close(
        &mut self,
        connection: &Connection,
        device: Option<PeerDevice>,
    ) -> Result<Change, Failure> {
        let networks = connection.children.iter().map(|child| {
            let reqid = self.closed_reqid(&connection.name, &child.name);
            let offered = child.offers.first().map(|offer| offer.protocol());
            let pairs = pairs(&child.local, &child.remote)?;
            let closed = Protection {
                protocol: protocol(offered.unwrap_or(ikev2::message::payload::Protocol::ESP))?,
                mode: mode(child.mode),
                ends: configured_ends(connection),
                reqid,
            };
            Ok(Network { pairs, closed })
        });
        let networks: Result<Vec<_>, Failure> = networks.collect();
        let before = self.peer(&connection.name);
        let is_moved = before.device != device;
        let mut after = KeyedPeer {
            networks: networks
                .map_err(|why| Failure::new(format!("peer {}: {why}", connection.name)))?,
            device,
            ..before
        };
        let moved = if is_moved {
            self.through_another_device(&connection.name, &mut after)
        } else {
            Vec::new()
        };
        self.change(&connection.name, after, moved, Vec::new())
    }

    /// Removes the policies of peers that are not configured any more. Their child SAs go when IKE removes them.
    pub(crate) fn open(&self, name: &str) -> Result<Change, Failure> {
        let after = KeyedPeer {
            networks: Vec::new(),
            ..self.peer(name)
        };
        self.change(name, after, Vec::new(), Vec::new())
    }

    /// Installs a pair of child SAs.
    pub(crate) fn install(&mut self, child: &ChildSa) -> Result<Change, Failure> {
        let pairs = pairs(&child.local_traffic, &child.remote_traffic)?;
        self.add(child, pairs, Origin::Negotiated)
    }

    /// Installs a pair for these networks.
    fn add(
        &mut self,
        child: &ChildSa,
        pairs: Vec<Pair>,
        origin: Origin,
    ) -> Result<Change, Failure> {
        let (is_orphaned, passed_reqid) = match origin {
            Origin::Negotiated => (false, None),
            Origin::PassedOn(reqid) => (true, reqid),
        };
        let mut after = self.peer(&child.connection);
        // A pair that replaces another serves the same policies.
        let is_alike = |other: &&Child| {
            let is_same = other.name == child.child && other.pairs == pairs;
            is_same && other.protection.ends == (child.local, child.remote)
        };
        let alike = after.children.values().find(is_alike);
        let known = passed_reqid.or(alike.map(|other| other.protection.reqid));
        let device = after.device.as_ref().map(|device| Arc::clone(&device.name));
        let reqid = match device {
            // The policies are those of the closed networks.
            Some(_) => self.closed_reqid(&child.connection, &child.child),
            None => known.unwrap_or_else(|| self.next_reqid()),
        };
        let associations = Associations::of(child, reqid)?.through(device.as_ref(), &pairs, reqid);
        // The peer may not have the new pair yet. IKE knows nothing of orphans, by which traffic goes on until then.
        let is_same_peer = |other: &Child| other.is_orphaned && other.identity == child.peer;
        let is_carrier = |other: &Child| is_same_peer(other) && !other.is_standby();
        let carries_orphan = after.children.values().filter(is_alike).any(is_carrier);
        let associations = if carries_orphan && !is_orphaned {
            associations.with_standby(true)
        } else {
            associations
        };
        let protection = Protection {
            protocol: protocol(child.protocol)?,
            mode: mode(child.mode),
            ends: (child.local, child.remote),
            reqid,
        };
        let add = [&associations.inbound, &associations.outbound].map(Arc::clone);
        let installed = Child {
            name: child.child.clone(),
            identity: child.peer.clone(),
            pairs,
            associations,
            is_orphaned,
            protection,
        };
        after.children.insert(child.id, installed);
        // The peer can send before a policy leads into the tunnel.
        let add = add.into_iter().map(Command::AddSa).collect();
        self.change(&child.connection, after, add, Vec::new())
    }

    /// Moves the traffic of a child to this pair. The pairs that it replaced, or that replaced it, only receive; those
    /// of other networks carry on. `exists`: whether the plane still has an association.
    pub(crate) fn use_outbound(
        &self,
        id: ChildId,
        exists: impl Fn(&SaId) -> bool,
    ) -> Result<Change, Failure> {
        let name = self
            .by_child
            .get(&id)
            .ok_or_else(|| Failure::new("it is not installed"))?;
        let mut after = self.peer(name);
        let own = after
            .children
            .get(&id)
            .ok_or_else(|| Failure::new("it is not installed"))?
            .clone();
        let mut commands = Vec::new();
        for (other, child) in after.children.iter_mut() {
            // Not only what it replaced: of two pairs that replaced the same one, the other may carry.
            let is_standby = other != id;
            if child.is_relative_of(&own) && child.is_standby() != is_standby {
                child.associations = child.associations.with_standby(is_standby);
                let outbound = &child.associations.outbound;
                if other != id && !exists(&outbound.id) {
                    continue;
                }
                let update = Command::UpdateSa(Arc::clone(outbound));
                // First the one that carries on, so that there is always one.
                let place = if is_standby { commands.len() } else { 0 };
                commands.insert(place, update);
            }
        }
        self.change(name, after, commands, Vec::new())
    }

    /// Removes these pairs, which belong to one peer. Should traffic still leave by one of them, because the plane has
    /// refused to move it, it leaves by the youngest pair that has replaced it. `exists`: whether the plane still has
    /// an association.
    pub(crate) fn remove(
        &self,
        name: &str,
        ids: &[ChildId],
        exists: impl Fn(&SaId) -> bool,
    ) -> Result<Change, Failure> {
        let mut after = self.peer(name);
        let gone = ids.iter().filter_map(|id| after.children.remove(id));
        let gone: Vec<_> = gone.collect();
        let carriers = gone.iter().filter(|child| !child.is_standby());
        let carry_on = carriers.filter_map(|carrier| after.carry_on_for(carrier));
        let carry_on = carry_on.filter(|outbound| exists(&outbound.id));
        let carry_on = carry_on.map(Command::UpdateSa).collect();
        let gone = gone.into_iter();
        let gone = gone.flat_map(|child| [child.associations.outbound, child.associations.inbound]);
        let delete = |config: Arc<SaConfig>| Command::DeleteSa {
            id: config.id,
            source: config.source,
        };
        let gone = gone
            .filter(|config| exists(&config.id))
            .map(delete)
            .collect();
        self.change(name, after, carry_on, gone)
    }

    /// Moves the associations of a peer to its new address, from which an authentic message has come. Those whose
    /// address stays only get the new port. `numbers`: the highest sequence number so far, and when the association was
    /// added.
    pub(crate) fn move_to(
        &self,
        name: &str,
        ids: &[ChildId],
        remote: SocketAddr,
        numbers: impl Fn(&SaId) -> Option<u64>,
    ) -> Result<Change, Failure> {
        let mut after = self.peer(name);
        let mut commands = Vec::new();
        for id in ids {
            let Some(child) = after.children.get_mut(id) else {
                continue;
            };
            let old = child.associations.clone();
            child.associations = old.moved_to(remote, &numbers);
            child.protection.ends.1 = remote.ip();
            for (old, new) in old.each().into_iter().zip(child.associations.each()) {
                if (old.id, old.source) == (new.id, new.source) {
                    commands.push(Command::UpdateSa(new));
                } else {
                    let (id, source) = (old.id, old.source);
                    commands.extend([Command::DeleteSa { id, source }, Command::AddSa(new)]);
                }
            }
        }
        self.change(name, after, commands, Vec::new())
    }

    /// IKE has gone, and with it what it knew about every pair.
    pub(crate) fn orphan(&mut self) {
        let peers = self.all.values_mut();
        for child in peers.flat_map(|peer| peer.children.values_mut()) {
            child.is_orphaned = true;
        }
        self.on_standby.clear();
    }

    /// The orphaned pairs that this new one replaces: of the same peer by its proven identity, and of the same child.
    pub(crate) fn orphans_before(&self, child: &ChildSa) -> Vec<ChildId> {
        let peer = self.all.get(&child.connection);
        let children = peer.into_iter().flat_map(|peer| peer.children.iter());
        let is_before = |(_, old): &(ChildId, &Child)| {
            old.is_orphaned && old.identity == child.peer && old.name == child.child
        };
        children.filter(is_before).map(|(id, _)| id).collect()
    }

    fn peer(&self, name: &str) -> KeyedPeer {
        self.all.get(name).cloned().unwrap_or_default()
    }

    fn closed_reqid(&mut self, connection: &str, child: &str) -> Reqid {
        let key = (connection.to_owned(), child.to_owned());
        match self.closed.get(&key) {
            Some(known) => *known,
            None => {
                let next = self.next_reqid();
                self.closed.insert(key, next);
                next
            }
        }
    }

    fn next_reqid(&mut self) -> Reqid {
        self.reqids = self.reqids.wrapping_add(1) % FIRST_REQID;
        Reqid(FIRST_REQID + self.reqids)
    }

    /// `first`, then the policies, then `last`.
    fn change(
        &self,
        name: &str,
        mut after: KeyedPeer,
        first: Vec<Command>,
        last: Vec<Command>,
    ) -> Result<Change, Failure> {
        let wanted = after.wanted();
        let taken = |key: &&PolicyKey| self.owners.get(*key).is_some_and(|owner| owner != name);
        if let Some(key) = wanted.keys().find(taken) {
            return Err(Failure::new(format!(
                "peer {name}: {} belongs to peer {} already: give them different networks, or `routes = \"none\"` in \
                 both, in `mode = \"route\"`, and routes of your own",
                crate::events::selector_text(&key.0),
                self.owners[key],
            )));
        }
        let mut commands = first;
        let mut news: Vec<_> = wanted
            .iter()
            .filter(|(key, policy)| after.policies.get(key) != Some(policy))
            .map(|(_, policy)| policy)
            .collect();
        news.sort_by_cached_key(|policy| crate::events::selector_text(&policy.selector));
        commands.extend(news.into_iter().cloned().map(Command::UpdatePolicy));
        let gone = after
            .policies
            .keys()
            .filter(|key| !wanted.contains_key(key));
        commands.extend(gone.map(|&(selector, direction)| Command::DeletePolicy {
            selector,
            direction,
        }));
        commands.extend(last);
        after.policies = wanted;
        Ok(Change {
            commands,
            name: name.to_owned(),
            after,
        })
    }
}

fn mode(mode: ChildMode) -> Mode {
    match mode {
        ChildMode::Tunnel => Mode::Tunnel,
        ChildMode::Transport => Mode::Transport,
    }
}

/// The outer addresses as far as they are configured.
fn configured_ends(connection: &Connection) -> (IpAddr, IpAddr) {
    let unknown = unspecified_like(IpAddr::from([0; 4]));
    match (connection.local.first(), connection.remote.first()) {
        (Some(local), Some(remote)) => (*local, *remote),
        (Some(local), None) => (*local, unspecified_like(*local)),
        (None, Some(remote)) => (unspecified_like(*remote), *remote),
        (None, None) => (unknown, unknown),
    }
}

#[cfg(test)]
mod tests;
