//! CREATE_CHILD_SA (RFC 7296 1.3): further child SAs, and new ones in the place of old ones.
//!
//! ```text
//!   ask      this side begins: key work, request, response, key work, installation
//!   answer   the peer begins: request, key work, installation, response
//!   wanted, agree, read   what is asked for, what is agreed on, and the payloads of both
//!   settle   both have rekeyed one pair, or one of them has: which pair carries traffic, which is deleted
//!   delete   Delete payloads of child SAs, in both directions
//!   refusal  the peer refuses: again later, by another group, from scratch, or never; refused: this side does
//!   left     pairs of an IKE SA that the peer has lost: what they carry goes over to new ones
//!   timers   soft and hard lifetimes, pairs to be moved to or removed
//! ```
//!
//! A rekey loses no packet. The responder has the new pair installed before it answers, and goes on sending by the old
//! one until it knows that the initiator is ready; the initiator installs the pair before it sends by it, and deletes
//! the old one, of which both ends keep the inbound SA for some seconds.

use crate::{
    endpoint::ChildId,
    exchange::{Context, forget_handles, rekey},
    ike_sa::{Current, IkeSa, Task},
    message::{
        Payload,
        payload::{NotifyType, Protocol},
    },
    work::{Output, WorkError},
};

mod agree;
pub(crate) mod answer;
pub(crate) mod ask;
mod attempt;
pub(crate) mod delete;
pub(crate) mod left;
pub(crate) mod read;
pub(crate) mod refusal;
pub(crate) mod refused;
pub(crate) mod settle;
mod timers;
mod wanted;

pub(crate) use crate::ike_sa::creating::{Answered, Attempt, AttemptStage as Stage, Goal};
pub(crate) use answer::{answered_again, request_came};
pub(crate) use attempt::{
    MAX_CHILD_PAIRS, attempt, configured_offers, first_group, give_way, is_rekeying, new_attempt,
    pause, start_with_group,
};
pub(crate) use timers::{timer, used};

/// Key work of an exchange has finished.
pub(crate) fn done(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    number: u32,
    result: Result<Output, WorkError>,
) {
    let place = sa.creating.answers.iter();
    if let Some(place) = place.into_iter().position(|answer| answer.number == number) {
        let answer = sa.creating.answers.remove(place);
        if answer.is_ike() {
            rekey::answer::keys(sa, cx, answer, result);
        } else {
            answer::keys(sa, cx, answer, result);
        }
        return;
    }
    match sa.current.take() {
        Some(Current::Create(attempt)) if attempt.number == number => match attempt.goal {
            Goal::Child { .. } => ask::done(sa, cx, attempt, result),
            Goal::Ike { .. } => rekey::ask::done(sa, cx, attempt, result),
        },
        other => {
            // The exchange was given up meanwhile.
            sa.current = other;
            if let Ok(output) = result {
                forget_handles(cx, sa.own_spi(), &output);
            }
        }
    }
}

/// The data plane has installed a pair, or not.
pub(crate) fn installed(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    id: ChildId,
    outcome: Result<(), String>,
) {
    let answers = &mut sa.creating.answers;
    if let Some(place) = answers.iter().position(|answer| answer.installs(id)) {
        let answer = answers.remove(place);
        answer::installed(sa, cx, answer, id, outcome);
    } else {
        ask::installed(sa, cx, id, outcome);
    }
}

/// The data plane has installed the pair of IKE_AUTH. `request`: what the responder answers next. `is_second`: another
/// IKE SA carries the same traffic.
pub(crate) fn first_installed(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    id: ChildId,
    request: Option<u32>,
    is_second: bool,
) {
    let replaces = sa.child(id).and_then(|pair| pair.replaces);
    match (replaces, request) {
        (Some(_), Some(request)) => answer::stand_by(sa, cx, id, request),
        // See `endpoint::simultaneous`.
        (None, Some(request)) if is_second => answer::stand_by_until_heard(sa, id, request),
        (None, None) if is_second => settle::move_to(sa, cx, id),
        _ => installed(sa, cx, id, Ok(())),
    }
}

/// An authentic request of the peer.
pub(crate) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, id: u32, payloads: &[Payload<'_>]) {
    let Some(asked) = read::negotiation(payloads) else {
        let why = "SA or nonce is missing";
        return refused::refuse(
            sa,
            cx,
            id,
            refused::RefusedRequest::new(NotifyType::InvalidSyntax, why),
        );
    };
    let protocol = asked.association.proposals.first().map(|one| one.protocol);
    let outcome = if protocol == Some(Protocol::IKE) {
        rekey::answer::request(sa, cx, id, &asked)
    } else {
        answer::child(sa, cx, id, &asked)
    };
    if let Err(refused) = outcome {
        refused::refuse(sa, cx, id, refused);
    }
}

/// Begins a task: [`Task::CreateChild`], [`Task::RekeyChild`] or [`Task::RekeyIke`].
pub(crate) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>, task: Task) {
    // RFC 7296 2.25.2: nothing new is begun on an IKE SA that another one has replaced.
    if sa.creating.ike.is_replaced() {
        return;
    }
    match task {
        Task::RekeyIke => rekey::ask::begin(sa, cx),
        task => ask::begin(sa, cx, task),
    }
}

/// The authentic response to `attempt`.
pub(crate) fn response(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    attempt: Box<Attempt>,
    payloads: &[Payload<'_>],
) {
    if let Some(error) = read::error(payloads) {
        refusal::forget(sa, cx, &attempt);
        refusal::refused(sa, cx, attempt, error);
        return;
    }
    sa.creating.refused_since = None;
    match attempt.goal {
        Goal::Ike { .. } => rekey::ask::response(sa, cx, attempt, payloads),
        Goal::Child { .. } => ask::response(sa, cx, attempt, payloads),
    }
}
