//! Beside our own data plane: the kernel has a part of the associations and policies while a gateway moves.

use super::super::policy::PolicyName;
use super::KernelDatabases;
use super::moving::as_optional;
use crate::plane::Parting;
use ipsec::database::Snapshot;
use ipsec::policy::{Action, Direction, Policy, Selector};
use ipsec::sa::SaId;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

impl KernelDatabases {
    /// From now on the kernel has what this says, or everything.
    pub(crate) fn part(&mut self, parting: Option<Arc<Parting>>) {
        self.parting = parting;
    }

    /// Whether an association is the kernel's.
    pub(super) fn is_kernels(&self, id: &SaId) -> bool {
        let parting = self.parting.as_ref();
        parting.is_none_or(|parting| parting.is_kernels(id))
    }

    /// Which `out` policies are those of our own data plane, while there is a division at all.
    pub(super) fn parted(&self, snapshot: &Snapshot) -> Option<Parted> {
        let parting = self.parting.as_ref()?;
        Some(Parted {
            of_users: parting.sealed_by_user(snapshot),
            is_side_by_side: parting.left(snapshot).next().is_some(),
        })
    }

    /// The policies that the kernel is to have of these, and their names. What our own data plane has opened passes its
    /// `in` and `fwd` policies as well. One whose packets the kernel seals until now stays as it is until our threads
    /// have what seals them ([`KernelDatabases::remove_others`]).
    pub(super) fn of_the_kernel(
        &self,
        snapshot: &Snapshot,
        policies: Vec<Arc<Policy>>,
        mut names: HashSet<PolicyName>,
    ) -> (Vec<Arc<Policy>>, HashSet<PolicyName>) {
        let Some(parted) = self.parted(snapshot) else {
            return (policies, names);
        };
        names.retain(|name| name.direction != Direction::Out || parted.has(&name.selector));
        let seals = |policy: &Policy| {
            let held = self.policies.get(&PolicyName::of(policy));
            let held = held.and_then(|held| held.policy.as_ref());
            held.is_some_and(|held| matches!(held.action, Action::Protect(_)))
        };
        let each = policies
            .into_iter()
            .filter_map(|policy| match policy.direction {
                Direction::Out if parted.lets_pass(&policy) && seals(&policy) => None,
                Direction::Out => parted.of_the_kernel(&policy),
                Direction::In | Direction::Fwd => Some(Arc::new(as_optional(&policy))),
            });
        (each.collect(), names)
    }

    /// From now on the kernel lets pass to our threads what these seal.
    pub(super) fn let_pass(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let Some(parted) = self.parted(snapshot) else {
            return Ok(());
        };
        for (_, policy) in snapshot.policies(Direction::Out) {
            if parted.lets_pass(policy) {
                self.put_policy(&Arc::new(as_passing(policy)))?;
            }
        }
        Ok(())
    }
}

/// The `out` policies of both planes.
pub(super) struct Parted {
    /// Selectors of those that are our own data plane's.
    of_users: HashSet<Selector>,
    /// Whether the kernel still has `out` policies of IKE. Then it keeps every `out` policy: without the policy that
    /// applies to a packet of the user plane, a wider policy of another peer would.
    is_side_by_side: bool,
}

impl Parted {
    /// Whether the kernel has a policy of this selector.
    fn has(&self, selector: &Selector) -> bool {
        self.is_side_by_side || !self.of_users.contains(selector)
    }

    /// Whether the kernel has a policy that lets pass to our threads what they seal.
    fn lets_pass(&self, policy: &Policy) -> bool {
        let seals = matches!(policy.action, Action::Protect(_));
        self.is_side_by_side && seals && self.of_users.contains(&policy.selector)
    }

    /// A policy as the kernel has it. What is neither sealed nor opened means the same on both planes.
    pub(super) fn of_the_kernel(&self, policy: &Arc<Policy>) -> Option<Arc<Policy>> {
        if self.lets_pass(policy) {
            return Some(Arc::new(as_passing(policy)));
        }
        self.has(&policy.selector).then(|| Arc::clone(policy))
    }
}

/// The policy in whose place packets are sealed behind the TUN device.
fn as_passing(policy: &Policy) -> Policy {
    Policy {
        action: Action::Bypass,
        spread: 1,
        ..policy.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::command::Command;
    use ipsec::setkey::{Forwarding, NoNames, compile};

    fn policies() -> Vec<Arc<Policy>> {
        let text = "spdadd 10.1.0.0/24 10.2.0.0/24 icmp -P out discard;
             spdadd 10.1.0.0/24 10.2.0.0/24 tcp -P out none;
             spdadd 10.1.0.0/24 10.3.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.3/require;
             spdadd 10.1.0.0/24 10.0.0.0/8 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;";
        let compiled = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames).unwrap();
        let policies = compiled
            .commands
            .into_iter()
            .filter_map(|command| match command {
                Command::AddPolicy(policy) => Some(policy),
                _ => None,
            });
        policies.collect()
    }

    /// All but the last one are our own data plane's.
    fn in_kernel(is_side_by_side: bool) -> Vec<Option<Action>> {
        let all = policies();
        let of_users = all[..3].iter().map(|policy| policy.selector).collect();
        let parted = Parted {
            of_users,
            is_side_by_side,
        };
        let each = all.iter().map(|policy| parted.of_the_kernel(policy));
        each.map(|policy| policy.map(|policy| policy.action.clone()))
            .collect()
    }

    #[test]
    fn beside_a_wider_policy_the_kernel_keeps_what_comes_before_it() {
        let all = policies();
        let expected = [
            Action::Discard,
            Action::Bypass,
            Action::Bypass,
            all[3].action.clone(),
        ];
        assert_eq!(in_kernel(true), expected.map(Some));
    }

    #[test]
    fn once_nothing_is_left_behind_the_kernel_has_none_of_the_user_planes() {
        let all = policies();
        let expected = [None, None, None, Some(all[3].action.clone())];
        assert_eq!(in_kernel(false), expected);
    }
}
