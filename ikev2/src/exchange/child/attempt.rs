//! The attempt in progress, as the other parts look at it.

use crate::{
    endpoint::ChildId,
    exchange::{Context, NONCE_BYTES, Purpose},
    ike_sa::{
        Current, IkeSa, Task,
        creating::{Attempt, AttemptStage, Goal},
    },
    message::payload::TransformType,
    negotiation::Offer,
    work::Work,
};
use std::time::Duration;

/// How many pairs one IKE SA may have, the peer's whim included.
pub(crate) const MAX_CHILD_PAIRS: usize = 1024;

/// What is offered for what an attempt is to make.
pub(crate) fn configured_offers(sa: &IkeSa, goal: &Goal) -> Vec<Offer> {
    match (goal, &sa.connection) {
        (_, None) => Vec::new(),
        (Goal::Ike { .. }, Some(connection)) => connection.ike.clone(),
        (Goal::Child { name, .. }, Some(connection)) => {
            let child = connection.child(name);
            child.map_or_else(Vec::new, |child| child.offers.clone())
        }
    }
}

/// The attempt in progress.
pub(crate) fn attempt(sa: &IkeSa) -> Option<&Attempt> {
    match &sa.current {
        Some(Current::Create(attempt)) => Some(attempt),
        _ => None,
    }
}

/// Whether this side is about to replace the pair `old`, and the peer may know it.
pub(crate) fn is_rekeying(sa: &IkeSa, old: ChildId) -> bool {
    attempt(sa).is_some_and(
        |attempt| matches!(&attempt.goal, Goal::Child { replaces, .. } if *replaces == Some(old)),
    )
}

/// Gives up an attempt of which nothing was sent yet, so that the peer's request can be answered; it is tried again
/// later.
pub(crate) fn give_way(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let is_unsent =
        attempt(sa).is_some_and(|attempt| matches!(attempt.stage, AttemptStage::Beginning));
    if let (true, Some(Current::Create(attempt))) = (is_unsent, sa.current.take_if(|_| is_unsent)) {
        let at = cx.now + pause(cx, Duration::from_secs(1));
        sa.creating.later.push((at, attempt.task));
    }
}

/// `least`, and a random part of as much again.
pub(crate) fn pause(cx: &mut Context<'_>, least: Duration) -> Duration {
    let drawn = u32::from(u16::from_be_bytes(cx.random_bytes()));
    least + least * drawn / u32::from(u16::MAX)
}

/// The group that is preferred; none without perfect forward secrecy.
pub(crate) fn first_group(offers: &[Offer]) -> Option<u16> {
    let groups = offers
        .iter()
        .flat_map(|offer| offer.of(TransformType::KEY_EXCHANGE));
    groups.map(|group| group.id).find(|id| *id != 0)
}

/// An exchange of which nothing was done yet. `groups` were tried before.
pub(crate) fn new_attempt(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    task: Task,
    goal: Goal,
    groups: Vec<u16>,
) -> Box<Attempt> {
    Box::new(Attempt {
        number: sa.creating.number(),
        task,
        goal,
        groups,
        nonce: cx.random_bytes::<NONCE_BYTES>().to_vec(),
        stage: AttemptStage::Beginning,
    })
}

/// Begins an exchange with a key pair of this group.
pub(crate) fn start_with_group(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    (task, goal): (Task, Goal),
    group: u16,
    mut groups: Vec<u16>,
) {
    groups.push(group);
    let attempt = new_attempt(sa, cx, task, goal, groups);
    let number = attempt.number;
    sa.current = Some(Current::Create(attempt));
    cx.work(
        sa.own_spi(),
        Purpose::Create(number),
        Work::BeginExchange { group },
    );
}
