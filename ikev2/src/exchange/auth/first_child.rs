//! The child SA that comes up with the IKE SA: its keys come from the key exchange of IKE_SA_INIT.

use super::responder;
use crate::{
    connection::{Child, ChildMode, Connection, Traffic},
    endpoint::{ChildId, Outbound, RemoveReason},
    exchange::{Context, Purpose, child, init::notification},
    ike_sa::{Ending, IkeSa, Task, children::Negotiated},
    message::{
        Body, Payload,
        payload::{Notify, NotifyType, Proposal, SecurityAssociation, TrafficSelector},
    },
    negotiation::{
        Chosen, KeyExchangeOffered, Offer, Outcome, choose as choose_proposal, confirm, is_within,
        narrow,
    },
    work::{Output, Work, WorkError},
};

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

/// The child that this side asks for.
pub(super) fn offer(
    sa: &IkeSa,
    cx: &mut Context<'_>,
    wanted: Wanted,
    peer_is_childless: bool,
) -> FirstChild {
    let Some(connection) = &sa.connection else {
        return FirstChild::None;
    };
    if connection.childless && peer_is_childless {
        return FirstChild::None;
    }
    let mut children = connection.children.iter();
    let child = match &wanted.child {
        Some(name) => children.find(|child| child.name == *name),
        None => children.find(|child| !child.on_demand),
    };
    // A peer that knows no IKE SA without a child gets one.
    match child.or(connection.children.first()) {
        Some(child) => FirstChild::Offered {
            name: child.name.clone(),
            spi: cx.child_spi(),
            packet: wanted.packet,
        },
        None => FirstChild::None,
    }
}

/// The payloads of the request.
pub(super) struct Offered<'a> {
    child: &'a Child,
    spi: [u8; 4],
    offers: Vec<Offer>,
    packet: Option<(Traffic, Traffic)>,
}

impl<'a> Offered<'a> {
    pub fn of(connection: &'a Connection, first_child: &FirstChild) -> Option<Self> {
        let FirstChild::Offered { name, spi, packet } = first_child else {
            return None;
        };
        let child = connection.child(name)?;
        Some(Self {
            child,
            spi: spi.to_be_bytes(),
            offers: offers(child),
            packet: *packet,
        })
    }

    pub fn payloads(&self) -> Vec<Payload<'_>> {
        let offers = self.offers.iter().zip(1..);
        let proposals = offers.map(|(offer, number)| offer.proposal(number, &self.spi));
        let association = SecurityAssociation {
            proposals: proposals.collect(),
        };
        // RFC 7296 2.9: the first selector is that of the packet.
        let with_packet = |packet: Option<Traffic>, all: &[Traffic]| {
            let packet = packet.map(Traffic::selector);
            packet.into_iter().chain(selectors(all)).collect()
        };
        let mut payloads = transport(self.child.mode);
        payloads.push(Body::SecurityAssociation(association).into());
        let (local, remote) = (&self.child.local, &self.child.remote);
        let initiator = with_packet(self.packet.map(|packet| packet.0), local);
        let responder = with_packet(self.packet.map(|packet| packet.1), remote);
        payloads.push(Body::TrafficSelectorsInitiator(initiator).into());
        payloads.push(Body::TrafficSelectorsResponder(responder).into());
        payloads
    }
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

