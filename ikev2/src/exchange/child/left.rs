//! Pairs of an IKE SA that the peer has lost (INITIAL_CONTACT, RFC 7296 2.4), on the new IKE SA.
//!
//! The peer's data plane may have outlived its key exchange: then it still sends and receives by these pairs. They are
//! treated like pairs that are rekeyed, but for Deletes, of which the peer would know nothing:
//!
//! ```text
//!   left ──┬── new pair of the same child and traffic   as after a rekey: outbound traffic moves when the peer sends
//!          │                                            by it or after some time; 5 s later the old pair goes
//!          └── none within 10 s                         it goes, and its networks are closed
//! ```
//!
//! A peer may lose the new IKE SA too, and again: what was left before stays as it is, and goes at the same time.

use super::{MAX_CHILD_PAIRS, settle};
use crate::{
    child_sa::{DRAIN_TIMEOUT, Stage},
    connection::{ChildMode, Traffic},
    endpoint::{ChildId, RemoveReason},
    exchange::Context,
    ike_sa::{IkeSa, child_state::ChildState},
    message::payload::Protocol,
};
use std::time::Duration;

/// How long such a pair waits for a new one of its child.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(10);

/// What a new pair must have in common with the one whose traffic it takes over.
pub(crate) struct Likeness<'a> {
    pub name: &'a str,
    pub protocol: Protocol,
    pub mode: ChildMode,
    pub local_traffic: &'a [Traffic],
    pub remote_traffic: &'a [Traffic],
}

/// Takes the pairs out of an IKE SA that the peer has lost.
pub(crate) fn leave(sa: &mut IkeSa, cx: &Context<'_>) -> Vec<ChildState> {
    let is_installed = |pair: &mut ChildState| !pair.is_removed && pair.stage != Stage::Installing;
    let mut left: Vec<_> = sa.children.extract_if(.., is_installed).collect();
    for pair in &mut left {
        pair.answered = None;
        (pair.own_successor, pair.peers_successor) = (None, None);
        if pair.stage != Stage::Draining {
            begin_to_drain(pair, cx.now);
        }
    }
    left
}

fn begin_to_drain(pair: &mut ChildState, now: Duration) {
    pair.is_left = pair.stage == Stage::Current;
    let timeout = if pair.is_left {
        SUCCESSOR_TIMEOUT
    } else {
        DRAIN_TIMEOUT
    };
    pair.stage = Stage::Draining;
    pair.drained_at = Some(now.saturating_add(timeout));
}

/// The new IKE SA goes on with them.
pub(crate) fn take(sa: &mut IkeSa, cx: &mut Context<'_>, left: Vec<ChildState>) {
    for pair in left {
        cx.shared.owners.insert(pair.id, sa.own_spi());
        sa.children.push(pair);
    }
    remove_surplus(sa, cx);
}

/// A peer that starts again all the time adds pairs faster than they drain. Those that still carry traffic go last, and
/// of the others the oldest first.
fn remove_surplus(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let surplus = sa.children.len().saturating_sub(MAX_CHILD_PAIRS);
    let draining = sa.children.iter();
    let draining = draining.filter(|pair| pair.stage == Stage::Draining);
    let mut oldest: Vec<_> = draining
        .map(|pair| (pair.is_left, pair.since, pair.id))
        .collect();
    oldest.sort_unstable();
    for (is_left, _, id) in oldest.into_iter().take(surplus) {
        let (reason, why) = if is_left {
            (RemoveReason::Deleted, "the peer has lost too many")
        } else {
            (RemoveReason::Replaced, "")
        };
        sa.remove_child(cx, id, reason, why);
    }
}

/// The pair whose traffic a new one takes over.
pub(crate) fn predecessor(sa: &IkeSa, new: &Likeness<'_>) -> Option<ChildId> {
    let is_alike = |old: &&ChildState| {
        let same = (old.protocol, old.mode) == (new.protocol, new.mode);
        let traffic = (&*old.local_traffic, &*old.remote_traffic);
        old.is_left
            && same
            && old.name == new.name
            && traffic == (new.local_traffic, new.remote_traffic)
    };
    sa.children.iter().find(is_alike).map(|old| old.id)
}

/// The time of such a pair is over.
pub(super) fn is_over(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId) {
    let mut waiting = sa.children.iter().filter(|new| new.replaces == Some(id));
    let waiting = waiting.find(|new| new.stage == Stage::Standby);
    match waiting.map(|new| new.id) {
        Some(new) => settle::move_to(sa, cx, new),
        None => sa.remove_child(cx, id, RemoveReason::Deleted, "the peer has lost it"),
    }
}
