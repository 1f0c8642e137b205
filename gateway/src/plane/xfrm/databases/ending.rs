//! What ends in the kernel while packets flow, in groups: our own data plane goes on with each group as soon as it has
//! ended, while the kernel still carries the others.
//!
//! ```text
//!   leaving    `out` policies, the last one of the search first, each with the associations that none before it uses
//!   arriving   the associations of a bundle, the outermost first: the kernel opens packets whole or not at all
//! ```

use super::super::last_states::{LastStates, replay_of};
use super::super::policy::PolicyName;
use super::KernelDatabases;
use super::compare::sa_of;
use super::counters;
use super::moving::is_seen;
use super::search_order::last_of_the_search_first;
use ipsec::database::Snapshot;
use ipsec::policy::{Direction, Policy};
use ipsec::sa::{Sa, SaId};
use netlink_packet_xfrm::state::ModifyMessage;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// `out` policies that end together, and their associations: no other policy's packets leave by these.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SealingGroup {
    /// Each with what the kernel has in its place, if anything.
    policies: Vec<(PolicyName, Option<Arc<Policy>>)>,
    sas: Vec<SaId>,
}

impl KernelDatabases {
    /// The `out` policies whose packets our own data plane is to seal, and all associations by which nothing arrives
    /// but those of IKE, in the order in which they end: of two policies that select the same packet the one that
    /// applies ends last, so that none of its packets is sealed by the other. While the kernel keeps others, one that
    /// ends is replaced by one that lets its packets pass.
    pub(crate) fn sealing_groups(&self, snapshot: &Snapshot) -> Vec<SealingGroup> {
        let parted = self.parted(snapshot);
        let mut known = HashMap::new();
        for (policy, paths) in snapshot.outbound_paths() {
            let sas = paths.flatten().map(|index| snapshot.sa(*index).config.id);
            known.insert(policy.selector, (policy, sas.collect::<Vec<_>>()));
        }
        // What is there already stays.
        let stays = |name: &PolicyName| {
            let policy = known.get(&name.selector).map(|(policy, _)| *policy);
            let both = parted.as_ref().zip(policy);
            both.is_some_and(|(parted, policy)| {
                parted.of_the_kernel(policy).as_ref() == Some(policy)
            })
        };
        let held = self.policies.keys().copied();
        let names = held.filter(|name| name.direction == Direction::Out && !stays(name));
        let names = last_of_the_search_first(names.collect(), snapshot).into_iter();
        let policies = names.map(|name| {
            let Some((policy, sas)) = known.get(&name.selector) else {
                return (name, None, Vec::new());
            };
            let parted = parted.as_ref();
            let in_place = parted.and_then(|parted| parted.of_the_kernel(policy));
            (name, in_place, sas.clone())
        });
        grouped(policies.collect(), &self.leaving(false))
    }

    /// Ends a group: from now on the kernel seals nothing of it. Its associations, which know the kernel's last
    /// numbers, are returned; also those of a group of which the rest could not be ended.
    pub(crate) fn end_sealing(
        &mut self,
        group: &SealingGroup,
        last: &mut LastStates,
        ended: &mut Vec<Arc<Sa>>,
    ) -> io::Result<()> {
        for (name, in_place) in &group.policies {
            match in_place {
                Some(policy) => self.put_policy(policy)?,
                None => self.remove_policy(*name)?,
            }
        }
        for id in &group.sas {
            let sa = self.sa(id).cloned();
            self.remove_sa_heard(id, last)?;
            ended.extend(sa);
        }
        Ok(())
    }

    /// The bundles by which packets arrive that the kernel opens, but those of IKE.
    pub(crate) fn opening_bundles(&self, snapshot: &Snapshot) -> Vec<Vec<Arc<Sa>>> {
        let arriving: HashSet<_> = self.leaving(true).into_iter().collect();
        snapshot.bundles_of(|id| arriving.contains(id))
    }

    /// Ends one inbound association. What it has opened, up to the last packet, is what our own data plane does not
    /// open again. If the kernel does not report its last window, that is an error: packets could be opened a second
    /// time.
    pub(crate) fn end_opening(&mut self, id: &SaId, last: &mut LastStates) -> io::Result<()> {
        let Some(held) = self.sas.get(id) else {
            return Ok(());
        };
        let sa = Arc::clone(&held.sa);
        self.delete(id)?;
        let ended = last.take();
        let own = ended.iter().find(|(ended, _)| ended == id);
        let message = own.and_then(|(_, answer)| sa_of(answer));
        let Some((_, message)) = message else {
            // Our threads open nothing by it either, until all has been put back.
            self.sas.remove(id);
            return Err(unreported(id));
        };
        self.take_over_window(&sa, message);
        Ok(())
    }

    /// The same for associations by which no packet reaches the kernel any more, because our sockets take them: their
    /// windows are read all at once. Their deletion is left to [`KernelDatabases::delete_the_rest`].
    pub(crate) fn take_over_windows(&mut self, sas: &[Arc<Sa>]) -> io::Result<()> {
        if sas.is_empty() {
            return Ok(());
        }
        let listed = self.list_sas()?;
        let listed: HashMap<_, _> = listed.iter().filter_map(sa_of).collect();
        for sa in sas {
            let id = sa.config.id;
            let Some(message) = listed.get(&id) else {
                self.sas.remove(&id);
                return Err(unreported(&id));
            };
            self.take_over_window(sa, message);
            self.left.insert(id);
        }
        Ok(())
    }

