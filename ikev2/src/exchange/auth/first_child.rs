//! The child SA that comes up with the IKE SA: its keys come from the key exchange of IKE_SA_INIT.

use super::responder;
use crate::{
    endpoint::{ChildId, Outbound, RemoveReason},
    exchange::{Context, Purpose, child, child::left::Likeness},
    ike_sa::{Ending, FirstChild, IkeSa, Task, child_state::Negotiated},
    message::payload::NotifyType,
    work::{Output, Work, WorkError},
};
use payloads::traffic;

mod asked;
mod chosen;
mod payloads;

pub(super) use asked::{Offered, answered, offer};
pub(super) use chosen::{Answered, choose};

/// Both sides are authenticated: the child's keys are made, if there is to be one.
pub(super) fn start(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let (Some(auth), Some(keys)) = (&sa.auth, &sa.keys) else {
        return;
    };
    let handshake = &auth.handshake;
    match &auth.first_child {
        FirstChild::Agreed(agreed) => {
            let (own, peer) = (handshake.own_nonce.clone(), handshake.peer_nonce.clone());
            let work = Work::ChildKeys {
                sk_d: keys.sk_d,
                exchange: None,
                chosen: agreed.algorithms.clone(),
                nonces: if sa.is_initiator {
                    (own, peer)
                } else {
                    (peer, own)
                },
            };
            cx.work(sa.own_spi(), Purpose::FirstChild, work);
        }
        FirstChild::Unfit(why) => {
            let why = why.clone();
            sa.auth = None;
            sa.add_task(Task::Close(Ending::Failed(why)));
        }
        FirstChild::Refused { why, .. } => {
            let why = why.clone();
            sa.step(cx, why);
            finish(sa, cx);
        }
        _ => finish(sa, cx),
    }
}

/// The child's keys are there.
pub(crate) fn keys(sa: &mut IkeSa, cx: &mut Context<'_>, result: Result<Output, WorkError>) {
    let (Some(mut auth), Some(connection)) = (sa.auth.take(), sa.connection.clone()) else {
        return;
    };
    let first_child = std::mem::replace(&mut auth.first_child, FirstChild::None);
    let FirstChild::Agreed(agreed) = first_child else {
        return;
    };
    let (initiator, responder) = match result {
        Ok(Output::ChildKeys {
            initiator,
            responder,
            ..
        }) => (initiator, responder),
        Ok(_) => return sa.fail(cx, "the child SA's keys are something else"),
        Err(error) => return sa.fail(cx, &format!("the child SA's keys: {error}")),
    };
    let Some(configured) = connection.child(&agreed.name) else {
        return;
    };
    let sides = (traffic(&agreed.traffic.0), traffic(&agreed.traffic.1));
    // RFC 7296 2.17: keys of the initiator are for packets that it sends.
    let (inbound, outbound, local_traffic, remote_traffic) = if sa.is_initiator {
        (responder, initiator, sides.0, sides.1)
    } else {
        (initiator, responder, sides.1, sides.0)
    };
    // INITIAL_CONTACT: what a pair of the lost IKE SA carries goes on by it until the peer is known to be ready.
    let likeness = Likeness {
        name: &agreed.name,
        protocol: agreed.algorithms.protocol,
        mode: agreed.mode,
        local_traffic: &local_traffic,
        remote_traffic: &remote_traffic,
    };
    let replaces = child::left::predecessor(sa, &likeness);
    let pair = Negotiated {
        inbound_spi: agreed.inbound_spi,
        outbound_spi: agreed.outbound_spi,
        algorithms: agreed.algorithms.clone(),
        inbound,
        outbound,
        mode: agreed.mode,
        local_traffic,
        remote_traffic,
        outbound_state: if replaces.is_some() || auth.is_second {
            Outbound::Standby
        } else {
            Outbound::Active
        },
        replaces,
        answers: None,
    };
    let id = sa.install(cx, configured, pair);
    auth.first_child = FirstChild::Installed(id, agreed);
    sa.auth = Some(auth);
}

/// The data plane has installed a child, or not. The responder answers only now: the initiator sends packets as soon as
/// it has the answer.
pub(crate) fn installed(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    id: ChildId,
    outcome: Result<(), String>,
) {
    let is_first = sa.auth.as_ref().is_some_and(
        |auth| matches!(auth.first_child, FirstChild::Installed(first, _) if first == id),
    );
    if !is_first {
        return child::installed(sa, cx, id, outcome);
    }
    if let Err(why) = outcome {
        sa.step(cx, format!("the child SA is not installed: {why}"));
        if sa.is_initiator {
            sa.auth = None;
            return sa.add_task(Task::DeleteChildren(vec![id]));
        }
        sa.remove_child(cx, id, RemoveReason::Failed, &why);
        if let Some(auth) = &mut sa.auth {
            auth.first_child = FirstChild::Refused {
                kind: NotifyType::TemporaryFailure,
                why,
            };
        }
    } else {
        let auth = sa.auth.as_ref();
        let request = auth.and_then(|auth| auth.request_id);
        let is_second = auth.is_some_and(|auth| auth.is_second);
        child::first_installed(sa, cx, id, request, is_second);
    }
    finish(sa, cx);
}

/// IKE_AUTH is over.
fn finish(sa: &mut IkeSa, cx: &mut Context<'_>) {
    if sa.is_initiator {
        sa.auth = None;
        sa.bring_up_children(cx);
    } else {
        responder::answer(sa, cx);
    }
}
