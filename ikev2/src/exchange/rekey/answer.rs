//! The peer replaces the IKE SA.

use super::{adopt, ask::spi_of, fresh_spi, is_asking, replacement, settle};
use crate::{
    exchange::{
        Context, NONCE_BYTES, Purpose,
        child::{
            answer::is_busy,
            give_way, read,
            refused::{RefusedRequest, of_work, refuse},
        },
        collision::NoncePair,
    },
    ike_sa::{
        IkeSa, State,
        answering::{Answer, AnswerGoal as Goal},
    },
    keys::IkeSpis,
    message::{
        Body, ExchangeType, Payload,
        payload::{KeyExchange, NotifyType, SecurityAssociation},
    },
    negotiation::{Chosen, KeyExchangeOffered, Outcome, choose},
    work::{ExchangeStep, IkeKeyParts, Output, Work, WorkError},
};

/// A request to rekey the IKE SA.
pub(crate) fn request(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    id: u32,
    asked: &read::Negotiation<'_, '_>,
) -> Result<(), RefusedRequest> {
    give_way(sa, cx);
    // RFC 7296 2.25.2: not while this side closes it, or has something of a child SA on its way. Where both sides rekey
    // it, the answer is the usual one.
    let is_ending = !matches!(sa.state, State::Established(_));
    if is_ending || is_busy(sa) || sa.creating.ike.is_in_progress() {
        let why = "child SAs are being made or deleted, or the IKE SA ends";
        return Err(RefusedRequest::new(NotifyType::TemporaryFailure, why));
    }
    let chosen = agree(sa, asked)?;
    let proposals = asked.association.proposals.iter();
    let peers_spi = proposals
        .filter(|proposal| proposal.number == chosen.number && proposal.spi.len() == 8)
        .map(|proposal| spi_of(proposal.spi))
        .find(|spi| *spi != [0; 8]);
    let (Some(peers_spi), Some(exchange)) = (peers_spi, asked.key_exchange) else {
        let why = "the SPI or the key exchange is missing";
        return Err(RefusedRequest::new(NotifyType::InvalidSyntax, why));
    };
    let own_spi = fresh_spi(cx);
    let nonces = (
        asked.nonce.to_vec(),
        cx.random_bytes::<NONCE_BYTES>().to_vec(),
    );
    let number = sa.creating.number();
    let work = Work::IkeKeys {
        exchange: ExchangeStep::Answer {
            group: exchange.group,
            peer: exchange.public.to_vec(),
        },
        chosen: chosen.clone(),
        nonces: nonces.clone(),
        spis: IkeSpis {
            initiator: peers_spi,
            responder: own_spi,
        },
        replaced: sa.keys.as_ref().map(|keys| keys.sk_d),
    };
    cx.work(sa.own_spi(), Purpose::Create(number), work);
    sa.creating.answers.push(Answer {
        number,
        message_id: id,
        chosen,
        nonces,
        goal: Goal::Ike(peers_spi, own_spi),
    });
    Ok(())
}

fn agree(sa: &IkeSa, asked: &read::Negotiation<'_, '_>) -> Result<Chosen, RefusedRequest> {
    let Some(connection) = &sa.connection else {
        let why = "no connection is known yet";
        return Err(RefusedRequest::new(NotifyType::TemporaryFailure, why));
    };
    let offered = match asked.key_exchange {
        Some(exchange) => KeyExchangeOffered::Payload(exchange.group),
        None => KeyExchangeOffered::Absent,
    };
    match choose(&asked.association.proposals, &connection.ike, offered) {
        Ok(Outcome::Chosen(chosen)) => Ok(chosen),
        Ok(Outcome::OtherGroup(group)) => Err(RefusedRequest::other_group(group)),
        Err(why) => Err(RefusedRequest::new(
            NotifyType::NoProposalChosen,
            why.to_string(),
        )),
    }
}

/// The keys are there, or not.
pub(crate) fn keys(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    answer: Answer,
    result: Result<Output, WorkError>,
) {
    let id = answer.message_id;
    match result {
        Ok(Output::IkeKeys(parts)) => complete(sa, cx, &answer, &parts),
        Ok(_) => {
            let refused = RefusedRequest::new(NotifyType::TemporaryFailure, "no keys");
            refuse(sa, cx, id, refused);
        }
        Err(error) => refuse(sa, cx, id, of_work(&error)),
    }
    // The attempt of this side may have waited for it.
    settle(sa, cx);
}

fn complete(sa: &mut IkeSa, cx: &mut Context<'_>, answer: &Answer, parts: &IkeKeyParts) {
    let Goal::Ike(peers_spi, own_spi) = answer.goal else {
        return;
    };
    let spis = IkeSpis {
        initiator: peers_spi,
        responder: own_spi,
    };
    let new = replacement(sa, cx, (spis, false), answer.chosen.clone(), parts);
    let Some(new) = new else {
        let refused = RefusedRequest::new(NotifyType::NoProposalChosen, "the keys do not fit");
        return refuse(sa, cx, answer.message_id, refused);
    };
    let association = SecurityAssociation {
        proposals: vec![answer.chosen.proposal(&own_spi)],
    };
    let exchange = KeyExchange {
        group: answer.chosen.group().map_or(0, |group| group.transform()),
        public: &parts.public,
    };
    let payloads: [Payload<'_>; 3] = [
        Body::SecurityAssociation(association).into(),
        Body::Nonce(&answer.nonces.1).into(),
        Body::KeyExchange(exchange).into(),
    ];
    sa.respond(
        cx,
        answer.message_id,
        ExchangeType::CREATE_CHILD_SA,
        &payloads,
    );
    let (initiator, responder) = answer.nonces.clone();
    let nonces = NoncePair {
        initiator,
        responder,
    };
    let new = adopt(sa, cx, new, nonces);
    sa.creating.ike.peers = Some(new);
    if is_asking(sa) {
        sa.step(cx, "both sides rekey the IKE SA");
    }
}
