//! Child SAs that the peer asks for.

use super::{
    MAX_CHILD_PAIRS,
    agree::agree,
    attempt, give_way, is_rekeying,
    left::{self, Likeness},
    read,
    refused::{RefusedRequest, of_work, refuse},
    settle,
    wanted::spi_of,
};
use crate::{
    child_sa::{Happening, Stage as PairStage, move_timeout},
    connection::{ChildMode, Traffic},
    endpoint::{ChildId, Outbound, RemoveReason},
    exchange::{Context, NONCE_BYTES, Purpose, collision::NoncePair, rekey},
    ike_sa::{
        IkeSa, State,
        answering::{Answer, AnswerGoal as Goal, Pair},
        child_state::{Negotiated, Successor},
    },
    message::{
        Body, ExchangeType, Payload,
        payload::{KeyExchange, Notify, NotifyType, SecurityAssociation},
    },
    negotiation::Chosen,
    work::{ExchangeStep, Output, Work, WorkError},
};
use ipsec::suite::Suite;

const EXCHANGE: ExchangeType = ExchangeType::CREATE_CHILD_SA;

pub(super) fn child(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    id: u32,
    asked: &read::Negotiation<'_, '_>,
) -> Result<(), RefusedRequest> {
    if rekey::is_asking(sa) {
        give_way(sa, cx);
    }
    // RFC 7296 2.25.2: not while the IKE SA is rekeyed or ends. A new one has its children when both ends have decided.
    let is_ending = !matches!(sa.state, State::Established(_));
    if is_ending || rekey::is_asking(sa) || sa.creating.ike.is_in_progress() {
        let why = "the IKE SA is being replaced or deleted";
        return Err(RefusedRequest::new(NotifyType::TemporaryFailure, why));
    }
    let replaces = replaced(sa, asked)?;
    if replaces.is_some_and(|old| is_rekeying(sa, old)) {
        give_way(sa, cx);
    }
    if sa.children.len() + sa.creating.answers.len() >= MAX_CHILD_PAIRS {
        let why = format!("there are {MAX_CHILD_PAIRS} pairs already");
        return Err(RefusedRequest::new(NotifyType::NoAdditionalSas, why));
    }
    let (child, chosen, traffic) = agree(sa, asked, replaces)?;
    let peers_spi = asked.association.proposals.iter();
    let peers_spi = peers_spi
        .filter(|proposal| proposal.number == chosen.number)
        .map(|proposal| spi_of(proposal.spi))
        .find(|spi| *spi != 0)
        .ok_or_else(|| RefusedRequest::new(NotifyType::InvalidSyntax, "the peer's SPI is zero"))?;
    let pair = Pair {
        name: child.name.clone(),
        replaces,
        own_spi: cx.child_spi(),
        peers_spi,
        is_transport: child.mode == ChildMode::Transport,
        traffic,
        installing: None,
    };
    derive(sa, cx, id, asked, (chosen, pair))
}

/// Begins the key work for what was agreed on.
fn derive(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    id: u32,
    asked: &read::Negotiation<'_, '_>,
    (chosen, pair): (Chosen, Pair),
) -> Result<(), RefusedRequest> {
    let Some(sk_d) = sa.keys.as_ref().map(|keys| keys.sk_d) else {
        let why = "the keys are gone";
        return Err(RefusedRequest::new(NotifyType::TemporaryFailure, why));
    };
    let exchange = chosen.group().zip(asked.key_exchange);
    let exchange = exchange.map(|(group, exchange)| ExchangeStep::Answer {
        group: group.transform(),
        peer: exchange.public.to_vec(),
    });
    let nonces = (
        asked.nonce.to_vec(),
        cx.random_bytes::<NONCE_BYTES>().to_vec(),
    );
    let number = sa.creating.number();
    let work = Work::ChildKeys {
        sk_d,
        exchange,
        chosen: chosen.clone(),
        nonces: nonces.clone(),
    };
    cx.work(sa.own_spi(), Purpose::Create(number), work);
    sa.creating.answers.push(Answer {
        number,
        message_id: id,
        chosen,
        nonces,
        goal: Goal::Child(Box::new(pair)),
    });
    Ok(())
}

