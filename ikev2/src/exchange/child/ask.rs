//! Child SAs that this side asks for.

use super::{
    Answered, Attempt, Goal, MAX_CHILD_PAIRS, Stage, first_group, new_attempt, pause, refusal,
    settle, start_with_group,
    wanted::{check, configured, spi_of, wanted_traffic},
};
use crate::{
    child_sa::{Happening, Stage as PairStage},
    connection::{ChildMode, Traffic},
    endpoint::{ChildId, Outbound, RemoveReason},
    exchange::{Context, Purpose, collision::NoncePair},
    ike_sa::{
        Current, IkeSa, Task,
        child_state::{Negotiated, Successor},
    },
    message::{
        Body, ExchangeType, Payload,
        payload::{Delete, KeyExchange, Notify, NotifyType, Protocol, SecurityAssociation},
    },
    negotiation::Offer,
    work::{ExchangeStep, Output, Work, WorkError},
};
use std::time::Duration;

/// Begins [`Task::CreateChild`] or [`Task::RekeyChild`].
pub(super) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>, task: Task) {
    let goal = match &task {
        Task::CreateChild { child, .. } => new_child(sa, cx, child.clone()),
        Task::RekeyChild(old) => replacement(sa, cx, *old),
        _ => None,
    };
    let Some(goal) = goal else { return };
    let Some(child) = configured(sa, &goal) else {
        return;
    };
    let group = first_group(&child.offers);
    start(sa, cx, task, goal, group);
}

/// Nothing where the child is up already.
fn new_child(sa: &IkeSa, cx: &mut Context<'_>, name: String) -> Option<Goal> {
    let is_up = |child: &crate::ike_sa::child_state::ChildState| {
        child.name == name && child.stage.is_alive()
    };
    if sa.children.iter().any(is_up) || sa.children.len() >= MAX_CHILD_PAIRS {
        return None;
    }
    let spi = cx.child_spi();
    Some(Goal::Child {
        name,
        replaces: None,
        spi,
    })
}

/// Nothing where the pair ends or has been replaced meanwhile: strongSwan's "responder ignores soft expire". Where both
/// sides have begun an IKE SA, the pair of one of them may carry outbound traffic now and that of the other one soon.
fn replacement(sa: &mut IkeSa, cx: &mut Context<'_>, old: ChildId) -> Option<Goal> {
    let is_redundant = sa.is_redundant;
    let pair = sa.child(old)?;
    if settle::is_succeeded(sa, pair) || !pair.stage.is_alive() {
        return None;
    }
    if pair.stage != PairStage::Current {
        // As soon as it carries outbound traffic.
        sa.child_mut(old)?.rekey_at = Some(cx.now);
        return None;
    }
    // The pairs of a redundant IKE SA end with it; should it stay, they are rekeyed then. A pair that the peer may not
    // know yet would be answered by CHILD_SA_NOT_FOUND.
    if is_redundant || pair.answered.is_some() {
        let at = cx.now + pause(cx, Duration::from_secs(1));
        sa.creating.later.push((at, Task::RekeyChild(old)));
        return None;
    }
    let name = pair.name.clone();
    settle::forget_successors(sa, old);
    let spi = cx.child_spi();
    Some(Goal::Child {
        name,
        replaces: Some(old),
        spi,
    })
}

/// Begins an exchange with a key pair of this group, or without one.
pub(crate) fn start(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    task: Task,
    goal: Goal,
    group: Option<u16>,
) {
    match group {
        None => {
            let attempt = new_attempt(sa, cx, task, goal, Vec::new());
            send(sa, cx, attempt, None);
        }
        Some(group) => start_with_group(sa, cx, (task, goal), group, Vec::new()),
    }
}

/// Key work of an attempt has finished.
pub(super) fn done(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    attempt: Box<Attempt>,
    result: Result<Output, WorkError>,
) {
    match (&attempt.stage, result) {
        (Stage::Beginning, Ok(output @ Output::Begun { .. })) => {
            send(sa, cx, attempt, Some(output))
        }
        (
            Stage::Deriving(_),
            Ok(Output::ChildKeys {
                initiator,
                responder,
                ..
            }),
        ) => {
            install(sa, cx, attempt, (initiator, responder));
        }
        (stage, result) => {
            let why = result.map_or_else(|error| error.to_string(), |_| "no keys".to_owned());
            // The peer has the pair by now.
            let is_made = matches!(stage, Stage::Deriving(_));
            sa.step(cx, format!("CREATE_CHILD_SA failed: {why}"));
            refusal::try_later(sa, cx, &attempt);
            if is_made {
                delete_unmade(sa, cx, &attempt);
            }
        }
    }
}

