//! The child SA that comes up with the IKE SA: its keys come from the key exchange of IKE_SA_INIT.

use super::responder;
use crate::{
    connection::{Child, ChildMode, Traffic},
    endpoint::{ChildId, Outbound, RemoveReason},
    exchange::{Context, Purpose, child, init::notification},
    ike_sa::{Ending, IkeSa, Task, children::Negotiated},
    message::{
        Body, Payload,
        payload::{Notify, NotifyType, Proposal, SecurityAssociation, TrafficSelector},
    },
    negotiation::{Chosen, Offer},
    work::{Output, Work, WorkError},
};

mod asked;
mod chosen;

pub(super) use asked::{Offered, answered, offer};
pub(super) use chosen::{Answered, choose};

/// Which child comes up with the IKE SA.
#[derive(Clone, Default)]
pub(crate) struct Wanted {
    /// Its name; the first one that does not wait for traffic where there is none.
    pub child: Option<String>,
    /// The packet that needs it, from this side to the peer.
    pub packet: Option<(Traffic, Traffic)>,
}

/// How far it is.
pub(crate) enum FirstChild {
    /// None is wanted.
    None,
    /// This side asks for it.
    Offered {
        name: String,
        spi: u32,
        packet: Option<(Traffic, Traffic)>,
    },
    /// Both sides want it.
    Agreed(Box<Agreed>),
    /// It is there.
    Installed(ChildId, Box<Agreed>),
    /// The IKE SA comes up without it.
    Refused { kind: NotifyType, why: String },
    /// The responder's answer is not one to what was asked for.
    Unfit(String),
}

/// What both sides want.
pub(crate) struct Agreed {
    name: String,
    algorithms: Chosen,
    inbound_spi: u32,
    outbound_spi: u32,
    mode: ChildMode,
    /// The traffic of the initiator's side, and of the responder's.
    traffic: (Vec<TrafficSelector<'static>>, Vec<TrafficSelector<'static>>),
}

/// The offers without groups: RFC 7296 1.2, there is no key exchange in IKE_AUTH.
fn offers(child: &Child) -> Vec<Offer> {
    let offers = child.offers.iter().cloned();
    offers.map(Offer::without_key_exchange).collect()
}

pub(crate) fn selectors(traffic: &[Traffic]) -> Vec<TrafficSelector<'static>> {
    traffic.iter().map(|traffic| traffic.selector()).collect()
}

fn traffic(selectors: &[TrafficSelector<'_>]) -> Vec<Traffic> {
    let traffic = selectors.iter().filter_map(Traffic::from_selector);
    traffic.collect()
}

/// RFC 7296 1.3.1: asked for and agreed to by a notification.
fn transport(mode: ChildMode) -> Vec<Payload<'static>> {
    match mode {
        ChildMode::Tunnel => Vec::new(),
        ChildMode::Transport => {
            vec![Body::Notify(Notify::new(NotifyType::UseTransportMode, &[])).into()]
        }
    }
}

/// The payloads of a request or of a response that are about the child.
struct ChildPayloads<'m> {
    association: Option<&'m SecurityAssociation<'m>>,
    initiator: &'m [TrafficSelector<'m>],
    responder: &'m [TrafficSelector<'m>],
    is_transport: bool,
}

impl<'m> ChildPayloads<'m> {
    fn find(payloads: &'m [Payload<'m>]) -> Self {
        let mut found = Self {
            association: None,
            initiator: &[],
            responder: &[],
            is_transport: notification(payloads, NotifyType::UseTransportMode).is_some(),
        };
        for payload in payloads {
            match &payload.body {
                Body::SecurityAssociation(association) => found.association = Some(association),
                Body::TrafficSelectorsInitiator(selectors) => found.initiator = selectors,
                Body::TrafficSelectorsResponder(selectors) => found.responder = selectors,
                _ => {}
            }
        }
        found
    }
}

fn spi_of(proposal: Option<&Proposal<'_>>) -> Option<u32> {
    let spi = <[u8; 4]>::try_from(proposal?.spi).ok()?;
    Some(u32::from_be_bytes(spi))
}

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
            sa.add_task(cx, Task::Close(Ending::Failed(why)));
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
    let Some(child) = connection.child(&agreed.name) else {
        return;
    };
    let sides = (traffic(&agreed.traffic.0), traffic(&agreed.traffic.1));
    // RFC 7296 2.17: keys of the initiator are for packets that it sends.
    let (inbound, outbound, local_traffic, remote_traffic) = if sa.is_initiator {
        (responder, initiator, sides.0, sides.1)
    } else {
        (initiator, responder, sides.1, sides.0)
    };
    let pair = Negotiated {
        inbound_spi: agreed.inbound_spi,
        outbound_spi: agreed.outbound_spi,
        algorithms: agreed.algorithms.clone(),
        inbound,
        outbound,
        mode: agreed.mode,
        local_traffic,
        remote_traffic,
        outbound_state: Outbound::Active,
        replaces: None,
    };
    let id = sa.install(cx, child, pair);
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
            return sa.add_task(cx, Task::DeleteChildren(vec![id]));
        }
        sa.remove_child(cx, id, RemoveReason::Failed, &why);
        if let Some(auth) = &mut sa.auth {
            auth.first_child = FirstChild::Refused {
                kind: NotifyType::TemporaryFailure,
                why,
            };
        }
    } else {
        child::installed(sa, cx, id, Ok(()));
    }
    child::carries(sa, id);
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
