//! IKE_SA_INIT as responder. Nothing is kept for a request that cannot be answered, and nothing at all for one without
//! a cookie where cookies are asked for.

use super::{Opening, notification};
use crate::{
    connection::{Encapsulation, RemoteProof},
    endpoint::peers::Candidates,
    exchange::{Context, NONCE_BYTES, Purpose},
    groups::Group,
    ike_sa::{Authenticating, Handshake, IkeSa, Responding, State},
    keys::IkeSpis,
    message::{
        Body, ExchangeType, Flags, Header, IkeSpi, Message, Payload,
        payload::{KeyExchange, Notify, NotifyType, SecurityAssociation},
    },
    nat::{Origin, Path},
    negotiation::{KeyExchangeOffered, Outcome, choose},
    work::{ExchangeStep, Work},
};

/// What comes of a request.
pub(crate) enum Begun {
    /// A new IKE SA, of which the keys are being made.
    Sa(Box<IkeSa>),
    /// An answer of which nothing is kept, and the reason for people.
    Refused(Vec<u8>, String),
    /// No answer.
    Ignored(String),
}

/// The header of an answer of which nothing is kept: without an own SPI.
fn stateless_header(request: &Header) -> Header {
    Header {
        initiator_spi: request.initiator_spi,
        responder_spi: IkeSpi::ZERO,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags {
            response: true,
            ..Flags::default()
        },
        message_id: 0,
    }
}

/// An answer of one notification.
pub(crate) fn stateless(request: &Header, kind: NotifyType, data: &[u8]) -> Vec<u8> {
    let message = Message {
        header: stateless_header(request),
        payloads: vec![Body::Notify(Notify::new(kind, data)).into()],
    };
    // INVARIANT: one short notification fits every length field.
    message.print().unwrap_or_default()
}

/// Takes a request that may be answered.
pub(crate) fn begin(
    cx: &mut Context<'_>,
    origin: Origin,
    message: &Message<'_>,
    bytes: &[u8],
    candidates: &Candidates,
) -> Begun {
    let payloads = &message.payloads;
    let Some(opening) = Opening::find(payloads) else {
        return Begun::Ignored("the request lacks SA, KE or nonce".to_owned());
    };
    let group = KeyExchangeOffered::Payload(opening.key_exchange.group);
    let chosen = match choose(&opening.association.proposals, &candidates.offers, group) {
        Ok(Outcome::Chosen(chosen)) => chosen,
        Ok(Outcome::OtherGroup(group)) => {
            let name = Group::from_transform(group).map_or("another group", Group::name);
            let answer = stateless(
                &message.header,
                NotifyType::InvalidKePayload,
                &group.to_be_bytes(),
            );
            return Begun::Refused(
                answer,
                format!("it is asked for the key exchange in {name}"),
            );
        }
        Err(refused) => {
            let answer = stateless(&message.header, NotifyType::NoProposalChosen, &[]);
            return Begun::Refused(answer, format!("no proposal fits:\n{refused}"));
        }
    };
    let mut spi = cx.random_bytes();
    while spi == [0; 8] {
        spi = cx.random_bytes();
    }
    let spis = IkeSpis {
        initiator: message.header.initiator_spi.0,
        responder: spi,
    };
    let mut path = Path::new(origin.to, origin.from, candidates.is_forced);
    path.detect(spis_of_request(spis), payloads);
    let mut handshake = Handshake {
        peer_message: bytes.to_vec(),
        own_nonce: cx.random_bytes::<NONCE_BYTES>().to_vec(),
        peer_nonce: opening.nonce.to_vec(),
        ..Handshake::default()
    };
    let mut sa = IkeSa::new(spis, false, path, State::Gone, Default::default(), cx.now);
    super::read_notifications(&mut sa, &mut handshake, payloads);
    let work = Work::IkeKeys {
        exchange: ExchangeStep::Answer {
            group: opening.key_exchange.group,
            peer: opening.key_exchange.public.to_vec(),
        },
        chosen: chosen.clone(),
        nonces: (handshake.peer_nonce.clone(), handshake.own_nonce.clone()),
        spis,
        replaced: None,
    };
    sa.step(cx, format!("{} begins; chosen: {chosen}", origin.from));
    sa.algorithms = Some(chosen);
    sa.state = State::Responding(Box::new(Responding {
        handshake,
        authorities: candidates.authorities.clone(),
    }));
    // The request counts as the one with message ID 0: its answer is kept.
    sa.responses.receive(0);
    cx.work(sa.own_spi(), Purpose::Keys, work);
    Begun::Sa(Box::new(sa))
}