/// The request: RFC 7296 1.3.1 and 1.3.3.
fn send(sa: &mut IkeSa, cx: &mut Context<'_>, mut attempt: Box<Attempt>, begun: Option<Output>) {
    let Some(child) = configured(sa, &attempt.goal) else {
        return;
    };
    let Goal::Child { replaces, spi, .. } = attempt.goal else {
        return;
    };
    let spi = spi.to_be_bytes();
    let proposals = (1..)
        .zip(&child.offers)
        .map(|(number, offer)| offer.proposal(number, &spi));
    let association = SecurityAssociation {
        proposals: proposals.collect(),
    };
    let mut payloads: Vec<Payload<'_>> = Vec::new();
    let old = replaces.and_then(|old| sa.child(old));
    let old_spi = old.map(|old| (old.protocol, old.inbound_spi.to_be_bytes()));
    if let Some((protocol, spi)) = &old_spi {
        // RFC 7296 1.3.3: the SPI by which this side receives.
        payloads.push(notify(NotifyType::RekeySa, *protocol, spi));
    }
    if child.mode == ChildMode::Transport {
        payloads.push(notify(NotifyType::UseTransportMode, Protocol::NONE, &[]));
    }
    let (local, remote) = wanted_traffic(sa, &attempt, &child);
    payloads.push(Body::SecurityAssociation(association).into());
    payloads.push(Body::Nonce(&attempt.nonce).into());
    let (handle, public) = match begun {
        Some(Output::Begun { begun, public }) => (Some(begun), public),
        _ => (None, Vec::new()),
    };
    if let (Some(_), Some(group)) = (handle, attempt.groups.last()) {
        let public = public.as_slice();
        let group = *group;
        payloads.push(Body::KeyExchange(KeyExchange { group, public }).into());
    }
    let selectors =
        |traffic: &[Traffic]| traffic.iter().map(|traffic| traffic.selector()).collect();
    payloads.push(Body::TrafficSelectorsInitiator(selectors(&local)).into());
    payloads.push(Body::TrafficSelectorsResponder(selectors(&remote)).into());
    if sa.request(cx, ExchangeType::CREATE_CHILD_SA, &payloads) {
        drop(payloads);
        attempt.stage = Stage::Asked(handle);
        sa.current = Some(Current::Create(attempt));
    }
}

fn notify<'a>(kind: NotifyType, protocol: Protocol, spi: &'a [u8]) -> Payload<'a> {
    Body::Notify(Notify {
        protocol,
        spi,
        kind,
        data: &[],
    })
    .into()
}

