//! The kernel's own IPsec as a plane: every command becomes XFRM messages over netlink.
//!
//! ```text
//!   commands ──► does the kernel support it? ──► dry run on our own databases, ──► kernel
//!                  │ no                          filled from the kernel's            │ refused, at the Nth command
//!                  │                               │ refused                         │
//!                  └── nothing has changed ◄───────┘   the changes are undone, newest first
//! ```
//!
//! The kernel has no transactions: between two commands other programs see half of the list. Undoing restores keys,
//! sequence numbers and counters.

mod association;
mod association_commands;
mod databases;
mod direction;
mod dry_run;
mod extensions;
pub(crate) mod features;
mod foreign;
mod last_states;
mod notifications;
mod owner;
mod policy;
mod socket;
mod statistics;
pub(crate) mod supported;
mod zeroizing;

pub(crate) use databases::{Carried, KernelDatabases};
pub(crate) use last_states::LastStates;
pub(crate) use notifications::{KernelNotice, KernelNotices};
pub(crate) use statistics::Statistics;

use super::{Plane, Unsupported, check};
use crate::failure::Failure;
use association::XfrmState;
use ipsec::command::{Answer, Command, PolicyReport, Refused};
use ipsec::policy::{Action, Level, Policy};
use ipsec::sa::Reqid;
use netlink_packet_xfrm::XfrmMessage;
use socket::{Refusal, XfrmSocket};
use std::collections::HashSet;
use zeroizing::ZeroizingMessage;

/// The plane of the kernel of this network namespace.
pub(crate) struct XfrmPlane {
    kernel: XfrmSocket,
    /// What undoes the commands applied so far, in the order in which they were applied.
    undo: Vec<ZeroizingMessage>,
    unsupported: usize,
}

type Outcome<T> = Result<T, Refusal>;

impl XfrmPlane {
    /// Connects to the kernel, or returns why that is impossible.
    pub(crate) fn open() -> Result<Self, Failure> {
        let kernel = XfrmSocket::open().map_err(Failure::new)?;
        Ok(Self {
            kernel,
            undo: Vec::new(),
            unsupported: 0,
        })
    }

    /// How many of the kernel's associations and policies the last dumps left out, because setkey cannot express them.
    pub(crate) fn unsupported(&self) -> usize {
        self.unsupported
    }

    fn sas(&mut self) -> Outcome<Vec<(ZeroizingMessage, XfrmState)>> {
        let answers = self
            .kernel
            .list(&ZeroizingMessage::new(association::everything()))?;
        Ok(answers.into_iter().filter_map(with_xfrm_state).collect())
    }

    fn policies(&mut self) -> Outcome<Vec<(ZeroizingMessage, Option<PolicyReport>)>> {
        let answers = self
            .kernel
            .list(&ZeroizingMessage::new(policy::everything()))?;
        let read = |answer: ZeroizingMessage| {
            let XfrmMessage::AddPolicy(message) = &*answer else {
                return None;
            };
            let report = policy::parse(message);
            Some((answer, report))
        };
        Ok(answers.into_iter().filter_map(read).collect())
    }

    fn apply_one(&mut self, command: &Command) -> Outcome<Answer> {
        match command {
            Command::AddSa(config) | Command::UpdateSa(config) => self.put_sa(config, command),
            Command::DeleteSa { id, .. } => self.delete_sa(id),
            Command::DeleteAllSas {
                source,
                destination,
                protocol,
            } => self.delete_all(*source, *destination, *protocol),
            Command::GetSa { id, .. } => self.get_sa(id),
            Command::GetSpi {
                source,
                destination,
                protocol,
                range,
            } => {
                let wanted = association::reserve(*source, *destination, *protocol, *range);
                self.get_spi(&ZeroizingMessage::new(wanted))
            }
            Command::FlushSas(protocol) => self.flush_sas(*protocol),
            Command::DumpSas(protocol) => self.dump_sas(*protocol),
            Command::AddPolicy(policy) | Command::UpdatePolicy(policy) => {
                self.put_policy(policy, command)
            }
            Command::DeletePolicy {
                selector,
                direction,
            } => {
                let name = policy::named(selector, *direction);
                let old = self
                    .kernel
                    .ask(&ZeroizingMessage::new(XfrmMessage::GetPolicy(name.clone())))?;
                self.change(XfrmMessage::DeletePolicy(name), vec![old])
            }
            Command::GetPolicy {
                selector,
                direction,
            } => {
                let name = policy::named(selector, *direction);
                let answer = self
                    .kernel
                    .ask(&ZeroizingMessage::new(XfrmMessage::GetPolicy(name)))?;
                let XfrmMessage::AddPolicy(message) = &*answer else {
                    return Err(Refusal::of(libc::ENOENT));
                };
                Ok(Answer::Policies(
                    policy::parse(message).into_iter().collect(),
                ))
            }
            Command::FlushPolicies => {
                let old = self.policies()?.into_iter().map(|(old, _)| old).collect();
                self.change(policy::flush(), old)
            }
            Command::DumpPolicies => self.dump_policies(),
        }
    }