/// RFC 7296 2.23: the hashes of the request were made when the responder's SPI was not known.
fn spis_of_request(spis: IkeSpis) -> IkeSpis {
    IkeSpis {
        responder: [0; 8],
        ..spis
    }
}

/// The keys are there: the response.
pub(super) fn answer(sa: &mut IkeSa, cx: &mut Context<'_>, responding: Responding, public: &[u8]) {
    let Responding {
        mut handshake,
        authorities,
    } = responding;
    let Some(chosen) = sa.algorithms.clone() else {
        return;
    };
    let hashes = sa.path.hashes(sa.spis, &mut *cx.random);
    let announced = super::announced_hashes();
    let exchange = KeyExchange {
        group: chosen.group().map_or(0, Group::transform),
        public,
    };
    let association = SecurityAssociation {
        proposals: vec![chosen.proposal(&[])],
    };
    let mut payloads: Vec<Payload<'_>> = vec![
        Body::SecurityAssociation(association).into(),
        Body::KeyExchange(exchange).into(),
        Body::Nonce(&handshake.own_nonce).into(),
    ];
    payloads.extend(super::certificate_request(&authorities));
    let peer_takes_fragments = sa.peer_takes_fragments;
    let is_known = |payload: &Payload<'_>| match &payload.body {
        // RFC 7383 2.3: only if the initiator sent it; RFC 7427 4 likewise.
        Body::Notify(notify) if notify.kind == NotifyType::Ikev2FragmentationSupported => {
            peer_takes_fragments
        }
        Body::Notify(notify) if notify.kind == NotifyType::SignatureHashAlgorithms => {
            handshake.announced.is_some()
        }
        _ => true,
    };
    let notifications = super::notifications(&hashes, &announced);
    payloads.extend(notifications.into_iter().filter(is_known));
    let message = Message {
        header: sa.header(ExchangeType::IKE_SA_INIT, 0, true),
        payloads,
    };
    match message.print() {
        Ok(bytes) => {
            sa.responses.answer(0, vec![bytes.clone()]);
            sa.send(cx, vec![bytes.clone()]);
            handshake.own_message = bytes;
            sa.auth = Some(Box::new(Authenticating::new(handshake)));
        }
        Err(error) => sa.fail(cx, &error.to_string()),
    }
}

/// The cookie of a request, if it has one: it is the first payload (RFC 7296 2.6).
pub(crate) fn cookie<'m>(message: &'m Message<'m>) -> Option<&'m [u8]> {
    notification(&message.payloads, NotifyType::Cookie).map(|notify| notify.data)
}

/// The nonce of a request.
pub(crate) fn nonce<'m>(message: &'m Message<'m>) -> Option<&'m [u8]> {
    message
        .payloads
        .iter()
        .find_map(|payload| match payload.body {
            Body::Nonce(nonce) => Some(nonce),
            _ => None,
        })
}

impl Candidates {
    /// Adds what a connection accepts.
    pub fn add(&mut self, connection: &crate::connection::Connection) {
        for offer in &connection.ike {
            if !self.offers.contains(offer) {
                self.offers.push(offer.clone());
            }
        }
        if let RemoteProof::Certificate { authorities, .. } = &connection.remote_proof {
            let (known, _) = self.authorities.as_chunks::<20>();
            let new: Vec<_> = authorities
                .iter()
                .filter(|hash| !known.contains(hash))
                .copied()
                .collect();
            self.authorities.extend(new.as_flattened());
        }
        self.is_forced |= connection.encapsulation == Encapsulation::Forced;
    }
}
