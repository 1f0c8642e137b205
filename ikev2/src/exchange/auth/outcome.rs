//! What follows when a proof was checked or made.

use super::{first_child, initiator, prove, responder};
use crate::{
    endpoint::Event,
    exchange::{Context, Order},
    ike_sa::{Established, IkeSa, State, children::shortened},
    work::{Output, WorkError},
};

/// The peer's AUTH payload was checked.
pub(crate) fn checked(sa: &mut IkeSa, cx: &mut Context<'_>, result: Result<Output, WorkError>) {
    let Some(auth) = &mut sa.auth else { return };
    match result {
        Ok(Output::Proof { method, data }) => {
            "pre-shared key".clone_into(&mut auth.peer_proof);
            if !data.is_empty() {
                auth.own_proof = Some((method, data));
            }
        }
        Ok(Output::Verified { scheme, subject }) => {
            auth.peer_proof = format!("{scheme}, certificate of {subject}");
        }
        Ok(_) => return failed(sa, cx, "the check of the peer's proof gave something else"),
        Err(error) => return failed(sa, cx, &error.to_string()),
    }
    let has_proof = auth.own_proof.is_some();
    if sa.is_initiator || has_proof {
        authenticated(sa, cx);
    } else {
        prove(sa, cx);
    }
}

/// The own AUTH payload is there.
pub(crate) fn proven(sa: &mut IkeSa, cx: &mut Context<'_>, result: Result<Output, WorkError>) {
    let Some(auth) = &mut sa.auth else { return };
    match result {
        Ok(Output::Proof { method, data }) => auth.own_proof = Some((method, data)),
        Ok(_) => return failed(sa, cx, "the own proof is something else"),
        Err(error) => return failed(sa, cx, &format!("the own proof: {error}")),
    }
    if sa.is_initiator {
        initiator::send(sa, cx);
    } else {
        authenticated(sa, cx);
    }
}

/// The peer is not authenticated: it gets AUTHENTICATION_FAILED and no reason (RFC 7296 2.21.2).
fn failed(sa: &mut IkeSa, cx: &mut Context<'_>, why: &str) {
    if sa.is_initiator {
        initiator::reject(sa, cx, why);
    } else {
        responder::reject(sa, cx, why);
    }
}

/// Both sides are authenticated.
fn authenticated(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let (Some(auth), Some(connection)) = (&sa.auth, sa.connection.clone()) else {
        return;
    };
    let Some(claimed) = &auth.claimed else { return };
    let (identity, proof) = (claimed.identity.to_string(), auth.peer_proof.clone());
    let is_initial_contact = auth.is_initial_contact;
    let lifetime = shortened(connection.ike_lifetime, connection.jitter_percent, cx);
    sa.state = State::Established(Box::new(Established {
        identity: identity.clone(),
        proof: proof.clone(),
        since: cx.now,
        rekey_at: Some(cx.now.saturating_add(lifetime)),
        heard_at: cx.now,
        children_at: None,
    }));
    if let Some(keys) = &mut sa.keys {
        keys.authentication = None;
    }
    sa.step(cx, format!("{identity} is authenticated: {proof}"));
    let suite = sa.algorithms.as_ref().map(ToString::to_string);
    cx.event(Event::Up {
        peer: sa.peer(),
        suite: suite.unwrap_or_default(),
        proof,
    });
    if is_initial_contact {
        cx.shared.orders.push(Order::ReplaceOthers {
            keep: sa.own_spi(),
            connection: connection.name.clone(),
            identity,
            before: sa.began_at,
        });
    }
    let own = sa.own_spi();
    cx.shared.orders.push(Order::Established { own });
    first_child::start(sa, cx);
}