/// The pair that REKEY_SA names.
fn replaced(
    sa: &mut IkeSa,
    asked: &read::Negotiation<'_, '_>,
) -> Result<Option<ChildId>, RefusedRequest> {
    let Some((protocol, spi)) = asked.rekeys else {
        return Ok(None);
    };
    let is_deleted = |stage| stage == PairStage::Draining;
    let old = sa.child_by_outbound(protocol, spi_of(spi));
    let Some(old) = old.filter(|old| !is_deleted(old.stage)) else {
        // RFC 7296 2.25: with protocol and SPI of the REKEY_SA notification.
        return Err(RefusedRequest {
            about: Some((protocol, spi.to_vec())),
            ..RefusedRequest::new(
                NotifyType::ChildSaNotFound,
                "the pair to be rekeyed is not there",
            )
        });
    };
    let (id, stage) = (old.id, old.stage);
    // RFC 7296 2.25.1: this side is trying to close it, or has a new pair for it that nothing speaks against.
    let is_succeeded = sa
        .child(id)
        .is_some_and(|old| settle::is_succeeded(sa, old));
    let is_closing = stage == PairStage::Deleting || is_succeeded;
    let is_answered = sa.creating.answers.iter().any(|answer| answer.replaces(id));
    if is_closing || is_answered || stage == PairStage::Installing {
        let why = "the pair to be rekeyed is being deleted or replaced";
        return Err(RefusedRequest::new(NotifyType::TemporaryFailure, why));
    }
    Ok(Some(id))
}

/// The keys are there, or not: the pair is installed before the answer leaves, because the peer sends by it at once.
pub(super) fn keys(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    answer: Answer,
    result: Result<Output, WorkError>,
) {
    let id = answer.message_id;
    match result {
        Ok(Output::ChildKeys {
            public,
            initiator,
            responder,
        }) => install(sa, cx, answer, public, (initiator, responder)),
        Ok(_) => refuse(
            sa,
            cx,
            id,
            RefusedRequest::new(NotifyType::TemporaryFailure, "no keys"),
        ),
        Err(error) => refuse(sa, cx, id, of_work(&error)),
    }
}

fn install(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    mut answer: Answer,
    public: Vec<u8>,
    (initiator, responder): (Suite, Suite),
) {
    let Goal::Child(pair) = &mut answer.goal else {
        return;
    };
    let connection = sa.connection.clone();
    let child = connection.and_then(|connection| connection.child(&pair.name).cloned());
    let Some(child) = child else {
        let why = "the child is not configured any more";
        let refused = RefusedRequest::new(NotifyType::TsUnacceptable, why);
        return refuse(sa, cx, answer.message_id, refused);
    };
    let traffic = |selectors: &[_]| {
        selectors
            .iter()
            .filter_map(Traffic::from_selector)
            .collect()
    };
    let mode = if pair.is_transport {
        ChildMode::Transport
    } else {
        ChildMode::Tunnel
    };
    let local_traffic: Vec<_> = traffic(&pair.traffic.responder);
    let remote_traffic: Vec<_> = traffic(&pair.traffic.initiator);
    let likeness = Likeness {
        name: &pair.name,
        protocol: answer.chosen.protocol,
        mode,
        local_traffic: &local_traffic,
        remote_traffic: &remote_traffic,
    };
    pair.replaces = pair.replaces.or_else(|| left::predecessor(sa, &likeness));
    let negotiated = Negotiated {
        inbound_spi: pair.own_spi,
        outbound_spi: pair.peers_spi,
        algorithms: answer.chosen.clone(),
        inbound: initiator,
        outbound: responder,
        mode,
        local_traffic,
        remote_traffic,
        // RFC 7296 2.8: what the old pair carries goes on by it until the peer is known to be ready.
        outbound_state: match pair.replaces {
            Some(_) => Outbound::Standby,
            None => Outbound::Active,
        },
        replaces: pair.replaces,
        answers: Some(answer.message_id),
    };
    let id = sa.install(cx, &child, negotiated);
    pair.installing = Some((id, public));
    sa.creating.answers.push(answer);
}

