//! INFORMATIONAL (RFC 7296 1.4): deletes, liveness, errors.

use super::{Context, child, rekey};
use crate::{
    endpoint::RemoveReason,
    ike_sa::{About, Current, Ending, IkeSa, State, Task},
    message::{
        Body, ExchangeType, Payload,
        payload::{Delete, Notify, NotifyType, Protocol},
    },
};

const EXCHANGE: ExchangeType = ExchangeType::INFORMATIONAL;

/// Asks the peer whether it lives, if it has been silent for too long.
pub(crate) fn check_liveness(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let due = sa
        .established()
        .and_then(|established| sa.liveness_at(established));
    if due.is_some_and(|at| at <= cx.now) {
        sa.add_task(Task::Liveness);
    }
}

/// RFC 7296 1.4: an empty request, to which the peer must answer.
pub(crate) fn send_liveness(sa: &mut IkeSa, cx: &mut Context<'_>) {
    if sa.request(cx, EXCHANGE, &[]) {
        sa.current = Some(Current::Informational(About::Liveness));
    }
}

/// Deletes the IKE SA, and with it all its children.
pub(crate) fn send_close(sa: &mut IkeSa, cx: &mut Context<'_>, ending: Ending) {
    let delete = Body::Delete(Delete::IKE_SA).into();
    if !sa.request(cx, EXCHANGE, &[delete]) {
        return;
    }
    // The peer may never answer: nothing is sent or taken by the children from here on.
    let children: Vec<_> = sa.children.iter().map(|child| child.id).collect();
    for child in children {
        sa.remove_child(cx, child, RemoveReason::Deleted, "the IKE SA is deleted");
    }
    sa.current = Some(Current::Informational(About::Close(ending)));
    sa.state = match std::mem::replace(&mut sa.state, State::Gone) {
        State::Established(established) => State::Closing(established),
        other => other,
    };
}

/// A request of the peer.
pub(crate) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, id: u32, payloads: &[Payload<'_>]) {
    let mut deletes = Vec::new();
    let mut ending = None;
    for payload in payloads {
        match &payload.body {
            Body::Delete(delete) if delete.protocol == Protocol::IKE => {
                ending = Some(closed_by_peer(sa));
            }
            Body::Delete(delete) => deletes.push(*delete),
            Body::Notify(notify) => {
                if let Some(why) = fatal(notify) {
                    ending = Some(Ending::Failed(why));
                }
            }
            _ => {}
        }
    }
    let deleted = child::delete::request(sa, cx, &deletes);
    sa.respond(cx, id, EXCHANGE, &child::delete::payloads(&deleted));
    if let Some(ending) = ending {
        rekey::deleted_by_peer(sa, cx);
        sa.end_and_linger(cx, ending);
    }
}

fn closed_by_peer(sa: &IkeSa) -> Ending {
    if sa.is_redundant {
        return Ending::Superseded;
    }
    Ending::Closed {
        why: "the peer deleted the IKE SA".to_owned(),
        by_peer: true,
    }
}

/// RFC 7296 2.21.2 and 2.21.3: these end the IKE SA.
fn fatal(notify: &Notify<'_>) -> Option<String> {
    match notify.kind {
        NotifyType::AuthenticationFailed => {
            Some("the peer does not accept the proof of the own identity".to_owned())
        }
        NotifyType::InvalidSyntax => {
            Some("the peer found a message of this side malformed".to_owned())
        }
        _ => None,
    }
}

/// The response to a request of this side.
pub(crate) fn response(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    about: About,
    payloads: &[Payload<'_>],
) {
    match about {
        About::Liveness => {}
        About::Children(children) => child::delete::response(sa, cx, &children),
        About::Close(ending) => return sa.end(cx, ending),
    }
    let notifies = payloads.iter().filter_map(|payload| match &payload.body {
        Body::Notify(notify) => Some(notify),
        _ => None,
    });
    if let Some(why) = notifies.filter_map(fatal).next() {
        sa.fail(cx, &why);
    }
}
