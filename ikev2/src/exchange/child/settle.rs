//! Which pair carries outbound traffic, and which pairs go.
//!
//! ```text
//!   old ──┬── own successor      this side asked: it moves at once, and deletes the old pair
//!         └── peer's successor   the peer asked: this side moves when the peer sends by it, deletes the old pair, or
//!                                after some time; the peer deletes the old pair
//!   both: the nonces decide which of the two stays
//! ```

use super::{is_rekeying, pause};
use crate::{
    child_sa::{DRAIN_TIMEOUT, Happening, Stage},
    connection::Traffic,
    endpoint::{Action, ChildId, Event},
    exchange::{
        Context, Order,
        collision::{self, Deletion, Exchange},
    },
    ike_sa::{IkeSa, Task, child_state::ChildState},
};
use std::{collections::BTreeSet, time::Duration};

/// The name of a child, and the traffic of both sides.
pub(crate) type Carried = (String, (Vec<Traffic>, Vec<Traffic>));

/// Whether a pair that was made to replace this one is there.
pub(super) fn is_succeeded(sa: &IkeSa, pair: &ChildState) -> bool {
    let successors = pair.own_successor.iter().chain(&pair.peers_successor);
    let mut pairs = successors.filter_map(|one| sa.child(one.id));
    pairs.any(|one| one.stage.is_alive())
}

/// This side begins to rekey a pair: pairs that were made for it before and are gone have no say in it.
pub(super) fn forget_successors(sa: &mut IkeSa, old: ChildId) {
    if let Some(old) = sa.child_mut(old) {
        (old.own_successor, old.peers_successor) = (None, None);
    }
}

/// A rekey of the pair `old` is complete, that of this side or that of the peer. Nothing is decided while another one
/// is on its way: the nonces of both are needed.
pub(super) fn settle(sa: &mut IkeSa, cx: &mut Context<'_>, old: ChildId) {
    let is_answering = sa
        .creating
        .answers
        .iter()
        .any(|answer| answer.replaces(old));
    if is_answering || is_rekeying(sa, old) {
        return;
    }
    let is_original_initiator = sa.is_initiator;
    let Some(pair) = sa.child(old) else { return };
    match (pair.own_successor.clone(), pair.peers_successor.clone()) {
        (Some(own), None) => move_and_delete(sa, cx, old, own.id),
        (Some(own), Some(peers)) => {
            // RFC 7296 2.8.1: the pair of the exchange with the lowest nonce is deleted by the end that began it.
            let verdict = collision::judge(&own.nonces, &peers.nonces, is_original_initiator);
            sa.step(
                cx,
                "both sides have rekeyed the same child SA: the nonces decide",
            );
            match (verdict.keep, verdict.delete) {
                (Exchange::Own, Deletion::Old) => {
                    if let Some(peers) = sa.child_mut(peers.id) {
                        peers.is_redundant = true;
                    }
                    move_and_delete(sa, cx, old, own.id);
                }
                _ => delete_own(sa, cx, own.id),
            }
        }
        (None, _) => {}
    }
}

fn move_and_delete(sa: &mut IkeSa, cx: &mut Context<'_>, old: ChildId, new: ChildId) {
    move_to(sa, cx, new);
    if sa.child(old).is_some_and(|old| old.stage.is_alive()) {
        sa.tasks.push_front(Task::DeleteChildren(vec![old]));
    }
}

/// The peer's pair stays, which is moved to when the peer shows that it is ready; or the one that has replaced it
/// since.
fn delete_own(sa: &mut IkeSa, cx: &mut Context<'_>, own: ChildId) {
    sa.tasks.push_front(Task::DeleteChildren(vec![own]));
    fall_back(sa, cx, own);
}

/// A pair that replaces none carries traffic from the beginning.
pub(crate) fn carry(sa: &mut IkeSa, id: ChildId) {
    if let Some(pair) = sa.child_mut(id) {
        pair.advance(Happening::MovedTo);
    }
}

/// Outbound traffic moves to this pair, from the others of its kin; not to one that the data plane has removed already,
/// and that is remembered until both ends have deleted it.
pub(super) fn move_to(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId) {
    let Some(pair) = sa.child_mut(id).filter(|pair| !pair.is_removed) else {
        return;
    };
    if !pair.advance(Happening::MovedTo) {
        return;
    }
    pair.move_at = None;
    let (replaces, name, now) = (pair.replaces, pair.name.clone(), cx.now);
    for other in kin(sa, id) {
        if let Some(other) = sa.child_mut(other) {
            other.advance(Happening::MovedAway);
            // Of one that the peer has lost too, packets that are on the way are still taken.
            if std::mem::take(&mut other.is_left) {
                other.drained_at = Some(now.saturating_add(DRAIN_TIMEOUT));
            }
        }
    }
    cx.act(Action::UseOutbound(id));
    if cx.shared.peers.has_several(sa.connection_name()) {
        let own = sa.own_spi();
        cx.shared.orders.push(Order::MovedTo { own });
    }
    if let Some(old) = replaces {
        let peer = sa.peer();
        cx.event(Event::ChildRekeyed {
            peer,
            child: name,
            old,
            new: id,
        });
    }
}

