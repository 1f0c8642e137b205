//! What other programs have removed of a gateway's associations and policies, and how it is restored.

use super::super::policy::{self, PolicyName};
use super::compare::{is_the_same, sa_of};
use super::{HeldPolicy, HeldSa, KernelDatabases};
use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaId};
use netlink_packet_xfrm::policy::ModifyMessage as ModifyPolicy;
use std::collections::HashMap;
use std::io;

/// Sequence numbers that an association which another program has deleted may have used since the counters were last
/// read, a second ago.
const MAX_NUMBERS_SINCE_READ: u64 = 1 << 22;

impl KernelDatabases {
    /// What is missing, as text.
    pub(crate) fn missing(&mut self) -> io::Result<Vec<String>> {
        let mut words = Vec::new();
        match self.lost_sas()?.len() {
            0 => {}
            1 => words.push("an association deleted or changed in the kernel".to_owned()),
            count => words.push(format!(
                "{count} associations deleted or changed in the kernel"
            )),
        }
        match self.lost_policies()?.len() {
            0 => {}
            1 => words.push("a policy deleted or changed in the kernel".to_owned()),
            count => words.push(format!("{count} policies deleted or changed in the kernel")),
        }
        Ok(words)
    }

    /// Adds again what is missing, in the place of what was changed. An association goes on behind every number that it
    /// may have used meanwhile.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        for name in self.lost_policies()? {
            self.remove_policy(name)?;
        }
        for id in self.lost_sas()? {
            let Some(held) = self.sas.remove(&id) else {
                continue;
            };
            Self::go_on_behind(&held.sa);
            self.delete(&id)?;
        }
        self.put_again(snapshot)?;
        self.remove_strays()
    }

    /// Removes what another program has made of this gateway's associations: with other ends they have another name.
    fn remove_strays(&mut self) -> io::Result<()> {
        let listed: Vec<_> = self
            .list_sas()?
            .iter()
            .filter_map(sa_of)
            .map(|(id, _)| id)
            .collect();
        let is_stray = |id: &SaId| {
            !self.sas.contains_key(id) && !self.left.contains(id) && !self.passed_on.contains(id)
        };
        let strays: Vec<_> = listed.into_iter().filter(is_stray).collect();
        strays.iter().try_for_each(|id| self.delete(id))
    }

    /// Has an association that the kernel has lost go on behind every number that it may have used.
    pub(super) fn go_on_behind(sa: &Sa) {
        let (config, state) = (&sa.config, &sa.state);
        let kept = state.saved();
        if kept.sent > 0 {
            let behind = kept.sent.saturating_add(MAX_NUMBERS_SINCE_READ);
            state.raise(config, behind.min(config.last_number()), kept.edge);
        }
    }

    /// One whose life is over has been removed by the kernel itself.
    fn lost_sas(&mut self) -> io::Result<Vec<SaId>> {
        let answers = self.list_sas()?;
        let there: HashMap<_, _> = answers.iter().filter_map(sa_of).collect();
        let is_there = |id: &SaId, held: &HeldSa| {
            let found = there.get(id);
            found.is_some_and(|found| is_the_same(found, &held.sa.config, held.direction))
        };
        let ours = self.sas.iter();
        let lost = ours.filter(|(id, held)| !held.sa.state.is_dead() && !is_there(id, held));
        Ok(lost.map(|(id, _)| *id).collect())
    }

    fn lost_policies(&mut self) -> io::Result<Vec<PolicyName>> {
        let there = self.listed_policies(|name, _, found| (name, found.clone()))?;
        let there: HashMap<_, _> = there.into_iter().collect();
        let is_there = |name: &PolicyName, held: &HeldPolicy| {
            there.get(name).is_some_and(|found| held.is_still(found))
        };
        let ours = self.policies.iter();
        let lost = ours.filter(|(name, held)| !is_there(name, held));
        Ok(lost.map(|(name, _)| *name).collect())
    }
}

impl HeldPolicy {
    /// Whether the kernel's policy is what was put there. Of an earlier gateway's it is not known.
    fn is_still(&self, found: &ModifyPolicy) -> bool {
        let Some(policy) = &self.policy else {
            return true;
        };
        let mut wanted = policy::emit_enforced(policy);
        self.served.put_into(&mut wanted);
        policy::is_the_same(found, &wanted)
    }
}
