//! IKE_AUTH as initiator.

use super::{first_child, identification};
use crate::{
    connection::RemoteProof,
    exchange::{Context, init::certificate_request},
    identity::Pattern,
    ike_sa::{Authenticating, Claimed, Current, Handshake, IkeSa, Wanted},
    message::{
        Body, ExchangeType, Payload,
        payload::{Notify, NotifyType},
    },
};

/// The keys are there: the own proof is made next.
pub(crate) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>, handshake: Handshake, wanted: Wanted) {
    let peer_is_childless = handshake.peer_is_childless;
    let mut auth = Authenticating::new(handshake);
    auth.first_child = first_child::offer(sa, cx, wanted, peer_is_childless);
    sa.auth = Some(Box::new(auth));
    super::prove(sa, cx);
}

/// Sends the request.
pub(super) fn send(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let (Some(connection), Some(auth)) = (sa.connection.clone(), sa.auth.take()) else {
        return;
    };
    let (number, data) = connection.local_id.to_payload();
    let mut payloads: Vec<Payload<'_>> =
        vec![Body::IdentificationInitiator(identification(number, &data)).into()];
    payloads.extend(super::own_certificates(&connection.local_proof));
    let authorities = match &connection.remote_proof {
        RemoteProof::Certificate { authorities, .. } => authorities.as_flattened(),
        RemoteProof::SharedSecret(_) => &[],
    };
    payloads.extend(certificate_request(authorities));
    let expected = match &connection.remote_id {
        Pattern::Exactly(identity) => Some(identity.to_payload()),
        _ => None,
    };
    if let Some((number, data)) = &expected {
        payloads.push(Body::IdentificationResponder(identification(*number, data)).into());
    }
    payloads.extend(auth.own_proof.as_ref().map(super::own_authentication));
    let is_first = !cx.shared.peers.is_up(&connection.name);
    let size = connection.window.to_be_bytes();
    let is_initial_contact = connection.initial_contact && is_first;
    payloads.extend(super::own_notifications(
        connection.window,
        is_initial_contact,
        &size,
    ));
    let offered = first_child::Offered::of(&connection, &auth.first_child);
    payloads.extend(offered.iter().flat_map(first_child::Offered::payloads));
    sa.step(cx, format!("this side is {}", connection.local_id));
    let is_sent = sa.request(cx, ExchangeType::IKE_AUTH, &payloads);
    sa.auth = Some(auth);
    if is_sent {
        sa.current = Some(Current::Auth);
    }
}

/// The response.
pub(crate) fn response(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload<'_>]) {
    let Some(connection) = sa.connection.clone() else {
        return;
    };
    if let Some(kind) = super::repeated(payloads) {
        return reject(sa, cx, &format!("the peer's answer has {kind} twice"));
    }
    let identity = payloads.iter().find_map(|payload| match &payload.body {
        Body::IdentificationResponder(identity) => Some(identity),
        _ => None,
    });
    let (Some(identity), Some(proof)) = (identity, super::proof(payloads)) else {
        let why = refused_by_peer(payloads);
        return sa.fail(cx, &why);
    };
    let claimed = match Claimed::read(identity) {
        Ok(claimed) => claimed,
        Err(why) => return reject(sa, cx, &why),
    };
    sa.step(cx, format!("the peer says that it is {}", claimed.identity));
    // Authorization is by connection: a proof alone is not enough.
    if !connection.remote_id.matches(&claimed.identity) {
        let (claimed, expected) = (&claimed.identity, &connection.remote_id);
        let why = format!("the peer says that it is {claimed}, but {expected} is expected");
        return reject(sa, cx, &why);
    }
    super::set_windows(sa, payloads);
    let Some(mut auth) = sa.auth.take() else {
        return;
    };
    auth.claimed = Some(claimed);
    auth.first_child = first_child::answered(&connection, auth.first_child, payloads);
    sa.auth = Some(auth);
    super::check(sa, cx, proof, super::certificates(payloads));
}

fn refused_by_peer(payloads: &[Payload<'_>]) -> String {
    let errors = payloads.iter().filter_map(|payload| match &payload.body {
        Body::Notify(notify) if notify.kind.is_error() => Some(notify.kind.to_string()),
        _ => None,
    });
    let errors: Vec<_> = errors.collect();
    match errors.as_slice() {
        [] => "the peer's answer lacks its identity or its proof".to_owned(),
        errors => format!(
            "the peer refuses by {}; its own log has the reason",
            errors.join(", ")
        ),
    }
}

/// The responder is not who it should be. It believes that the IKE SA is up: RFC 7296 2.21.2 allows an exchange of its
/// own to undeceive it.
pub(super) fn reject(sa: &mut IkeSa, cx: &mut Context<'_>, why: &str) {
    let notify = Notify::new(NotifyType::AuthenticationFailed, &[]);
    if sa.requests.next_id().is_some_and(|id| id > 1) {
        sa.request(
            cx,
            ExchangeType::INFORMATIONAL,
            &[Body::Notify(notify).into()],
        );
    }
    sa.fail(cx, why);
}