/// The responder's answer to what this side asked for.
pub(super) fn answered(
    connection: &Connection,
    offered: FirstChild,
    payloads: &[Payload<'_>],
) -> FirstChild {
    let FirstChild::Offered { name, spi, .. } = offered else {
        return offered;
    };
    let Some(child) = connection.child(&name) else {
        return FirstChild::None;
    };
    let found = ChildPayloads::find(payloads);
    let Some(association) = found.association else {
        let kind = payloads.iter().find_map(|payload| match &payload.body {
            Body::Notify(notify) if notify.kind.is_error() => Some(notify.kind),
            _ => None,
        });
        let kind = kind.unwrap_or(NotifyType::NoAdditionalSas);
        return FirstChild::Refused {
            kind,
            why: refused_by_peer(child, kind),
        };
    };
    let algorithms = match confirm(&offers(child), association) {
        Ok(algorithms) => algorithms,
        Err(error) => return FirstChild::Unfit(format!("child SA {name}: {error}")),
    };
    let is_narrowed = is_within(found.initiator, &selectors(&child.local))
        && is_within(found.responder, &selectors(&child.remote));
    let own = traffic(found.initiator);
    let theirs = traffic(found.responder);
    if !is_narrowed {
        return FirstChild::Unfit(format!("child SA {name}: the peer chose other traffic"));
    }
    // RFC 7296 1.3.1: a responder that does not want transport mode leaves the notification out.
    let is_transport = child.mode == ChildMode::Transport;
    if is_transport != found.is_transport {
        return FirstChild::Unfit(format!("child SA {name}: the peer wants another mode"));
    }
    let Some(outbound_spi) = spi_of(association.proposals.first()) else {
        return FirstChild::Unfit(format!("child SA {name}: the peer sent no SPI"));
    };
    FirstChild::Agreed(Box::new(Agreed {
        name,
        algorithms,
        inbound_spi: spi,
        outbound_spi,
        mode: child.mode,
        traffic: (selectors(&own), selectors(&theirs)),
    }))
}

fn refused_by_peer(child: &Child, kind: NotifyType) -> String {
    let name = &child.name;
    match kind {
        NotifyType::NoProposalChosen => {
            let offers: Vec<_> = child.offers.iter().map(ToString::to_string).collect();
            format!(
                "child SA {name}: the peer takes none of {}",
                offers.join(", ")
            )
        }
        NotifyType::TsUnacceptable => {
            format!("child SA {name}: the peer does not want this traffic; compare both networks")
        }
        other => format!("child SA {name}: the peer refuses by {other}"),
    }
}

/// Which child of the connection the peer asks for. Nothing comes of it before the peer is authenticated.
pub(super) fn choose(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    connection: &Connection,
    payloads: &[Payload<'_>],
) -> FirstChild {
    let found = ChildPayloads::find(payloads);
    // RFC 6023 2: without SA and selectors there is no child.
    let Some(association) = found.association else {
        return FirstChild::None;
    };
    let mut misfits = Vec::new();
    let mut kind = NotifyType::TsUnacceptable;
    for child in &connection.children {
        let ours = (selectors(&child.remote), selectors(&child.local));
        let theirs = (found.initiator, found.responder);
        let Some(narrowed) = narrow(theirs, (&ours.0, &ours.1)) else {
            misfits.push(format!("{}: no common traffic", child.name));
            continue;
        };
        if child.mode == ChildMode::Transport && !found.is_transport {
            misfits.push(format!("{}: the peer wants tunnel mode", child.name));
            continue;
        }
        let ignored = KeyExchangeOffered::Ignored;
        let algorithms = match choose_proposal(&association.proposals, &offers(child), ignored) {
            Ok(Outcome::Chosen(algorithms)) => algorithms,
            Ok(Outcome::OtherGroup(_)) => continue,
            Err(refused) => {
                kind = NotifyType::NoProposalChosen;
                misfits.push(format!("{}: no proposal fits:\n{refused}", child.name));
                continue;
            }
        };
        let mut proposals = association.proposals.iter();
        let chosen = proposals.find(|proposal| proposal.number == algorithms.number);
        let Some(outbound_spi) = spi_of(chosen) else {
            continue;
        };
        return FirstChild::Agreed(Box::new(Agreed {
            name: child.name.clone(),
            algorithms,
            inbound_spi: cx.child_spi(),
            outbound_spi,
            mode: child.mode,
            traffic: (narrowed.initiator, narrowed.responder),
        }));
    }
    let why = format!(
        "no child SA fits what the peer asks for:\n{}",
        misfits.join("\n")
    );
    sa.step(cx, why.clone());
    FirstChild::Refused { kind, why }
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

/// The payloads of the response.
pub(super) struct Answered<'a> {
    first_child: &'a FirstChild,
    spi: [u8; 4],
}

impl<'a> Answered<'a> {
    pub fn of(first_child: &'a FirstChild) -> Self {
        let spi = match first_child {
            FirstChild::Installed(_, agreed) => agreed.inbound_spi.to_be_bytes(),
            _ => [0; 4],
        };
        Self { first_child, spi }
    }

    pub fn payloads(&self) -> Vec<Payload<'_>> {
        match self.first_child {
            FirstChild::Installed(_, agreed) => {
                let association = SecurityAssociation {
                    proposals: vec![agreed.algorithms.proposal(&self.spi)],
                };
                let (initiator, responder) = agreed.traffic.clone();
                let mut payloads = transport(agreed.mode);
                payloads.push(Body::SecurityAssociation(association).into());
                payloads.push(Body::TrafficSelectorsInitiator(initiator).into());
                payloads.push(Body::TrafficSelectorsResponder(responder).into());
                payloads
            }
            FirstChild::Refused { kind, .. } => {
                vec![Body::Notify(Notify::new(*kind, &[])).into()]
            }
            _ => Vec::new(),
        }
    }
}
