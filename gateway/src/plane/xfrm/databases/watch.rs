//! What other programs have removed of a gateway's associations and policies, and how it is restored.

use super::super::policy::PolicyName;
use super::KernelDatabases;
use super::compare::sa_of;
use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaId};
use std::collections::HashSet;
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
            1 => words.push("an association deleted from the kernel".to_owned()),
            count => words.push(format!("{count} associations deleted from the kernel")),
        }
        match self.lost_policies()?.len() {
            0 => {}
            1 => words.push("a policy deleted from the kernel".to_owned()),
            count => words.push(format!("{count} policies deleted from the kernel")),
        }
        Ok(words)
    }

    /// Adds again what is missing. An association goes on behind every number that it may have used meanwhile.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        for name in self.lost_policies()? {
            self.forget_policy(name);
        }
        for id in self.lost_sas()? {
            let Some(held) = self.sas.remove(&id) else {
                continue;
            };
            Self::go_on_behind(&held.sa);
        }
        self.put_again(snapshot)
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
        let there: HashSet<_> = answers.iter().filter_map(sa_of).map(|(id, _)| id).collect();
        let ours = self.sas.iter();
        let lost = ours.filter(|(id, held)| !there.contains(id) && !held.sa.state.is_dead());
        Ok(lost.map(|(id, _)| *id).collect())
    }

    fn lost_policies(&mut self) -> io::Result<Vec<PolicyName>> {
        let there = self.listed_policies(|name, _, _| name)?;
        let there: HashSet<_> = there.into_iter().collect();
        let ours = self.policies.keys();
        Ok(ours.filter(|name| !there.contains(name)).copied().collect())
    }
}
