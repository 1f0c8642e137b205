//! What follows when the peer refuses a request (RFC 7296 2.25 and 3.10.1).

use super::{Attempt, Goal, configured_offers, pause, start_with_group};
use crate::{
    endpoint::{ChildId, RemoveReason},
    exchange::{Context, Purpose},
    ike_sa::{Ending, IkeSa, Task},
    message::payload::{Notify, NotifyType, TransformType},
    work::Work,
};
use std::time::Duration;

/// RFC 7296 2.25: a request that met TEMPORARY_FAILURE is not repeated at once. A random part of as much again is
/// added, so that both ends do not collide for ever.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// The pause after any other refusal: what the peer does not take now is not likely to be taken soon.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// RFC 7296 2.25: after "several minutes" of TEMPORARY_FAILURE alone the IKE SA is closed, because both ends are out of
/// step.
const OUT_OF_STEP_TIMEOUT: Duration = Duration::from_secs(180);

/// The peer has answered by an error.
pub(super) fn refused(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    attempt: Box<Attempt>,
    error: Notify<'_>,
) {
    let kind = error.kind;
    sa.step(cx, format!("the peer answers CREATE_CHILD_SA by {kind}"));
    if kind != NotifyType::TemporaryFailure {
        sa.creating.refused_since = None;
    }
    match kind {
        NotifyType::InvalidKePayload => other_group(sa, cx, attempt, error.group()),
        NotifyType::TemporaryFailure => temporary(sa, cx, &attempt),
        NotifyType::ChildSaNotFound => not_found(sa, cx, &attempt),
        // RFC 7296 1.3: a peer that makes no more SAs has the whole IKE SA made anew before the old ones end.
        NotifyType::NoAdditionalSas if is_rekey(&attempt) => {
            let why = "the peer rekeys nothing: everything is negotiated anew".to_owned();
            sa.tasks.push_back(Task::Close(Ending::Failed(why)));
        }
        // RFC 7296 2.21.3: the peer has ended the IKE SA, or will.
        NotifyType::InvalidSyntax => {
            sa.fail(cx, "the peer found a request of this side malformed");
        }
        _ => try_later(sa, cx, &attempt),
    }
    // The peer may have replaced the IKE SA meanwhile.
    crate::exchange::rekey::settle(sa, cx);
}

fn is_rekey(attempt: &Attempt) -> bool {
    !matches!(attempt.goal, Goal::Child { replaces: None, .. })
}

/// RFC 7296 1.3: again with the group that the peer names, if it was offered and was not sent before.
fn other_group(sa: &mut IkeSa, cx: &mut Context<'_>, attempt: Box<Attempt>, group: Option<u16>) {
    let offers = configured_offers(sa, &attempt.goal);
    let mut offered = offers
        .iter()
        .flat_map(|offer| offer.of(TransformType::KEY_EXCHANGE));
    let Some(group) = group.filter(|group| offered.any(|offer| offer.id == *group)) else {
        return try_later(sa, cx, &attempt);
    };
    if attempt.groups.contains(&group) || is_outdated(sa, &attempt) {
        return try_later(sa, cx, &attempt);
    }
    let Attempt {
        task, goal, groups, ..
    } = *attempt;
    start_with_group(sa, cx, (task, goal), group, groups);
}

/// Whether the peer has replaced meanwhile what this side wants to replace.
fn is_outdated(sa: &IkeSa, attempt: &Attempt) -> bool {
    match attempt.goal {
        Goal::Child {
            replaces: Some(old),
            ..
        } => sa
            .child(old)
            .is_none_or(|old| !old.stage.is_alive() || super::settle::is_succeeded(sa, old)),
        Goal::Child { .. } => false,
        Goal::Ike { .. } => sa.creating.ike.is_in_progress(),
    }
}

fn temporary(sa: &mut IkeSa, cx: &mut Context<'_>, attempt: &Attempt) {
    let since = *sa.creating.refused_since.get_or_insert(cx.now);
    if cx.now.saturating_sub(since) >= OUT_OF_STEP_TIMEOUT {
        let why = "the peer has answered by TEMPORARY_FAILURE for minutes".to_owned();
        sa.tasks.push_back(Task::Close(Ending::Failed(why)));
        return;
    }
    if !is_outdated(sa, attempt) {
        let at = cx.now + pause(cx, RETRY_PAUSE);
        sa.creating.later.push((at, attempt.task.clone()));
    }
}

/// RFC 7296 2.25: the pair is forgotten without a word to the peer, and another one is made from scratch, if the peer
/// has not replaced it.
fn not_found(sa: &mut IkeSa, cx: &mut Context<'_>, attempt: &Attempt) {
    let Goal::Child {
        name,
        replaces: Some(old),
        ..
    } = &attempt.goal
    else {
        return;
    };
    let is_alive = sa.child(*old).is_some_and(|old| old.stage.is_alive());
    forget_pair(sa, cx, *old);
    // Where the peer has deleted it meanwhile, that was its wish.
    if !is_alive {
        return;
    }
    let is_up = |child: &crate::ike_sa::child_state::ChildState| {
        child.name == *name && child.stage.is_alive()
    };
    if !sa.children.iter().any(is_up) {
        sa.tasks.push_back(Task::CreateChild {
            child: name.clone(),
            packet: None,
        });
    }
}

fn forget_pair(sa: &mut IkeSa, cx: &mut Context<'_>, old: ChildId) {
    let Some(pair) = sa.child(old) else { return };
    let is_alive = pair.stage.is_alive();
    let is_replaced = super::settle::fall_back(sa, cx, old);
    // One that was deleted properly drains, if another one has taken over.
    if !is_alive && is_replaced {
        return;
    }
    let reason = if is_replaced {
        RemoveReason::Replaced
    } else {
        RemoveReason::Deleted
    };
    sa.remove_child(cx, old, reason, "the peer does not know it any more");
}

/// Again after a while. A pair that cannot be rekeyed ends with its hard lifetime.
pub(crate) fn try_later(sa: &mut IkeSa, cx: &mut Context<'_>, attempt: &Attempt) {
    if is_rekey(attempt) && !is_outdated(sa, attempt) {
        let at = cx.now + pause(cx, REFUSED_PAUSE);
        sa.creating.later.push((at, attempt.task.clone()));
    }
}

/// The private value of an attempt is not needed any more.
pub(crate) fn forget(sa: &IkeSa, cx: &mut Context<'_>, attempt: &Attempt) {
    if let Some(begun) = attempt.handle() {
        let work = Work::Forget(vec![begun]);
        cx.work(sa.own_spi(), Purpose::Forget, work);
    }
}
