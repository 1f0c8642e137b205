//! CREATE_CHILD_SA (RFC 7296 1.3): further child SAs, and new ones in the place of old ones.
//!
//! ```text
//!   ask      this side begins: key work, request, response, key work, installation
//!   answer   the peer begins: request, key work, installation, response
//!   wanted, agree, read   what is asked for, what is agreed on, and the payloads of both
//!   settle   both have rekeyed one pair, or one of them has: which pair carries traffic, which is deleted
//!   delete   Delete payloads of child SAs, in both directions
//!   refusal  the peer refuses: again later, by another group, from scratch, or never; refused: this side does
//!   timers   soft and hard lifetimes, pairs to be moved to or removed
//! ```
//!
//! A rekey loses no packet. The responder has the new pair installed before it answers, and goes on sending by the old
//! one until it knows that the initiator is ready; the initiator installs the pair before it sends by it, and deletes
//! the old one, of which both ends keep the inbound SA for some seconds.

use crate::{
    connection::Traffic,
    endpoint::ChildId,
    exchange::{Context, rekey},
    ike_sa::{Current, IkeSa, Task},
    message::payload::Protocol,
    negotiation::{Chosen, Offer},
    work::{Handle, Output, WorkError},
};
use std::time::Duration;

mod agree;
pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod delete;
pub(crate) mod read;
pub(crate) mod refusal;
pub(crate) mod refused;
mod settle;
mod timers;
mod wanted;

pub(crate) use answer::{answered_again, request, request_came};
pub(crate) use ask::{begin, response};
pub(crate) use settle::carry as carries;
pub(crate) use timers::{timer, used};

/// How many pairs one IKE SA may have, the peer's whim included.
const MAX_CHILD_PAIRS: usize = 1024;
/// How many Deletes of pairs that are not known yet are remembered while an answer is on the way.
const MAX_EARLY_DELETES: usize = 16;

/// What an IKE SA remembers of CREATE_CHILD_SA exchanges besides the attempt in progress.
#[derive(Default)]
pub(crate) struct Creating {
    next_number: u32,
    /// Requests of the peer that wait for keys or for the data plane.
    pub(super) answers: Vec<answer::Answer>,
    /// What is tried again, and when.
    pub(super) later: Vec<(Duration, Task)>,
    /// Since when the peer has answered by TEMPORARY_FAILURE alone.
    pub(super) refused_since: Option<Duration>,
    /// Pairs that the peer deleted before its answer with their SPIs came.
    early_deletes: Vec<(Protocol, u32)>,
    /// The rekey of the IKE SA itself.
    pub(crate) ike: rekey::Progress,
}

/// An exchange that this side began.
pub(crate) struct Attempt {
    /// By which its key work comes back.
    pub(super) number: u32,
    pub(super) task: Task,
    pub(super) goal: Goal,
    /// Groups that were sent so far.
    pub(super) groups: Vec<u16>,
    /// The own nonce.
    pub(super) nonce: Vec<u8>,
    pub(super) stage: Stage,
}

/// What an exchange is to make.
pub(crate) enum Goal {
    /// A pair of child SAs.
    Child {
        /// Its name in the connection.
        name: String,
        /// The pair that it replaces.
        replaces: Option<ChildId>,
        /// The own SPI.
        spi: u32,
    },
    /// An IKE SA in the place of this one.
    Ike {
        /// The own SPI.
        spi: [u8; 8],
    },
}

/// How far an exchange is.
pub(crate) enum Stage {
    /// A key pair is being made. Nothing was sent yet.
    Beginning,
    /// The request was sent, with the public value of a key pair or without one.
    Asked(Option<Handle>),
    /// The response was accepted: keys are being made.
    Deriving(Box<Answered>),
    /// The data plane installs the pair.
    Installing(ChildId, Vec<u8>),
}

/// What the peer's response holds.
pub(crate) struct Answered {
    pub chosen: Chosen,
    pub nonce: Vec<u8>,
    /// The peer's SPI.
    pub spi: Vec<u8>,
    pub is_transport: bool,
    pub local_traffic: Vec<Traffic>,
    pub remote_traffic: Vec<Traffic>,
}

impl Creating {
    /// When there is something to do.
    pub fn next_at(&self) -> Option<Duration> {
        let later = self.later.iter().map(|(at, _)| *at);
        later.chain(self.ike.next_at()).min()
    }

    /// A number for an exchange, by which its key work is found again.
    pub(super) fn number(&mut self) -> u32 {
        self.next_number = self.next_number.wrapping_add(1);
        self.next_number
    }

    /// The peer deletes a pair that is not known: perhaps one of which the answer is still on its way.
    pub fn remember_early_delete(&mut self, protocol: Protocol, spi: u32) {
        if self.early_deletes.len() < MAX_EARLY_DELETES {
            self.early_deletes.push((protocol, spi));
        }
    }

    /// Whether the peer has deleted this pair before its answer came.
    pub(super) fn was_deleted_early(&mut self, protocol: Protocol, spi: u32) -> bool {
        let early = std::mem::take(&mut self.early_deletes);
        early.contains(&(protocol, spi))
    }
}

/// What is offered for what an attempt is to make.
pub(super) fn configured_offers(sa: &IkeSa, goal: &Goal) -> Vec<Offer> {
    match (goal, &sa.connection) {
        (_, None) => Vec::new(),
        (Goal::Ike { .. }, Some(connection)) => connection.ike.clone(),
        (Goal::Child { name, .. }, Some(connection)) => {
            let child = connection.child(name);
            child.map_or_else(Vec::new, |child| child.offers.clone())
        }
    }
}

impl Attempt {
    /// The private value to forget, if the attempt is given up.
    pub fn handle(&self) -> Option<Handle> {
        match self.stage {
            Stage::Asked(begun) => begun,
            _ => None,
        }
    }
}

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
        sa.next_task(cx);
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
                super::forget_handles(cx, sa.own_spi(), &output);
            }
        }
    }
    sa.next_task(cx);
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
    sa.next_task(cx);
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
    let is_unsent = attempt(sa).is_some_and(|attempt| matches!(attempt.stage, Stage::Beginning));
    if let (true, Some(Current::Create(attempt))) = (is_unsent, sa.current.take_if(|_| is_unsent)) {
        let at = cx.now + refusal::pause(cx, Duration::from_secs(1));
        sa.creating.later.push((at, attempt.task));
    }
}
