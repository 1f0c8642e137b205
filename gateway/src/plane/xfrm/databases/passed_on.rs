//! Associations of child SAs that the gateway before has passed on: the kernel carries them all the while, so that only
//! what it has is compared with what was passed on. Nothing of it is changed.

use super::super::association;
use super::super::direction::SaDirection;
use super::super::owner::Owner;
use super::super::zeroizing::ZeroizingMessage;
use super::KernelDatabases;
use super::compare::{is_carried, is_the_same, sa_of};
use super::counters;
use ipsec::sa::{Sa, SaConfig, SavedCounters};
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{LifetimeConfig, XfrmAttrs, XfrmMessage};
use std::io;

impl KernelDatabases {
    /// Why the kernel's association is not this one, which goes on from its numbers; none if it is. If it is deleted
    /// after that and before the next `put`, it is added again behind every number that the kernel may have used.
    pub(crate) fn why_not_passed_on(&mut self, sa: &Sa) -> io::Result<Option<&'static str>> {
        if sa.state.is_dead() {
            return Ok(Some("its lifetime is over"));
        }
        if !is_carried(sa) {
            return Ok(None);
        }
        let (owner, direction) = (self.owner, self.direction(sa));
        let found = self.find(&sa.config.id)?;
        let difference = match found.as_ref().and_then(sa_of) {
            None => Some("the kernel does not have it any more"),
            Some((_, found)) => difference(found, sa, owner, direction),
        };
        if difference.is_none() {
            self.passed_on.insert(sa.config.id);
        }
        Ok(difference)
    }
}

/// What another program has changed of an association, if anything.
fn difference(
    found: &ModifyMessage,
    sa: &Sa,
    owner: Owner,
    direction: Option<SaDirection>,
) -> Option<&'static str> {
    let config = &sa.config;
    let refusals = [
        (
            !owner.owns_sa(found),
            "the kernel has one of another program in its place",
        ),
        (
            !is_the_same(found, config, direction),
            "the kernel has it with other keys, ends or options",
        ),
        (
            direction != Some(SaDirection::Outbound) && window(found) != config.replay_window,
            "the kernel has it with another replay window",
        ),
        (
            !is_as_limited(found, config),
            "the kernel has it with longer lifetimes",
        ),
        (
            is_behind(&counters::read(found), &sa.state.saved()),
            "the kernel has it with sequence numbers that were used before",
        ),
    ];
    let found = refusals.into_iter().find(|(applies, _)| *applies);
    found.map(|(_, sentence)| sentence)
}

/// The size of the replay window, in packets.
fn window(found: &ModifyMessage) -> u32 {
    let large = found.nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::ReplayStateEsn(state) => Some(state.replay_window),
        _ => None,
    });
    large.unwrap_or(found.user_sa_info.replay_window.into())
}

/// Limits in amounts may be lower: one that was put back counts what it had carried.
fn is_as_limited(found: &ModifyMessage, config: &SaConfig) -> bool {
    let wanted = ZeroizingMessage::new(XfrmMessage::AddSa(association::emit(config)));
    let Some((_, wanted)) = sa_of(&wanted) else {
        return false;
    };
    let amounts = |limits: &LifetimeConfig| {
        [
            limits.soft_byte_limit,
            limits.hard_byte_limit,
            limits.soft_packet_limit,
            limits.hard_packet_limit,
        ]
    };
    let (found, wanted) = (
        &found.user_sa_info.lifetime_cfg,
        &wanted.user_sa_info.lifetime_cfg,
    );
    let mut each = amounts(found).into_iter().zip(amounts(wanted));
    each.all(|(found, wanted)| found <= wanted)
        && found.hard_add_expires_seconds == wanted.hard_add_expires_seconds
}

/// The kernel's numbers only ever rise.
fn is_behind(kernels: &SavedCounters, passed: &SavedCounters) -> bool {
    kernels.sent < passed.sent || kernels.edge < passed.edge
}

#[cfg(test)]
mod tests;
