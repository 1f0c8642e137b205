//! One policy of a gateway in the kernel.

use super::super::owner::MAX_POLICIES;
use super::super::policy::{self, PolicyName};
use super::super::zeroizing::ZeroizingMessage;
use super::errors::{about_policy, is_absent};
use super::{HeldPolicy, KernelDatabases};
use ipsec::policy::Policy;
use netlink_packet_xfrm::XfrmMessage;
use std::io;
use std::sync::Arc;

impl KernelDatabases {
    /// Adds or changes a policy; one that is there already is left alone.
    pub(crate) fn put_policy(&mut self, policy: &Arc<Policy>) -> io::Result<()> {
        let name = PolicyName::of(policy);
        let served = self.special.served(policy);
        let held = self.policies.get(&name);
        let is_there = held.filter(|held| held.served == served);
        let is_there = is_there.and_then(|held| held.policy.as_ref());
        if is_there.is_some_and(|there| there == policy) {
            return Ok(());
        }
        let mut message = policy::emit_enforced(policy);
        served.put_into(&mut message);
        let left = held.and_then(|held| held.left.as_ref());
        let is_as_left = left.is_some_and(|left| policy::is_the_same(left, &message));
        let number = match held.map(|held| held.number) {
            Some(number) => number,
            None => *self.free_numbers.first().ok_or_else(|| {
                io::Error::other(format!(
                    "the kernel can have at most {MAX_POLICIES} policies of a gateway"
                ))
            })?,
        };
        message.user_policy_info.index = self.owner.index(number, policy.direction);
        let outcome = match held {
            Some(_) if is_as_left => Ok(()),
            Some(_) => self
                .kernel
                .change(&ZeroizingMessage::new(XfrmMessage::UpdatePolicy(message))),
            None => self
                .kernel
                .create(&ZeroizingMessage::new(XfrmMessage::AddPolicy(message))),
        };
        outcome.map_err(|refusal| about_policy(&name, &refusal))?;
        self.free_numbers.remove(&number);
        let policy = Some(Arc::clone(policy));
        let held = HeldPolicy {
            policy,
            left: None,
            served,
            number,
        };
        self.policies.insert(name, held);
        Ok(())
    }

    pub(super) fn remove_policy(&mut self, name: PolicyName) -> io::Result<()> {
        let message = XfrmMessage::DeletePolicy(name.message());
        match self.kernel.change(&ZeroizingMessage::new(message)) {
            Err(refusal) if !is_absent(&refusal) => return Err(about_policy(&name, &refusal)),
            _ => {}
        }
        self.forget_policy(name);
        Ok(())
    }

    pub(super) fn forget_policy(&mut self, name: PolicyName) {
        if let Some(held) = self.policies.remove(&name) {
            self.free_numbers.insert(held.number);
        }
    }
}