/// The authentic response to an attempt to make a child SA, which is no refusal.
pub(super) fn response(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    attempt: Box<Attempt>,
    payloads: &[Payload<'_>],
) {
    match check(sa, &attempt, payloads) {
        Ok((answered, public)) => derive(sa, cx, attempt, answered, public),
        Err(why) => {
            sa.step(
                cx,
                format!("the peer's answer to CREATE_CHILD_SA is refused: {why}"),
            );
            refusal::forget(sa, cx, &attempt);
            refusal::try_later(sa, cx, &attempt);
            delete_unmade(sa, cx, &attempt);
        }
    }
}

fn derive(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    mut attempt: Box<Attempt>,
    answered: Answered,
    public: Option<Vec<u8>>,
) {
    let Some(sk_d) = sa.keys.as_ref().map(|keys| keys.sk_d) else {
        return;
    };
    let begun = match attempt.stage {
        Stage::Asked(begun) => begun,
        _ => None,
    };
    let exchange = match (begun, public) {
        (Some(begun), Some(peer)) => Some(ExchangeStep::Complete { begun, peer }),
        (Some(begun), None) => {
            let forget = Work::Forget(vec![begun]);
            cx.work(sa.own_spi(), Purpose::Forget, forget);
            None
        }
        (None, _) => None,
    };
    let work = Work::ChildKeys {
        sk_d,
        exchange,
        chosen: answered.chosen.clone(),
        nonces: (attempt.nonce.clone(), answered.nonce.clone()),
    };
    cx.work(sa.own_spi(), Purpose::Create(attempt.number), work);
    attempt.stage = Stage::Deriving(Box::new(answered));
    sa.current = Some(Current::Create(attempt));
}

/// The peer has the new pair installed already: it can be sent by as soon as it is installed here.
fn install(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    mut attempt: Box<Attempt>,
    (initiator, responder): (ipsec::suite::Suite, ipsec::suite::Suite),
) {
    let (Some(child), Stage::Deriving(answered), Goal::Child { replaces, spi, .. }) = (
        configured(sa, &attempt.goal),
        std::mem::replace(&mut attempt.stage, Stage::Beginning),
        &attempt.goal,
    ) else {
        return;
    };
    let replaces = replaces.filter(|old| sa.child(*old).is_some());
    let Answered { chosen, nonce, .. } = *answered;
    let pair = Negotiated {
        inbound_spi: *spi,
        outbound_spi: spi_of(&answered.spi),
        algorithms: chosen,
        inbound: responder,
        outbound: initiator,
        mode: if answered.is_transport {
            ChildMode::Transport
        } else {
            ChildMode::Tunnel
        },
        local_traffic: answered.local_traffic,
        remote_traffic: answered.remote_traffic,
        outbound_state: match replaces {
            Some(_) => Outbound::Standby,
            None => Outbound::Active,
        },
        replaces,
        answers: None,
    };
    let id = sa.install(cx, &child, pair);
    attempt.stage = Stage::Installing(id, nonce);
    sa.current = Some(Current::Create(attempt));
}

/// The data plane has installed a pair that no answer waits for, or not.
pub(super) fn installed(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    id: ChildId,
    outcome: Result<(), String>,
) {
    let attempt = match sa.current.take() {
        Some(Current::Create(attempt)) if attempt.waits_for(id) => Some(attempt),
        other => {
            sa.current = other;
            None
        }
    };
    if let Err(why) = outcome {
        sa.step(cx, format!("the child SA cannot be installed: {why}"));
        if let Some(attempt) = &attempt {
            refusal::try_later(sa, cx, attempt);
        }
        sa.stop_child(cx, id, RemoveReason::Failed, &why);
        sa.add_task(Task::DeleteChildren(vec![id]));
        return;
    }
    let Some(pair) = sa.child_mut(id) else { return };
    let replaces = pair.replaces;
    pair.advance(Happening::Installed);
    let (peers_spi, protocol) = (pair.outbound_spi, pair.protocol);
    let nonces = attempt.and_then(|attempt| attempt.nonces());
    match (replaces, nonces) {
        (Some(old), Some(nonces)) => {
            if let Some(old) = sa.child_mut(old) {
                old.own_successor = Some(Successor { id, nonces });
            }
            settle::settle(sa, cx, old);
        }
        _ => settle::carry(sa, id),
    }
    if sa.creating.was_deleted_early(protocol, peers_spi) {
        super::delete::deleted(sa, cx, id);
    }
}

impl Attempt {
    fn waits_for(&self, id: ChildId) -> bool {
        matches!(&self.stage, Stage::Installing(installed, _) if *installed == id)
    }

    /// Of the whole exchange, once the response is there.
    fn nonces(self: Box<Self>) -> Option<NoncePair> {
        match self.stage {
            Stage::Installing(_, responder) => Some(NoncePair {
                initiator: self.nonce,
                responder,
            }),
            _ => None,
        }
    }
}

/// The peer has made a pair that cannot be used here: it is deleted by the SPI that this side offered.
fn delete_unmade(sa: &mut IkeSa, cx: &mut Context<'_>, attempt: &Attempt) {
    let Goal::Child { spi, .. } = attempt.goal else {
        return;
    };
    let protocol = configured(sa, &attempt.goal)
        .and_then(|child| child.offers.first().map(Offer::protocol))
        .unwrap_or(Protocol::ESP);
    let spis = [spi.to_be_bytes()];
    let delete = Body::Delete(Delete::children(protocol, &spis)).into();
    if sa.request(cx, ExchangeType::INFORMATIONAL, &[delete]) {
        let about = crate::ike_sa::About::Children(Vec::new());
        sa.current = Some(Current::Informational(about));
    }
}