/// The data plane takes packets by the new pair: the answer may leave.
pub(super) fn installed(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    answer: Answer,
    id: ChildId,
    outcome: Result<(), String>,
) {
    if let Err(why) = outcome {
        let refused = RefusedRequest::new(NotifyType::TemporaryFailure, why.clone());
        refuse(sa, cx, answer.message_id, refused);
        return sa.remove_child(cx, id, RemoveReason::Failed, &why);
    }
    let Goal::Child(pair) = &answer.goal else {
        return;
    };
    respond(sa, cx, &answer, pair);
    stand_by(sa, cx, id, answer.message_id);
    let (initiator, responder) = answer.nonces;
    let successor = Successor {
        id,
        nonces: NoncePair {
            initiator,
            responder,
        },
    };
    let Some(old) = pair.replaces else {
        return settle::carry(sa, id);
    };
    if let Some(old) = sa.child_mut(old) {
        old.peers_successor = Some(successor);
    }
    settle::settle(sa, cx, old);
}

/// A new pair is installed, and waits for a sign that the peer has the answer to this request, or for some time.
pub(super) fn stand_by(sa: &mut IkeSa, cx: &Context<'_>, id: ChildId, request: u32) {
    stand_by_until_heard(sa, id, request);
    if let Some(new) = sa.child_mut(id) {
        new.move_at = Some(cx.now.saturating_add(move_timeout(0)));
    }
}

/// A new pair is installed, and waits for a sign that the peer has the answer to this request.
pub(super) fn stand_by_until_heard(sa: &mut IkeSa, id: ChildId, request: u32) {
    if let Some(new) = sa.child_mut(id) {
        new.advance(Happening::Installed);
        new.answered = Some(request);
    }
}

fn respond(sa: &mut IkeSa, cx: &mut Context<'_>, answer: &Answer, pair: &Pair) {
    let spi = pair.own_spi.to_be_bytes();
    let public = pair
        .installing
        .as_ref()
        .map(|(_, public)| public.as_slice());
    let mut payloads: Vec<Payload<'_>> = Vec::new();
    if pair.is_transport {
        payloads.push(Body::Notify(Notify::new(NotifyType::UseTransportMode, &[])).into());
    }
    let association = SecurityAssociation {
        proposals: vec![answer.chosen.proposal(&spi)],
    };
    payloads.push(Body::SecurityAssociation(association).into());
    payloads.push(Body::Nonce(&answer.nonces.1).into());
    if let (Some(group), Some(public)) = (answer.chosen.group(), public) {
        let group = group.transform();
        payloads.push(Body::KeyExchange(KeyExchange { group, public }).into());
    }
    let traffic = pair.traffic.clone();
    payloads.push(Body::TrafficSelectorsInitiator(traffic.initiator).into());
    payloads.push(Body::TrafficSelectorsResponder(traffic.responder).into());
    sa.respond(cx, answer.message_id, EXCHANGE, &payloads);
}

/// The request with this ID came again after it was answered: the peer does not have the answer, and is not ready for
/// packets of the new pair.
pub(crate) fn answered_again(sa: &mut IkeSa, cx: &Context<'_>, message_id: u32) {
    let waits = |child: &&mut crate::ike_sa::child_state::ChildState| {
        let waits_for_time = child.stage == PairStage::Standby && child.move_at.is_some();
        waits_for_time && child.answered == Some(message_id)
    };
    for child in sa.children.iter_mut().filter(waits) {
        child.repetitions += 1;
        child.move_at = Some(cx.now.saturating_add(move_timeout(child.repetitions)));
    }
}

/// A new request of the peer: with it, the peer had the answers to those that are a window older (RFC 7296 2.3).
pub(crate) fn request_came(sa: &mut IkeSa, message_id: u32) {
    let window = sa
        .connection
        .as_ref()
        .map_or(1, |connection| connection.window.max(1));
    for child in &mut sa.children {
        let is_known = |answered: &mut u32| answered.saturating_add(window) <= message_id;
        child.answered.take_if(is_known);
    }
}

/// Whether this side works on an exchange of its own that the peer may know of, so that the IKE SA cannot be replaced
/// (RFC 7296 2.25.2).
pub(crate) fn is_busy(sa: &IkeSa) -> bool {
    let is_creating =
        attempt(sa).is_some_and(|attempt| !matches!(attempt.goal, super::Goal::Ike { .. }));
    let is_unknown_to_peer = sa.children.iter().any(|child| child.answered.is_some());
    is_creating
        || is_unknown_to_peer
        || super::delete::is_waiting(sa)
        || !sa.creating.answers.is_empty()
}
