//! IKE_SA_INIT as initiator: the request, again with a cookie or another group where the responder wants so, and the
//! response.

use super::{Opening, notification};
use crate::{
    connection::{Connection, Encapsulation, IKE_PORT, NAT_PORT},
    exchange::{Context, NONCE_BYTES, Purpose, forget_handles},
    groups::Group,
    ike_sa::{Handshake, IkeSa, Initiating, State, Wanted},
    keys::IkeSpis,
    message::{
        Body, ExchangeType, Message, Payload,
        payload::{KeyExchange, Notify, NotifyType, SecurityAssociation, TransformType},
    },
    nat::Path,
    negotiation::confirm,
    window::Requests,
    work::{ExchangeStep, Output, Work, WorkError},
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

/// How often a responder may have the request changed: a cookie, another group, another cookie because of that, and
/// once more.
const MAX_RESTARTS: u32 = 6;

/// A new IKE SA of this side. It sends nothing before its key pair is there.
pub(crate) fn start(
    cx: &mut Context<'_>,
    connection: Arc<Connection>,
    remote: SocketAddr,
    first_child: Wanted,
) -> IkeSa {
    let mut spi = cx.random_bytes();
    while spi == [0; 8] {
        spi = cx.random_bytes();
    }
    let spis = IkeSpis {
        initiator: spi,
        responder: [0; 8],
    };
    let path = path(&connection, remote);
    let group = preferred_group(&connection);
    let own_nonce = cx.random_bytes::<NONCE_BYTES>().to_vec();
    let initiating = Initiating {
        handshake: Handshake {
            own_nonce,
            ..Handshake::default()
        },
        group,
        begun: None,
        hashes: path.hashes(spis, &mut *cx.random),
        public: Vec::new(),
        cookie: None,
        restarts: 0,
        refusal: None,
        first_child,
    };
    let state = State::Initiating(Box::new(initiating));
    let window = (connection.schedule, 1);
    let mut sa = IkeSa::new(spis, true, path, state, window, cx.now);
    sa.connection = Some(connection);
    sa.step(cx, format!("begin with {}", sa.path.remote));
    cx.work(sa.own_spi(), Purpose::Begin, Work::BeginExchange { group });
    sa
}

/// From the first local address of the same family.
fn path(connection: &Connection, remote: SocketAddr) -> Path {
    let mut local = connection.local.iter().copied();
    let unspecified = match remote.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let local = local.find(|local| local.is_ipv4() == remote.is_ipv4());
    // RFC 7296 2.23: an IKE SA may begin on port 4500 right away. A port that is not the configured one is that of a
    // NAT in front of the peer, which lets through what comes from port 4500.
    let is_configured = remote.port() == connection.remote_port;
    let local_port = if is_configured && remote.port() != NAT_PORT {
        IKE_PORT
    } else {
        NAT_PORT
    };
    Path::new(
        SocketAddr::new(local.unwrap_or(unspecified), local_port),
        remote,
        connection.encapsulation == Encapsulation::Forced,
    )
}

fn preferred_group(connection: &Connection) -> u16 {
    let mut groups = connection
        .ike
        .iter()
        .flat_map(|offer| offer.of(TransformType::KEY_EXCHANGE));
    groups.next().map_or(0, |group| group.id)
}

/// The key pair is there.
pub(crate) fn begun(sa: &mut IkeSa, cx: &mut Context<'_>, result: Result<Output, WorkError>) {
    let State::Initiating(initiating) = &mut sa.state else {
        if let Ok(output) = &result {
            forget_handles(cx, sa.own_spi(), output);
        }
        return;
    };
    match result {
        Ok(Output::Begun { begun, public }) => {
            initiating.begun = Some(begun);
            initiating.public = public;
            send(sa, cx);
        }
        Ok(_) => sa.fail(
            cx,
            "no key pair came out of the beginning of the key exchange",
        ),
        Err(error) => sa.fail(cx, &format!("key exchange: {error}")),
    }
}

/// Sends the request, as the first one with message ID 0.
fn send(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let (Some(connection), State::Initiating(initiating)) = (sa.connection.clone(), &sa.state)
    else {
        return;
    };
    let announced = super::announced_hashes();
    let offers = connection.ike.iter().zip(1..);
    let proposals = offers.map(|(offer, number)| offer.proposal(number, &[]));
    let association = SecurityAssociation {
        proposals: proposals.collect(),
    };
    let exchange = KeyExchange {
        group: initiating.group,
        public: &initiating.public,
    };
    let mut payloads: Vec<Payload<'_>> = Vec::new();
    // RFC 7296 2.6: the cookie is the first payload, all others are unchanged.
    if let Some(cookie) = &initiating.cookie {
        payloads.push(Body::Notify(Notify::new(NotifyType::Cookie, cookie)).into());
    }
    payloads.push(Body::SecurityAssociation(association).into());
    payloads.push(Body::KeyExchange(exchange).into());
    payloads.push(Body::Nonce(&initiating.handshake.own_nonce).into());
    payloads.extend(super::notifications(&initiating.hashes, &announced));
    let message = Message {
        header: sa.header(ExchangeType::IKE_SA_INIT, 0, false),
        payloads,
    };
    match message.print() {
        Ok(bytes) => {
            sa.requests = Requests::new(connection.schedule);
            sa.requests.sent(vec![bytes.clone()], cx.now);
            sa.send(cx, vec![bytes.clone()]);
            if let State::Initiating(initiating) = &mut sa.state {
                initiating.handshake.own_message = bytes;
            }
        }
        Err(error) => sa.fail(cx, &error.to_string()),
    }
}

/// The response, which any host that saw the request could have sent.
pub(crate) fn response(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    message: &Message<'_>,
    bytes: &[u8],
    to: SocketAddr,
) {
    if !matches!(sa.state, State::Initiating(_)) || !sa.requests.awaits(0) {
        return;
    }
    let payloads = &message.payloads;
    if let Some(cookie) = notification(payloads, NotifyType::Cookie) {
        return with_cookie(sa, cx, cookie.data);
    }
    if let Some(group) =
        notification(payloads, NotifyType::InvalidKePayload).and_then(Notify::group)
    {
        return with_group(sa, cx, group);
    }
    let mut errors = payloads.iter().filter_map(|payload| match &payload.body {
        Body::Notify(notify) if notify.kind.is_error() => Some(notify.kind),
        _ => None,
    });
    if let Some(error) = errors.next() {
        return doubt(sa, refused_by_peer(sa, error));
    }
    accept(sa, cx, message, bytes, to);
}

/// Nothing of IKE_SA_INIT is authentic: the first bad answer is remembered, and a good one may still come.
fn doubt(sa: &mut IkeSa, why: String) {
    if let State::Initiating(initiating) = &mut sa.state {
        initiating.refusal.get_or_insert(why);
    }
}

/// The request is not sent again after a bad answer.
pub(crate) fn give_up_after_refusal(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let State::Initiating(initiating) = &mut sa.state else {
        return;
    };
    let is_due = sa.requests.next_at().is_some_and(|at| at <= cx.now);
    if let Some(why) = initiating.refusal.take_if(|_| is_due) {
        sa.fail(cx, &why);
    }
}

fn refused_by_peer(sa: &IkeSa, error: NotifyType) -> String {
    let mut why = format!("the peer refuses by {error}");
    if let (NotifyType::NoProposalChosen, Some(connection)) = (error, &sa.connection) {
        why.push_str("; it was offered ");
        let offers: Vec<_> = connection.ike.iter().map(ToString::to_string).collect();
        why.push_str(&offers.join(", "));
    }
    why
}

/// Whether the request may be changed once more.
fn may_restart(sa: &mut IkeSa, cx: &mut Context<'_>) -> bool {
    let State::Initiating(initiating) = &mut sa.state else {
        return false;
    };
    initiating.restarts += 1;
    if initiating.restarts > MAX_RESTARTS {
        sa.fail(cx, "the peer has the first request changed again and again");
        return false;
    }
    true
}

/// RFC 7296 2.6: the same request again, with the cookie in front.
fn with_cookie(sa: &mut IkeSa, cx: &mut Context<'_>, cookie: &[u8]) {
    if !may_restart(sa, cx) {
        return;
    }
    sa.step(cx, "the peer asks for a cookie");
    if let State::Initiating(initiating) = &mut sa.state {
        initiating.cookie = Some(cookie.to_vec());
    }
    send(sa, cx);
}

/// RFC 7296 1.2: again with the group that the responder wants, if it was offered.
fn with_group(sa: &mut IkeSa, cx: &mut Context<'_>, group: u16) {
    let is_offered = sa.connection.iter().any(|connection| {
        let offers = connection.ike.iter();
        let mut offered = offers.flat_map(|offer| offer.of(TransformType::KEY_EXCHANGE));
        offered.any(|offered| offered.id == group)
    });
    let name = Group::from_transform(group).map_or("an unknown group", Group::name);
    if !is_offered {
        let why =
            format!("the peer wants the key exchange in {name} ({group}), which was not offered");
        return doubt(sa, why);
    }
    if !may_restart(sa, cx) {
        return;
    }
    sa.step(cx, format!("the peer wants the key exchange in {name}"));
    let own = sa.own_spi();
    let State::Initiating(initiating) = &mut sa.state else {
        return;
    };
    initiating.group = group;
    if let Some(begun) = initiating.begun.take() {
        cx.work(own, Purpose::Forget, Work::Forget(vec![begun]));
    }
    // Nothing is sent again until the new key pair is there.
    sa.requests = Requests::new(Default::default());
    cx.work(own, Purpose::Begin, Work::BeginExchange { group });
}

fn accept(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    message: &Message<'_>,
    bytes: &[u8],
    to: SocketAddr,
) {
    let payloads = &message.payloads;
    let (Some(opening), Some(connection)) = (Opening::find(payloads), sa.connection.clone()) else {
        return doubt(
            sa,
            "the peer's answer lacks SA, KE or nonce, or has one twice".to_owned(),
        );
    };
    if message.header.responder_spi.0 == [0; 8] {
        return doubt(sa, "the peer's answer has no SPI".to_owned());
    }
    let chosen = match confirm(&connection.ike, opening.association) {
        Ok(chosen) => chosen,
        Err(error) => return doubt(sa, error.to_string()),
    };
    let State::Initiating(initiating) = &mut sa.state else {
        return;
    };
    let is_same_group = chosen.group().map(Group::transform) == Some(initiating.group);
    if !is_same_group || opening.key_exchange.group != initiating.group {
        return doubt(
            sa,
            "the peer answered in another group than that of the request".to_owned(),
        );
    }
    let Some(begun) = initiating.begun.take() else {
        return;
    };
    sa.requests.answered(0);
    sa.spis.responder = message.header.responder_spi.0;
    // The kernel has chosen an address where none was configured.
    sa.path.local = to;
    sa.path.detect(sa.spis, payloads);
    sa.path.float();
    sa.step(cx, format!("the peer chose {chosen}"));
    let mut handshake = match &mut sa.state {
        State::Initiating(initiating) => std::mem::take(&mut initiating.handshake),
        _ => return,
    };
    handshake.peer_message = bytes.to_vec();
    handshake.peer_nonce = opening.nonce.to_vec();
    super::read_notifications(sa, &mut handshake, payloads);
    let work = Work::IkeKeys {
        exchange: ExchangeStep::Complete {
            begun,
            peer: opening.key_exchange.public.to_vec(),
        },
        chosen: chosen.clone(),
        nonces: (handshake.own_nonce.clone(), handshake.peer_nonce.clone()),
        spis: sa.spis,
        replaced: None,
    };
    if let State::Initiating(initiating) = &mut sa.state {
        initiating.handshake = handshake;
    }
    sa.algorithms = Some(chosen);
    cx.work(sa.own_spi(), Purpose::Keys, work);
}
