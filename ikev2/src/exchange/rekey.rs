//! An IKE SA in the place of another one (RFC 7296 1.3.2, 2.8 and 2.18): new keys, the same children.
//!
//! ```text
//!   this side asked   the children move at once; this side deletes the old IKE SA
//!   the peer asked    the children move with the answer; the peer deletes the old IKE SA
//!   both              each has made one: the nonces decide which the children move to (2.8.2); its initiator
//!                     deletes the old IKE SA, the other end the one that it made in vain
//! ```
//!
//! What the peer should delete and does not is given up without a message after a while.

use crate::{
    encrypted::{MessageKey, Sealer},
    endpoint::Event,
    exchange::{
        Context, Order,
        child::{Goal, attempt},
        collision::{self, Exchange, NoncePair},
    },
    ike_sa::{
        Ending, Established, IkeSa, SaKeys, State, Task,
        children::shortened,
        creating::{Inherited, NewSa},
    },
    keys::IkeSpis,
    message::IkeSpi,
    negotiation::Chosen,
    work::IkeKeyParts,
};
use std::time::Duration;

pub(crate) mod answer;
pub(crate) mod ask;

/// How long an IKE SA that the peer should delete is kept.
const ABANDONED_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether this side is replacing the IKE SA.
pub(crate) fn is_asking(sa: &IkeSa) -> bool {
    attempt(sa).is_some_and(|attempt| matches!(attempt.goal, Goal::Ike { .. }))
}

/// Something of [`IkeSa::next_at`] may be due.
pub(crate) fn timer(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let now = cx.now;
    if let State::Established(established) = &mut sa.state
        && established.rekey_at.is_some_and(|at| at <= now)
    {
        established.rekey_at = None;
        if !sa.creating.ike.is_in_progress() && !sa.tasks.contains(&Task::RekeyIke) {
            sa.tasks.push_back(Task::RekeyIke);
        }
    }
    if sa.creating.ike.drop_at.is_some_and(|at| at <= now) {
        sa.end(cx, Ending::Superseded);
    }
}

/// The IKE SA that was negotiated.
fn replacement(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    (spis, is_initiator): (IkeSpis, bool),
    chosen: Chosen,
    parts: &IkeKeyParts,
) -> Option<IkeSa> {
    let established = sa.known()?;
    let connection = sa.connection.clone()?;
    let initiator = MessageKey::new(&parts.initiator).ok()?;
    let responder = MessageKey::new(&parts.responder).ok()?;
    let (own, peers) = if is_initiator {
        (initiator, responder)
    } else {
        (responder, initiator)
    };
    let lifetime = connection.ike_lifetime;
    let state = Established {
        identity: established.identity.clone(),
        proof: established.proof.clone(),
        since: cx.now,
        rekey_at: Some(cx.now + shortened(lifetime, connection.jitter_percent, cx)),
        heard_at: cx.now,
        children_at: None,
    };
    // RFC 7296 2.18: message IDs begin with 0, windows with 1.
    let windows = (connection.schedule, 1);
    let state = State::Established(Box::new(state));
    let mut new = IkeSa::new(spis, is_initiator, sa.path, state, windows, cx.now);
    new.connection = Some(connection);
    new.origin = sa.origin;
    new.is_redundant = sa.is_redundant;
    new.close_at = sa.close_at;
    new.peer_takes_fragments = sa.peer_takes_fragments;
    new.algorithms = Some(chosen);
    new.keys = Some(SaKeys {
        sealer: Sealer::new(own),
        opener: peers,
        sk_d: parts.sk_d,
        authentication: None,
    });
    cx.log_keys(spis, parts);
    Some(new)
}

/// Takes up a new IKE SA, which is given up after a while if no children move to it.
fn adopt(sa: &mut IkeSa, cx: &mut Context<'_>, mut new: IkeSa, nonces: NoncePair) -> NewSa {
    let own_spi = new.own_spi();
    new.creating.ike.drop_at = Some(cx.now.saturating_add(ABANDONED_TIMEOUT));
    cx.shared.orders.push(Order::Adopt(Box::new(new)));
    sa.step(cx, "a new IKE SA is there");
    NewSa { own_spi, nonces }
}