/// Outbound traffic comes to this IKE SA: the fittest pair of each family carries it, unless another one does.
pub(crate) fn carry_all(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let families: BTreeSet<_> = sa.children.iter().map(|pair| pair.family).collect();
    for family in families {
        let alive = sa.children.iter();
        let alive =
            alive.filter(|pair| pair.family == family && pair.stage.is_alive() && !pair.is_removed);
        let alive: Vec<_> = alive.collect();
        if alive.iter().any(|pair| pair.stage == Stage::Current) {
            continue;
        }
        let best = alive.into_iter().max_by_key(|pair| fitness(sa, pair));
        if let Some(best) = best.map(|pair| pair.id) {
            move_to(sa, cx, best);
        }
    }
}

/// What the pairs carry that outbound traffic takes: the child's name, and the traffic of both sides.
pub(crate) fn carried(sa: &IkeSa) -> Vec<Carried> {
    let current = sa.children.iter();
    let current = current.filter(|pair| pair.stage == Stage::Current);
    current.map(what_it_carries).collect()
}

fn what_it_carries(pair: &ChildState) -> Carried {
    let traffic = (pair.local_traffic.clone(), pair.remote_traffic.clone());
    (pair.name.clone(), traffic)
}

/// This outbound traffic has moved to pairs of another IKE SA.
pub(crate) fn move_away(sa: &mut IkeSa, moved: &[Carried]) {
    for pair in &mut sa.children {
        if moved.contains(&what_it_carries(pair)) {
            pair.advance(Happening::MovedAway);
        }
    }
}

/// The other pairs that carry the same traffic as this one.
fn kin(sa: &IkeSa, id: ChildId) -> Vec<ChildId> {
    let family = sa.child(id).map(|pair| pair.family);
    let is_kin = |other: &&ChildState| other.id != id && Some(other.family) == family;
    let kin = sa.children.iter().filter(is_kin);
    kin.map(|other| other.id).collect()
}

/// The peer sends by a pair, or nothing was heard of it for long: outbound traffic moves, unless a collision is not
/// decided yet or one of the ends will delete the pair.
pub(super) fn move_if_standby(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId) {
    let is_standby = sa
        .child(id)
        .is_some_and(|pair| pair.stage == Stage::Standby);
    let is_redundant = sa.is_redundant || sa.child(id).is_some_and(|pair| pair.is_redundant);
    if !is_standby || is_redundant || is_condemned(sa, id) {
        return;
    }
    let replaces = sa.child(id).and_then(|pair| pair.replaces);
    if replaces.is_some_and(|old| is_rekeying(sa, old)) {
        let at = cx.now + pause(cx, Duration::from_millis(250));
        if let Some(pair) = sa.child_mut(id) {
            pair.move_at = Some(at);
        }
        return;
    }
    move_to(sa, cx, id);
}

/// Whether this side is about to delete the pair.
pub(super) fn is_condemned(sa: &IkeSa, id: ChildId) -> bool {
    let mut tasks = sa.tasks.iter();
    tasks.any(|task| matches!(task, Task::DeleteChildren(ids) if ids.contains(&id)))
        || sa
            .child(id)
            .is_some_and(|pair| pair.stage == Stage::Deleting)
}

/// The pair that carried outbound traffic ends: another one of its kin takes over.
pub(super) fn fall_back(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId) -> bool {
    let kin = kin(sa, id);
    let kin = kin.iter().filter_map(|other| sa.child(*other));
    let alive: Vec<_> = kin.filter(|other| other.stage.is_alive()).collect();
    if alive.iter().any(|other| other.stage == Stage::Current) {
        return true;
    }
    let best = alive.iter().max_by_key(|other| fitness(sa, other));
    let Some(best) = best.map(|other| other.id) else {
        return false;
    };
    move_to(sa, cx, best);
    true
}

/// Which pair is to carry what another one carried, the best last. What is sent by a pair of which the peer does not
/// have the answer yet is lost. One that will be deleted, or of which a collision may still be decided, would be left
/// again at once. Of others the newest is the one that both ends move to.
fn fitness(sa: &IkeSa, pair: &ChildState) -> (bool, bool, bool, ChildId) {
    let peer_has_it = pair.answered.is_none();
    let stays = !pair.is_redundant && !is_condemned(sa, pair.id);
    let is_installed = pair.stage != Stage::Installing;
    (peer_has_it, stays, is_installed, pair.id)
}
