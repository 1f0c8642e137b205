//! This side replaces the IKE SA.

use super::{adopt, fresh_spi, replacement, settle};
use crate::{
    exchange::{
        Context, Purpose,
        child::{
            Answered, Attempt, Goal, Stage, answer::is_busy, ask, first_group, pause, read, refusal,
        },
        collision::NoncePair,
    },
    ike_sa::{Current, IkeSa, Task},
    keys::IkeSpis,
    message::{
        Body, ExchangeType, Payload,
        payload::{KeyExchange, SecurityAssociation, TransformType},
    },
    negotiation::confirm,
    work::{ExchangeStep, IkeKeyParts, Output, Work, WorkError},
};
use std::time::Duration;

/// Begins [`Task::RekeyIke`].
pub(crate) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let Some(connection) = sa.connection.clone() else {
        return;
    };
    if sa.creating.ike.is_in_progress() {
        return;
    }
    // RFC 7296 2.25.2: not while something of the children is on its way.
    if is_busy(sa) {
        let at = cx.now + pause(cx, Duration::from_secs(1));
        sa.creating.later.push((at, Task::RekeyIke));
        return;
    }
    let used = sa.algorithms.as_ref().and_then(|chosen| chosen.group());
    let used = used.map(|group| group.transform());
    let is_offered = |group: &u16| {
        let mut offers = connection.ike.iter();
        offers.any(|offer| {
            offer
                .of(TransformType::KEY_EXCHANGE)
                .any(|one| one.id == *group)
        })
    };
    // The group that both ends have agreed on saves a round trip.
    let group = used.filter(is_offered);
    let group = group.or_else(|| first_group(&connection.ike));
    let spi = fresh_spi(cx);
    ask::start(sa, cx, Task::RekeyIke, Goal::Ike { spi }, group);
}

/// Key work has finished.
pub(crate) fn done(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    attempt: Box<Attempt>,
    result: Result<Output, WorkError>,
) {
    match (&attempt.stage, result) {
        (Stage::Beginning, Ok(output @ Output::Begun { .. })) => send(sa, cx, attempt, output),
        (Stage::Deriving(_), Ok(Output::IkeKeys(parts))) => complete(sa, cx, attempt, &parts),
        (Stage::Deriving(_), result) => {
            // The peer has moved the children to an IKE SA that cannot be used here.
            let why = result.map_or_else(|error| error.to_string(), |_| "no keys".to_owned());
            sa.fail(cx, &format!("the new IKE SA has no keys: {why}"));
        }
        (_, result) => {
            let why = result.map_or_else(|error| error.to_string(), |_| "no keys".to_owned());
            sa.step(cx, format!("the IKE SA cannot be rekeyed now: {why}"));
            refusal::try_later(sa, cx, &attempt);
            settle(sa, cx);
        }
    }
}

/// The request: RFC 7296 1.3.2.
fn send(sa: &mut IkeSa, cx: &mut Context<'_>, mut attempt: Box<Attempt>, begun: Output) {
    let (Some(connection), Goal::Ike { spi }, Output::Begun { begun, public }) =
        (sa.connection.clone(), &attempt.goal, begun)
    else {
        return;
    };
    let proposals = (1..)
        .zip(&connection.ike)
        .map(|(number, offer)| offer.proposal(number, spi));
    let association = SecurityAssociation {
        proposals: proposals.collect(),
    };
    let exchange = KeyExchange {
        group: attempt.groups.last().copied().unwrap_or_default(),
        public: &public,
    };
    let payloads: [Payload<'_>; 3] = [
        Body::SecurityAssociation(association).into(),
        Body::Nonce(&attempt.nonce).into(),
        Body::KeyExchange(exchange).into(),
    ];
    if sa.request(cx, ExchangeType::CREATE_CHILD_SA, &payloads) {
        attempt.stage = Stage::Asked(Some(begun));
        sa.current = Some(Current::Create(attempt));
    }
}

/// The authentic response, which is no error.
pub(crate) fn response(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    mut attempt: Box<Attempt>,
    payloads: &[Payload<'_>],
) {
    let (answered, peer) = match check(sa, &attempt, payloads) {
        Ok(answered) => answered,
        Err(why) => {
            refusal::forget(sa, cx, &attempt);
            return sa.fail(
                cx,
                &format!("the peer's answer to a rekey of the IKE SA: {why}"),
            );
        }
    };
    let (Goal::Ike { spi }, Stage::Asked(Some(begun))) = (&attempt.goal, &attempt.stage) else {
        return;
    };
    let work = Work::IkeKeys {
        exchange: ExchangeStep::Complete {
            begun: *begun,
            peer,
        },
        chosen: answered.chosen.clone(),
        nonces: (attempt.nonce.clone(), answered.nonce.clone()),
        spis: IkeSpis {
            initiator: *spi,
            responder: spi_of(&answered.spi),
        },
        replaced: sa.keys.as_ref().map(|keys| keys.sk_d),
    };
    cx.work(sa.own_spi(), Purpose::Create(attempt.number), work);
    attempt.stage = Stage::Deriving(Box::new(answered));
    sa.current = Some(Current::Create(attempt));
}

/// Whether the answer is one to what was asked, and the peer's public value.
fn check(
    sa: &IkeSa,
    attempt: &Attempt,
    payloads: &[Payload<'_>],
) -> Result<(Answered, Vec<u8>), String> {
    let connection = sa
        .connection
        .as_ref()
        .ok_or("it is not configured any more")?;
    let answer = read::negotiation(payloads).ok_or("SA or nonce is missing")?;
    let chosen = confirm(&connection.ike, answer.association).map_err(|unfit| unfit.to_string())?;
    let spi = answer.association.proposals.first().map(|one| one.spi);
    let spi = spi.filter(|spi| spi.len() == 8 && **spi != [0; 8]);
    let spi = spi.ok_or("an SPI of 8 bytes is missing")?;
    let exchange = answer.key_exchange.ok_or("the key exchange is missing")?;
    let group = chosen.group().map(|group| group.transform());
    if group != Some(exchange.group) || attempt.groups.last() != Some(&exchange.group) {
        return Err("the key exchange is of another group".to_owned());
    }
    let answered = Answered {
        chosen,
        nonce: answer.nonce.to_vec(),
        spi: spi.to_vec(),
        is_transport: false,
        local_traffic: Vec::new(),
        remote_traffic: Vec::new(),
    };
    Ok((answered, exchange.public.to_vec()))
}

fn complete(sa: &mut IkeSa, cx: &mut Context<'_>, attempt: Box<Attempt>, parts: &IkeKeyParts) {
    let Attempt {
        goal: Goal::Ike { spi },
        stage: Stage::Deriving(answered),
        nonce,
        ..
    } = *attempt
    else {
        return;
    };
    let spis = IkeSpis {
        initiator: spi,
        responder: spi_of(&answered.spi),
    };
    let nonces = NoncePair {
        initiator: nonce,
        responder: answered.nonce,
    };
    match replacement(sa, cx, (spis, true), answered.chosen, parts) {
        Some(new) => {
            let new = adopt(sa, cx, new, nonces);
            sa.creating.ike.own = Some(new);
            settle(sa, cx);
        }
        None => sa.fail(cx, "the new IKE SA has keys that do not fit"),
    }
}

pub(super) fn spi_of(bytes: &[u8]) -> [u8; 8] {
    bytes.first_chunk().copied().unwrap_or_default()
}
