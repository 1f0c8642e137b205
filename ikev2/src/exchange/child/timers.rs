//! What time and traffic cause: rekeys at soft limits, ends at hard ones, moves and removals.

use super::{is_rekeying, left, settle};
use crate::{
    child_sa::Stage,
    endpoint::{ChildId, RemoveReason, Use},
    exchange::{Context, rekey},
    ike_sa::{IkeSa, Task},
};
use std::time::Duration;

/// Something of [`IkeSa::next_at`] may be due.
pub(crate) fn timer(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let ids: Vec<_> = sa.children.iter().map(|pair| pair.id).collect();
    for id in ids {
        pair_timer(sa, cx, id);
    }
    let now = cx.now;
    let due = sa.creating.later.iter().filter(|(at, _)| *at <= now);
    let due: Vec<Task> = due.map(|(_, task)| task.clone()).collect();
    sa.creating.later.retain(|(at, _)| *at > now);
    for task in due {
        queue(sa, task);
    }
    rekey::timer(sa, cx);
}

/// Adds a task, unless the same waits already. It is begun by `exchange::run_tasks`.
pub(super) fn queue(sa: &mut IkeSa, task: Task) {
    if !sa.tasks.contains(&task) {
        sa.tasks.push_back(task);
    }
}

fn pair_timer(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId) {
    let now = cx.now;
    let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
    let Some(pair) = sa.child_mut(id) else { return };
    if is_due(pair.drained_at) {
        // While this side still waits for the answer to its rekey, the pair is needed to decide a collision.
        return if pair.is_left {
            left::is_over(sa, cx, id);
        } else if is_rekeying(sa, id) {
            postpone_removal(sa, cx, id);
        } else {
            sa.remove_child(cx, id, RemoveReason::Replaced, "");
        };
    }
    if is_due(pair.ends_at) && pair.stage.is_alive() {
        pair.ends_at = None;
        return hard_limit(sa, cx, id);
    }
    if is_due(pair.rekey_at) && pair.stage == Stage::Current {
        pair.rekey_at = None;
        queue(sa, Task::RekeyChild(id));
    }
    let Some(pair) = sa.child_mut(id) else { return };
    if is_due(pair.move_at) && pair.stage == Stage::Standby {
        pair.move_at = None;
        settle::move_if_standby(sa, cx, id);
    }
}

fn postpone_removal(sa: &mut IkeSa, cx: &Context<'_>, id: ChildId) {
    if let Some(pair) = sa.child_mut(id) {
        pair.drained_at = Some(cx.now.saturating_add(Duration::from_secs(1)));
    }
}

/// RFC 7296 2.8 and RFC 4301 4.4.2.1: past its hard lifetime a pair carries nothing, whatever became of its rekey.
fn hard_limit(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId) {
    let is_replaced = sa
        .child(id)
        .is_some_and(|pair| settle::is_succeeded(sa, pair));
    let reason = if is_replaced {
        settle::fall_back(sa, cx, id);
        RemoveReason::Replaced
    } else {
        RemoveReason::Deleted
    };
    sa.stop_child(cx, id, reason, "its hard lifetime is over");
    if !settle::is_condemned(sa, id) {
        sa.tasks.push_front(Task::DeleteChildren(vec![id]));
    }
}

/// The data plane reports about a pair.
pub(crate) fn used(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId, what: Use) {
    match what {
        Use::Received => {}
        // RFC 7296 2.8: the peer has installed the pair; outbound traffic may move to it.
        Use::FirstReceived => {
            if let Some(pair) = sa.child_mut(id) {
                pair.answered = None;
            }
            settle::move_if_standby(sa, cx, id);
        }
        Use::SoftLimit => {
            if sa
                .child(id)
                .is_some_and(|pair| pair.stage == Stage::Current)
            {
                queue(sa, Task::RekeyChild(id));
            }
        }
        Use::HardLimit => {
            if sa.child(id).is_some_and(|pair| pair.stage.is_alive()) {
                hard_limit(sa, cx, id);
            }
        }
    }
}
