//! Beside our own data plane: the kernel has a part of the associations and policies while a gateway moves.

use super::super::policy::PolicyName;
use super::KernelDatabases;
use super::moving::as_optional;
use crate::plane::Parting;
use ipsec::database::Snapshot;
use ipsec::policy::{Direction, Policy, Selector};
use ipsec::sa::SaId;
use std::collections::HashSet;
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

    /// The policies that the kernel is to have of these, and their names. What our own data plane has opened passes its
    /// `in` and `fwd` policies as well.
    pub(super) fn of_the_kernel(
        &self,
        snapshot: &Snapshot,
        policies: Vec<Arc<Policy>>,
        mut names: HashSet<PolicyName>,
    ) -> (Vec<Arc<Policy>>, HashSet<PolicyName>) {
        let Some(parting) = &self.parting else {
            return (policies, names);
        };
        let of_users = parting.sealed_by_user(snapshot);
        let is_users = |direction, selector: &Selector| {
            direction == Direction::Out && of_users.contains(selector)
        };
        names.retain(|name| !is_users(name.direction, &name.selector));
        let kept = policies
            .into_iter()
            .filter(|policy| !is_users(policy.direction, &policy.selector));
        let each = kept.map(|policy| match policy.direction {
            Direction::Out => policy,
            Direction::In | Direction::Fwd => Arc::new(as_optional(&policy)),
        });
        (each.collect(), names)
    }
}
