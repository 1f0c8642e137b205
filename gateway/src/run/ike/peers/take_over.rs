//! What is true of the peers after a change, and how it is found: by pair, by association and by policy.

use super::super::networks::KeyedPeer;
use super::{Change, Peers};

/// What a change has replaced, to be put back if the plane refuses it.
pub(crate) struct Replaced {
    name: String,
    before: KeyedPeer,
}

impl Peers {
    /// Takes over what the plane has applied, or what it is about to be given together with later changes.
    pub(crate) fn take_over(&mut self, change: Change) -> Replaced {
        let Change { name, after, .. } = change;
        let before = self.peer(&name);
        self.put(&name, &before, after);
        Replaced { name, before }
    }

    /// Takes changes back that the plane has refused: all that were taken over since, oldest first.
    pub(crate) fn take_back(&mut self, changes: Vec<Replaced>) {
        for Replaced { name, before } in changes.into_iter().rev() {
            let now = self.peer(&name);
            self.put(&name, &now, before);
        }
    }

    fn put(&mut self, name: &str, before: &KeyedPeer, after: KeyedPeer) {
        for key in before.policies.keys() {
            self.owners.remove(key);
        }
        let keys = after.policies.keys();
        self.owners.extend(keys.map(|key| (*key, name.to_owned())));
        for (id, child) in before.children.iter() {
            self.by_child.remove(&id);
            self.on_standby.remove(&id);
            for config in child.associations.both() {
                self.by_association.remove(&config.id);
            }
        }
        for (id, child) in after.children.iter() {
            self.by_child.insert(id, name.to_owned());
            if child.associations.outbound.is_standby && !child.is_orphaned {
                self.on_standby.insert(id);
            }
            for config in child.associations.both() {
                self.by_association.insert(config.id, id);
            }
        }
        if after.networks.is_empty() && after.children.is_empty() {
            self.all.remove(name);
        } else {
            self.all.insert(name.to_owned(), after);
        }
    }
}
