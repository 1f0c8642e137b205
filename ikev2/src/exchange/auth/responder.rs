//! IKE_AUTH as responder: finds the connection by both identities, and answers.

use super::{
    first_child::{Answered, choose},
    identification,
};
use crate::{
    authentication::Method,
    connection::{Connection, RemoteProof},
    exchange::{Context, init::notification},
    identity::{Identity, Pattern},
    ike_sa::{Claimed, IkeSa},
    message::{
        Body, ExchangeType, Payload,
        payload::{Identification, NotifyType},
    },
    negotiation::Chosen,
    window::Requests,
};
use std::sync::Arc;

/// The request.
pub(crate) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, id: u32, payloads: &[Payload<'_>]) {
    let Some(auth) = &mut sa.auth else { return };
    if auth.request_id.is_some() {
        // A second IKE_AUTH request belongs to EAP, which is not supported.
        return reject(sa, cx, "the peer sent another IKE_AUTH request");
    }
    auth.request_id = Some(id);
    auth.is_initial_contact = notification(payloads, NotifyType::InitialContact).is_some();
    if let Some(kind) = super::repeated(payloads) {
        return reject(sa, cx, &format!("the peer's request has {kind} twice"));
    }
    let found = read(sa, cx, payloads);
    let (connection, claimed, proof) = match found {
        Ok(found) => found,
        Err(why) => return reject(sa, cx, &why),
    };
    sa.step(cx, format!("connection {}", connection.name));
    sa.requests = Requests::new(connection.schedule);
    sa.connection = Some(Arc::clone(&connection));
    super::set_windows(sa, payloads);
    let first_child = choose(sa, cx, &connection, payloads);
    if let Some(auth) = &mut sa.auth {
        auth.claimed = Some(claimed);
        auth.first_child = first_child;
    }
    super::check(sa, cx, proof, super::certificates(payloads));
}

/// What a first IKE_AUTH request says: the connection, the claimed identity, and method and value of the proof.
type AuthRequest = (Arc<Connection>, Claimed, (u8, Vec<u8>));

/// The connection, the identity that the peer claims, and its proof, which is not checked yet.
fn read(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    payloads: &[Payload<'_>],
) -> Result<AuthRequest, String> {
    let mut initiator: Option<&Identification<'_>> = None;
    let mut responder: Option<&Identification<'_>> = None;
    for payload in payloads {
        match &payload.body {
            Body::IdentificationInitiator(found) => initiator = Some(found),
            Body::IdentificationResponder(found) => responder = Some(found),
            _ => {}
        }
    }
    let initiator = initiator.ok_or("the peer sent no identity")?;
    let claimed = Claimed::read(initiator)?;
    let expected = responder.map(Claimed::read).transpose()?;
    let expected = expected.map(|expected| expected.identity);
    sa.step(
        cx,
        match &expected {
            Some(expected) => format!(
                "the peer says that it is {}, and expects {expected} here",
                claimed.identity
            ),
            None => format!("the peer says that it is {}", claimed.identity),
        },
    );
    let proof = super::proof(payloads)
        .ok_or("the peer sent no AUTH payload: it wants EAP, which is not supported as a proof")?;
    let chosen = sa.algorithms.clone().ok_or("no algorithms")?;
    let ends = (sa.path.local.ip(), sa.path.remote.ip());
    let peers = &cx.shared.peers;
    let wanted = Wanted {
        claimed: &claimed.identity,
        expected: expected.as_ref(),
        by_secret: proof.0 == Method::SharedSecret.number(),
        chosen: &chosen,
    };
    let fitting = peers.expecting(ends, &claimed.identity);
    let connection = wanted.find(fitting).ok_or_else(|| {
        let misfits = peers.candidates(ends.0, ends.1);
        wanted.refusal(misfits.take(MAX_MISFITS))
    })?;
    Ok((connection, claimed, proof))
}

/// What a connection has to fit.
struct Wanted<'a> {
    claimed: &'a Identity,
    expected: Option<&'a Identity>,
    by_secret: bool,
    chosen: &'a Chosen,
}

impl Wanted<'_> {
    /// The connection whose identities fit best, exact ones before patterns.
    fn find(&self, candidates: Vec<Arc<Connection>>) -> Option<Arc<Connection>> {
        let rank = |connection: &Arc<Connection>| match connection.remote_id {
            Pattern::Exactly(_) => 0,
            Pattern::UnderDomain(_) | Pattern::AtDomain(_) => 1,
            Pattern::Any => 2,
        };
        let is_fit = |connection: &Arc<Connection>| self.misfit(connection).is_none();
        // The first of equals: connections for this address come before those for any.
        candidates.into_iter().filter(is_fit).min_by_key(rank)
    }

    /// Why none of these fits.
    fn refusal<'c>(&self, candidates: impl Iterator<Item = &'c Arc<Connection>>) -> String {
        let why = candidates.filter_map(|connection| {
            let why = self.misfit(connection)?;
            Some(format!("{}: {why}", connection.name))
        });
        let why = why.collect::<Vec<_>>().join("\n");
        format!("no connection fits the peer {}:\n{why}", self.claimed)
    }

    fn misfit(&self, connection: &Connection) -> Option<String> {
        let expected = &connection.remote_id;
        if !expected.matches(self.claimed) {
            return Some(format!("it is for the peer {expected}"));
        }
        if let Some(expected) = self.expected
            && *expected != connection.local_id
        {
            let own = &connection.local_id;
            return Some(format!("the own identity is {own}, not {expected}"));
        }
        let by_secret = matches!(connection.remote_proof, RemoteProof::SharedSecret(_));
        if by_secret != self.by_secret {
            return Some(if by_secret {
                "it wants a pre-shared key, and the peer proves itself by a signature".to_owned()
            } else {
                "it wants a certificate, and the peer proves itself by a pre-shared key".to_owned()
            });
        }
        let is_offered = connection.ike.iter().any(|offer| self.chosen.is_of(offer));
        (!is_offered).then(|| format!("it does not accept {}", self.chosen))
    }
}

/// Connections that an explanation names.
const MAX_MISFITS: usize = 8;

/// Refuses the peer: it gets no reason (RFC 7296 2.21.2), the story does.
pub(super) fn reject(sa: &mut IkeSa, cx: &mut Context<'_>, why: &str) {
    let id = sa.auth.as_ref().and_then(|auth| auth.request_id);
    if let Some(id) = id {
        let notify = NotifyType::AuthenticationFailed;
        sa.respond_notify(cx, id, ExchangeType::IKE_AUTH, notify, &[]);
    }
    sa.fail_and_linger(cx, why);
}

/// The response, when the first child is installed or is not to be.
pub(super) fn answer(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let (Some(connection), Some(auth)) = (sa.connection.clone(), sa.auth.take()) else {
        return;
    };
    let Some(id) = auth.request_id else { return };
    let (number, data) = connection.local_id.to_payload();
    let mut payloads: Vec<Payload<'_>> =
        vec![Body::IdentificationResponder(identification(number, &data)).into()];
    payloads.extend(super::own_certificates(&connection.local_proof));
    payloads.extend(auth.own_proof.as_ref().map(super::own_authentication));
    let size = connection.window.to_be_bytes();
    payloads.extend(super::own_notifications(connection.window, false, &size));
    let answered = Answered::of(&auth.first_child);
    payloads.extend(answered.payloads());
    sa.respond(cx, id, ExchangeType::IKE_AUTH, &payloads);
}