/// One of the new IKE SAs is complete, or the attempt of this side has failed. Nothing is decided while the other may
/// still come: the nonces of both are needed.
pub(crate) fn settle(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let is_answering = sa.creating.answers.iter().any(|answer| answer.is_ike());
    if is_answering || is_asking(sa) || sa.creating.ike.is_replaced {
        return;
    }
    match (sa.creating.ike.own.clone(), sa.creating.ike.peers.clone()) {
        (Some(own), None) => move_and_close(sa, cx, own.own_spi),
        (None, Some(peers)) => move_and_wait(sa, cx, peers.own_spi),
        (Some(own), Some(peers)) => {
            // RFC 7296 2.8.2: as with child SAs. The children go to the one that stays.
            let verdict = collision::judge(&own.nonces, &peers.nonces, sa.is_initiator);
            sa.step(cx, "both sides have rekeyed the IKE SA: the nonces decide");
            if verdict.keep == Exchange::Own {
                move_and_close(sa, cx, own.own_spi);
            } else {
                move_and_wait(sa, cx, peers.own_spi);
                cx.shared.orders.push(Order::CloseRedundant(own.own_spi));
            }
        }
        (None, None) => {}
    }
}

fn move_and_close(sa: &mut IkeSa, cx: &mut Context<'_>, to: IkeSpi) {
    hand_over(sa, cx, to);
    close(sa);
}

fn move_and_wait(sa: &mut IkeSa, cx: &mut Context<'_>, to: IkeSpi) {
    hand_over(sa, cx, to);
    sa.creating.ike.drop_at = Some(cx.now.saturating_add(ABANDONED_TIMEOUT));
}

/// Has this IKE SA deleted, without its children.
fn close(sa: &mut IkeSa) {
    sa.creating.ike.is_replaced = true;
    sa.tasks.push_front(Task::Close(Ending::Superseded));
}

/// This side made the IKE SA in vain.
pub(crate) fn close_redundant(sa: &mut IkeSa, _cx: &mut Context<'_>) {
    sa.creating.ike.drop_at = None;
    close(sa);
}

/// Everything that goes on with another IKE SA.
fn hand_over(sa: &mut IkeSa, cx: &mut Context<'_>, to: IkeSpi) {
    sa.creating.ike.is_replaced = true;
    let tasks = std::mem::take(&mut sa.tasks);
    let goes_on = |task: &Task| !matches!(task, Task::Liveness | Task::RekeyIke);
    let (moved, kept): (Vec<_>, Vec<_>) = tasks.into_iter().partition(goes_on);
    sa.tasks = kept.into();
    let mut later = std::mem::take(&mut sa.creating.later);
    later.retain(|(_, task)| goes_on(task));
    let inherited = Inherited {
        children: std::mem::take(&mut sa.children),
        tasks: moved,
        later,
    };
    let peer = sa.peer();
    cx.event(Event::IkeRekeyed { peer });
    cx.shared
        .orders
        .push(Order::Inherit(to, Box::new(inherited)));
}

/// The new IKE SA goes on with the children of the old one.
pub(crate) fn inherit(sa: &mut IkeSa, cx: &mut Context<'_>, inherited: Inherited) {
    sa.creating.ike.drop_at = None;
    for mut child in inherited.children {
        // Requests are numbered anew.
        child.answered = None;
        cx.shared.owners.insert(child.id, sa.own_spi());
        sa.children.push(child);
    }
    sa.tasks.extend(inherited.tasks);
    sa.creating.later.extend(inherited.later);
}

/// There is no IKE SA to go on with: its children end.
pub(crate) fn disinherit(cx: &mut Context<'_>, inherited: Inherited) {
    for child in inherited.children.iter().filter(|child| !child.is_removed) {
        cx.shared.owners.remove(&child.id);
        cx.act(crate::endpoint::Action::Remove {
            child: child.id,
            reason: crate::endpoint::RemoveReason::Deleted,
        });
    }
}

/// The peer deletes this IKE SA. RFC 7296 2.25.2: an own rekey of it is forgotten; where the peer has made another one,
/// the children go there.
pub(crate) fn deleted_by_peer(sa: &mut IkeSa, cx: &mut Context<'_>) {
    if let Some(peers) = sa.creating.ike.peers.clone()
        && !sa.creating.ike.is_replaced
    {
        hand_over(sa, cx, peers.own_spi);
    }
}

/// A fresh SPI: never zero (RFC 7296 3.1).
fn fresh_spi(cx: &mut Context<'_>) -> [u8; 8] {
    loop {
        let spi = cx.random_bytes();
        if spi != [0; 8] {
            return spi;
        }
    }
}