    fn put_policy(&mut self, policy: &Policy, command: &Command) -> Outcome<Answer> {
        let policy = self.with_identifiers(policy)?;
        let name = policy::named(&policy.selector, policy.direction);
        let written = policy::emit(&policy);
        let old = match command {
            Command::UpdatePolicy(_) => self.find(XfrmMessage::GetPolicy(name.clone()))?,
            _ => None,
        };
        let delete = ZeroizingMessage::new(XfrmMessage::DeletePolicy(name));
        match old {
            Some(old) => {
                let update = XfrmMessage::UpdatePolicy(written);
                self.change(update, vec![old.into_update()])
            }
            None => {
                let add = ZeroizingMessage::new(XfrmMessage::AddPolicy(written));
                self.kernel.create(&add)?;
                self.undo.push(delete);
                Ok(Answer::Done)
            }
        }
    }

    /// `unique` without a number: the gateway chooses one that no policy of the kernel has.
    fn with_identifiers(&mut self, policy: &Policy) -> Outcome<Policy> {
        let mut policy = policy.clone();
        let Action::Protect(templates) = &mut policy.action else {
            return Ok(policy);
        };
        for template in templates {
            if template.level == Level::Unique(None) {
                template.level = Level::Unique(Some(self.free_identifier()?));
            }
        }
        Ok(policy)
    }

    fn free_identifier(&mut self) -> Outcome<Reqid> {
        let policies = self.policies()?;
        let reports = policies.iter().filter_map(|(_, report)| report.as_ref());
        let used: HashSet<_> = reports
            .flat_map(|report| identifiers(&report.policy))
            .collect();
        let free = (policy::MAX_MANUAL_REQID + 1..).find(|reqid| !used.contains(reqid));
        free.map(Reqid).ok_or(Refusal::of(libc::ENOBUFS))
    }

    /// Makes a change, after saving what undoes it.
    fn change(&mut self, message: XfrmMessage, old: Vec<ZeroizingMessage>) -> Outcome<Answer> {
        self.kernel.change(&ZeroizingMessage::new(message))?;
        // Of several, the oldest is restored first: undoing starts at the end of the list.
        self.undo.extend(old.into_iter().rev());
        Ok(Answer::Done)
    }

    fn find(&mut self, question: XfrmMessage) -> Outcome<Option<ZeroizingMessage>> {
        match self.kernel.ask(&ZeroizingMessage::new(question)) {
            Ok(answer) => Ok(Some(answer)),
            Err(refusal) if [libc::ESRCH, libc::ENOENT].contains(&refusal.errno) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Undoes what was done, newest first; returns how many could not be undone.
    fn undo_all(&mut self) -> usize {
        let mut failed = 0;
        for message in std::mem::take(&mut self.undo).iter().rev() {
            let done = match **message {
                XfrmMessage::AddSa(_) | XfrmMessage::AddPolicy(_) => self.kernel.create(message),
                _ => self.kernel.change(message),
            };
            failed += usize::from(done.is_err());
        }
        failed
    }
}

impl Plane for XfrmPlane {
    fn supports(&self, command: &Command) -> Result<(), Unsupported> {
        match command {
            Command::AddSa(config) | Command::UpdateSa(config) => {
                association::check_supported(config)
            }
            Command::AddPolicy(policy) | Command::UpdatePolicy(policy) => {
                policy::check_supported(policy)
            }
            _ => Ok(()),
        }
    }

    fn apply(&mut self, commands: &[Command]) -> Result<Vec<Answer>, Refused> {
        check(self, commands)?;
        self.unsupported = 0;
        self.undo.clear();
        if !commands.iter().all(Command::is_question) {
            self.dry_run(commands)?;
        }
        let mut answers = Vec::with_capacity(commands.len());
        for (index, command) in commands.iter().enumerate() {
            match self.apply_one(command) {
                Ok(answer) => answers.push(answer),
                Err(refusal) => {
                    let reason = match self.undo_all() {
                        0 => refusal.to_string(),
                        failed => format!(
                            "{refusal}; and {failed} of the changes before it could not be undone, see `setkey -D` \
                             and `setkey -DP`"
                        ),
                    };
                    return Err(Refused { index, reason });
                }
            }
        }
        self.undo.clear();
        Ok(answers)
    }
}

fn xfrm_state(answer: &ZeroizingMessage) -> Option<XfrmState> {
    match &**answer {
        XfrmMessage::AddSa(message) => Some(association::parse(message)),
        _ => None,
    }
}

fn with_xfrm_state(answer: ZeroizingMessage) -> Option<(ZeroizingMessage, XfrmState)> {
    let found = xfrm_state(&answer)?;
    Some((answer, found))
}

fn identifiers(policy: &Policy) -> Vec<u32> {
    let Action::Protect(templates) = &policy.action else {
        return Vec::new();
    };
    let number = |level: &Level| match level {
        Level::Unique(Some(Reqid(number))) => Some(*number),
        _ => None,
    };
    templates
        .iter()
        .filter_map(|template| number(&template.level))
        .collect()
}

#[cfg(test)]
mod tests;
