//! Associations and policies that the kernel is to have no more. What it has sent and opened by an association until
//! the very moment of its deletion, its notification of that says.

use super::super::association;
use super::super::last_states::LastStates;
use super::super::zeroizing::ZeroizingMessage;
use super::KernelDatabases;
use super::compare::{is_the_same, sa_of};
use super::counters;
use super::errors::{about_sa, is_absent};
use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaId};
use netlink_packet_xfrm::XfrmMessage;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

impl KernelDatabases {
    /// Removes the associations; policies stay, so that nothing passes in clear. The first refusal is returned.
    pub(crate) fn remove_sas(&mut self) -> io::Result<()> {
        self.read_leftovers()?;
        let left = self.remove_left();
        let ids: Vec<_> = self.sas.keys().copied().collect();
        let mut last = LastStates::listen()?;
        let removed = ids.iter().map(|id| self.remove_sa_heard(id, &mut last));
        removed.fold(left, io::Result::and)
    }

    /// Removes everything that an earlier gateway of this site has left. Associations that the snapshot has too go on
    /// behind its numbers, and have all of them from then on; `local` are this host's addresses.
    pub(crate) fn remove_what_is_left(
        &mut self,
        snapshot: &Snapshot,
        local: &[IpAddr],
    ) -> io::Result<()> {
        self.begin(local)?;
        for answer in self.list_sas()? {
            let Some((id, message)) = sa_of(&answer) else {
                continue;
            };
            let Some(sa) = snapshot.find(&id).map(|place| snapshot.sa(place)) else {
                continue;
            };
            if is_the_same(message, &sa.config, self.direction(sa)) {
                self.delete_and_learn(sa)?
            } else {
                self.delete(&id)?
            }
            self.left.remove(&id);
            sa.state.own_all_numbers();
        }
        self.remove_all()
    }

    /// Removes everything that is this gateway's, or an earlier one's of this site.
    pub(crate) fn remove_all(&mut self) -> io::Result<()> {
        self.remove_sas()?;
        let names: Vec<_> = self.policies.keys().copied().collect();
        names
            .into_iter()
            .try_for_each(|name| self.remove_policy(name))
    }

    /// Its last numbers are those of the moment from which on the kernel seals nothing by it.
    pub(super) fn remove_sa(&mut self, id: &SaId) -> io::Result<()> {
        self.remove_sa_heard(id, &mut LastStates::listen()?)
    }

    /// The same where deletions are listened to already.
    pub(super) fn remove_sa_heard(&mut self, id: &SaId, last: &mut LastStates) -> io::Result<()> {
        let Some(held) = self.sas.get(id) else {
            return Ok(());
        };
        let sa = Arc::clone(&held.sa);
        match self.delete_and_hear(id, last)? {
            Some(last) => {
                if let Some((_, message)) = sa_of(&last) {
                    self.observe(id, message);
                }
            }
            // Another program has deleted it, or its life is over.
            None => Self::go_on_behind(&sa),
        }
        self.sas.remove(id);
        Ok(())
    }

    /// Deletes one that an earlier gateway has left. This association goes on behind its numbers.
    pub(super) fn delete_and_learn(&mut self, sa: &Sa) -> io::Result<()> {
        let last = self.delete_and_tell(&sa.config.id)?;
        if let Some((_, message)) = last.as_ref().and_then(sa_of) {
            let numbers = counters::read(message);
            let config = &sa.config;
            let sent = numbers.sent.min(config.last_number());
            let edge = numbers.edge.min(config.last_number());
            sa.state.raise(config, sent, edge);
        }
        Ok(())
    }

    /// Deletes one, and returns it as it was at that moment, as the kernel's notification has it.
    pub(super) fn delete_and_tell(&mut self, id: &SaId) -> io::Result<Option<ZeroizingMessage>> {
        self.delete_and_hear(id, &mut LastStates::listen()?)
    }

    fn delete_and_hear(
        &mut self,
        id: &SaId,
        last: &mut LastStates,
    ) -> io::Result<Option<ZeroizingMessage>> {
        self.delete(id)?;
        let mut ended = last.take().into_iter();
        Ok(ended
            .find(|(ended, _)| ended == id)
            .map(|(_, message)| message))
    }

    pub(super) fn remove_left(&mut self) -> io::Result<()> {
        for id in std::mem::take(&mut self.left) {
            self.delete(&id)?;
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, id: &SaId) -> io::Result<()> {
        let message = XfrmMessage::DeleteSa(association::named(id));
        match self.kernel.change(&ZeroizingMessage::new(message)) {
            Err(refusal) if !is_absent(&refusal) => Err(about_sa(id, &refusal)),
            _ => Ok(()),
        }
    }
}