    /// Deletes what was taken over before it was deleted.
    pub(crate) fn delete_the_rest(&mut self) -> io::Result<()> {
        self.remove_left()
    }

    fn take_over_window(&mut self, sa: &Arc<Sa>, message: &ModifyMessage) {
        let id = sa.config.id;
        let given = self.sas.get(&id).map_or(0, |held| held.before.edge);
        let edge = counters::read(message).edge;
        let seen = replay_of(&message.nlas);
        let is_seen = |number| seen.is_none_or(|seen| is_seen(seen, edge, number));
        sa.state.take_over_window(&sa.config, given, edge, is_seen);
        // Numbers that were only given to the kernel are not used by that.
        let mut numbers = counters::read(message);
        numbers.edge = numbers.edge.min(sa.state.saved().edge);
        self.observe_numbers(&id, message, numbers);
        self.sas.remove(&id);
    }

    /// Those of one direction that are not the kernel's any more.
    fn leaving(&self, is_inbound: bool) -> Vec<SaId> {
        let mut ids = self.ids(is_inbound);
        ids.retain(|id| self.parting.is_none() || !self.is_kernels(id));
        ids
    }
}

fn unreported(id: &SaId) -> io::Error {
    let told = format!(
        "the kernel did not report the last replay window of SPI {}",
        id.spi
    );
    io::Error::other(told)
}

/// Policies in the order in which they end, each with what comes in its place and with the associations by which its
/// packets leave: cut wherever no association is used on both sides of the cut. Associations of `all` that none uses
/// end last.
fn grouped(
    policies: Vec<(PolicyName, Option<Arc<Policy>>, Vec<SaId>)>,
    all: &[SaId],
) -> Vec<SealingGroup> {
    let mut last_use = HashMap::new();
    for (place, (_, _, sas)) in policies.iter().enumerate() {
        last_use.extend(sas.iter().map(|id| (*id, place)));
    }
    let mut left: HashSet<_> = all.iter().copied().collect();
    let (mut groups, mut group, mut until) = (Vec::new(), SealingGroup::default(), 0);
    for (place, (name, in_place, sas)) in policies.into_iter().enumerate() {
        group.policies.push((name, in_place));
        for id in sas {
            until = until.max(last_use.get(&id).copied().unwrap_or(place));
            if left.remove(&id) {
                group.sas.push(id);
            }
        }
        if until <= place {
            groups.push(std::mem::take(&mut group));
        }
    }
    let unused = all.iter().filter(|id| left.contains(id));
    group.sas.extend(unused);
    if !group.sas.is_empty() {
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::policy::{Prefix, Selector, Upper};
    use ipsec::sa::{Protocol, Spi};
    use std::net::{IpAddr, Ipv4Addr};

    fn id(spi: u32) -> SaId {
        SaId {
            destination: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
            protocol: Protocol::Esp,
            spi: Spi::new(spi).unwrap(),
        }
    }

    /// Policies with these associations, in the order in which they end; and the groups, as places and SPIs.
    fn groups(policies: &[&[u32]], all: &[u32]) -> Vec<(usize, Vec<u32>)> {
        let any = Prefix {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            len: 0,
        };
        let name = PolicyName {
            direction: Direction::Out,
            selector: Selector {
                source: any,
                destination: any,
                upper: Upper::Any,
            },
            interface_id: 0,
        };
        let policies = policies.iter();
        let policies = policies.map(|spis| (name, None, spis.iter().map(|spi| id(*spi)).collect()));
        let all: Vec<_> = all.iter().map(|spi| id(*spi)).collect();
        let groups = grouped(policies.collect(), &all).into_iter();
        let each = groups.map(|group| {
            let spis = group.sas.iter().map(|id| id.spi.get());
            (group.policies.len(), spis.collect())
        });
        each.collect()
    }

    #[test]
    fn policies_with_associations_of_their_own_end_one_after_the_other() {
        assert_eq!(
            groups(&[&[300], &[301, 302], &[], &[303]], &[300, 301, 302, 303]),
            [
                (1, vec![300]),
                (1, vec![301, 302]),
                (1, vec![]),
                (1, vec![303])
            ]
        );
    }

    #[test]
    fn policies_that_share_an_association_end_together_with_those_between_them() {
        assert_eq!(
            groups(&[&[300], &[301], &[300], &[302]], &[300, 301, 302]),
            [(3, vec![300, 301]), (1, vec![302])]
        );
        assert_eq!(
            groups(&[&[300], &[300, 301], &[301]], &[300, 301]),
            [(3, vec![300, 301])]
        );
    }

    #[test]
    fn an_association_that_no_policy_uses_ends_last_and_one_of_another_plane_not_at_all() {
        assert_eq!(
            groups(&[&[300], &[999]], &[300, 301]),
            [(1, vec![300]), (1, vec![]), (0, vec![301])]
        );
        assert_eq!(groups(&[], &[]), []);
    }
}
