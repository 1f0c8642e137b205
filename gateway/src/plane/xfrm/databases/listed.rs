//! What the kernel has of a gateway: its associations and policies, by their marks.

use super::super::association;
use super::super::policy::{self, PolicyName};
use super::super::zeroizing::ZeroizingMessage;
use super::compare::sa_of;
use super::errors::{is_absent, unreadable};
use super::served::Served;
use super::{HeldPolicy, KernelDatabases};
use ipsec::sa::SaId;
use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::policy::ModifyMessage;
use std::io;

impl KernelDatabases {
    /// Reads once what an earlier gateway of this site has left. `put` takes over the associations that are wanted;
    /// the others, as its policies, stay until the barriers are in place.
    pub(super) fn read_leftovers(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_read_leftovers, true) {
            return Ok(());
        }
        let left = self.listed_policies(|name, number, left| (name, number, left.clone()))?;
        for (name, number, left) in left {
            self.free_numbers.remove(&number);
            let held = HeldPolicy {
                policy: None,
                left: Some(Box::new(left)),
                served: Served::default(),
                number,
            };
            self.policies.insert(name, held);
        }
        let answers = self.list_sas()?;
        let listed = answers.iter().filter_map(sa_of).map(|(id, _)| id);
        self.left = listed.filter(|id| !self.sas.contains_key(id)).collect();
        Ok(())
    }

    /// What is told of each of this gateway's policies: its name, its number, and the rest.
    pub(super) fn listed_policies<R>(
        &mut self,
        told: impl Fn(PolicyName, u32, &ModifyMessage) -> R,
    ) -> io::Result<Vec<R>> {
        let everything = ZeroizingMessage::new(policy::everything());
        let answers = self.kernel.list(&everything).map_err(unreadable)?;
        let owner = self.owner;
        let read = |answer: &ZeroizingMessage| {
            let XfrmMessage::AddPolicy(message) = &**answer else {
                return None;
            };
            let number = owner.number(message.user_policy_info.index)?;
            Some(told(PolicyName::read(message)?, number, message))
        };
        Ok(answers.iter().filter_map(read).collect())
    }

    pub(super) fn list_sas(&mut self) -> io::Result<Vec<ZeroizingMessage>> {
        let everything = ZeroizingMessage::new(association::everything());
        let mut answers = self.kernel.list(&everything).map_err(unreadable)?;
        let owner = self.owner;
        answers.retain(
            |answer| matches!(&**answer, XfrmMessage::AddSa(message) if owner.owns_sa(message)),
        );
        Ok(answers)
    }

    pub(super) fn find(&mut self, id: &SaId) -> io::Result<Option<ZeroizingMessage>> {
        let question = XfrmMessage::GetSa(association::named(id));
        match self.kernel.ask(&ZeroizingMessage::new(question)) {
            Ok(answer) => Ok(Some(answer)),
            Err(refusal) if is_absent(&refusal) => Ok(None),
            Err(refusal) => Err(unreadable(refusal)),
        }
    }
}
