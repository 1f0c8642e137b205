//! The devices of peers: what leaves and arrives by them.

use super::Peers;
use crate::run::ike::networks::KeyedPeer;
use crate::run::ike::selectors::Pair;
use ipsec::command::Command;
use ipsec::sa::Reqid;
use std::net::IpAddr;

impl Peers {
    /// Leads the traffic of a peer's child SAs through its device, which is another one than before, or none.
    pub(super) fn through_another_device(
        &mut self,
        name: &str,
        peer: &mut KeyedPeer,
    ) -> Vec<Command> {
        let mut numbers: Vec<(String, Vec<Pair>, Reqid)> = Vec::new();
        let mut commands = Vec::new();
        for child in peer.children.values_mut() {
            // Only pairs of the same networks serve the same policies.
            let is_alike = |known: &&(String, Vec<Pair>, Reqid)| {
                known.0 == child.name && known.1 == child.pairs
            };
            let reqid = match numbers.iter().find(is_alike) {
                Some((_, _, known)) => *known,
                None if peer.device.is_some() => self.closed_reqid(name, &child.name),
                None => self.next_reqid(),
            };
            numbers.push((child.name.clone(), child.pairs.clone(), reqid));
            let device = peer.device.as_ref().map(|device| &device.name);
            child.protection.reqid = reqid;
            child.associations = child.associations.through(device, &child.pairs, reqid);
            commands.extend(child.associations.each().map(Command::UpdateSa));
        }
        commands
    }

    /// The peer's device of this name, as the one that a packet was led into without any policy.
    pub(crate) fn with_device(&self, device: &str) -> Option<&str> {
        let mut each = self.all.iter();
        let found = each.find(|(_, peer)| {
            let own = peer.device.as_ref();
            own.is_some_and(|own| &*own.name == device && !own.by_networks)
        });
        found.map(|(name, _)| &**name)
    }

    /// The device of a peer.
    pub(crate) fn device(&self, name: &str) -> Option<&str> {
        let device = self.all.get(name)?.device.as_ref();
        device.map(|device| &*device.name)
    }

    /// The first child of a peer whose networks a packet is of.
    pub(crate) fn child_for(
        &self,
        name: &str,
        source: IpAddr,
        destination: IpAddr,
    ) -> Option<&str> {
        let networks = &self.all.get(name)?.networks;
        let fits = |pair: &Pair| pair.local.contains(source) && pair.remote.contains(destination);
        let network = networks
            .iter()
            .find(|network| network.pairs.iter().any(fits))?;
        self.named(network.closed.reqid).map(|(_, child)| child)
    }
}
