//! IKE_SA_INIT (RFC 7296 1.2): algorithms, key exchange, nonces, and whether a NAT is in between. Nothing of it is
//! authentic until IKE_AUTH.

use super::Context;
use crate::{
    encrypted::{MessageKey, Sealer},
    endpoint::{Action, LoggedKeys},
    exchange::{auth, forget_handles},
    ike_sa::{IkeSa, SaKeys, State},
    message::{
        Body, Payload, PayloadType,
        payload::{
            CertificateEncoding, CertificatePayload, KeyExchange, Notify, NotifyType,
            SecurityAssociation,
        },
    },
    nat::DetectionHash,
    signatures::Hash,
    work::{Handle, IkeKeyParts, Output, WorkError},
};

pub(crate) mod initiator;
pub(crate) mod responder;

/// What both sides know after IKE_SA_INIT.
#[derive(Default)]
pub(crate) struct Handshake {
    /// The whole message that this side sent: its AUTH covers it.
    pub own_message: Vec<u8>,
    /// The whole message that the peer sent.
    pub peer_message: Vec<u8>,
    pub own_nonce: Vec<u8>,
    pub peer_nonce: Vec<u8>,
    /// The peer's SIGNATURE_HASH_ALGORITHMS (RFC 7427 4).
    pub announced: Option<Vec<u16>>,
    /// Whether the peer supports IKE SAs without children (RFC 6023 3).
    pub peer_is_childless: bool,
}

/// The initiator's side, until the keys are there.
pub(crate) struct Initiating {
    pub handshake: Handshake,
    /// The group of the KE payload.
    pub group: u16,
    /// The key exchange in progress.
    pub begun: Option<Handle>,
    pub public: Vec<u8>,
    /// NAT detection hashes: the same however often the request changes.
    pub hashes: (DetectionHash, DetectionHash),
    /// The responder's cookie.
    pub cookie: Option<Vec<u8>>,
    /// How often the request was changed because the responder wanted so.
    pub restarts: u32,
    /// Why the first answer is no good. It may be forged: a better one is waited for until the request would be sent again
    /// (RFC 7296 2.21.1).
    pub refusal: Option<String>,
    /// Which child comes up with the IKE SA, and for which packet.
    pub first_child: auth::first_child::Wanted,
}

/// The responder's side, until the keys are there.
pub(crate) struct Responding {
    pub handshake: Handshake,
    /// CERTREQ: the authorities that are trusted.
    pub authorities: Vec<u8>,
}

/// The payloads of either message.
pub(super) struct Opening<'m> {
    pub association: &'m SecurityAssociation<'m>,
    pub key_exchange: KeyExchange<'m>,
    pub nonce: &'m [u8],
}

impl<'m> Opening<'m> {
    pub fn find(payloads: &'m [Payload<'m>]) -> Option<Self> {
        let (mut association, mut key_exchange, mut nonce) = (None, None, None);
        repeated(payloads).is_none().then_some(())?;
        for payload in payloads {
            match &payload.body {
                Body::SecurityAssociation(found) => association = Some(found),
                Body::KeyExchange(found) => key_exchange = Some(*found),
                Body::Nonce(found) => nonce = Some(*found),
                _ => {}
            }
        }
        Some(Self {
            association: association?,
            key_exchange: key_exchange?,
            nonce: nonce?,
        })
    }
}

/// Payloads that a message has once, if at all (RFC 7296 1.2): a second one could say something else.
const SINGLE: [PayloadType; 8] = [
    PayloadType::SECURITY_ASSOCIATION,
    PayloadType::KEY_EXCHANGE,
    PayloadType::NONCE,
    PayloadType::IDENTIFICATION_INITIATOR,
    PayloadType::IDENTIFICATION_RESPONDER,
    PayloadType::AUTHENTICATION,
    PayloadType::TRAFFIC_SELECTORS_INITIATOR,
    PayloadType::TRAFFIC_SELECTORS_RESPONDER,
];

/// A payload that is there twice and may not be.
pub(crate) fn repeated(payloads: &[Payload<'_>]) -> Option<PayloadType> {
    let count = |kind: PayloadType| {
        let of_kind = payloads
            .iter()
            .filter(|payload| payload.body.kind() == kind);
        of_kind.count()
    };
    SINGLE.into_iter().find(|kind| count(*kind) > 1)
}

/// The first notification of a type.
pub(crate) fn notification<'m>(
    payloads: &'m [Payload<'m>],
    kind: NotifyType,
) -> Option<&'m Notify<'m>> {
    payloads.iter().find_map(|payload| match &payload.body {
        Body::Notify(notify) if notify.kind == kind => Some(notify),
        _ => None,
    })
}

/// Reads the notifications that both messages may have.
fn read_notifications(sa: &mut IkeSa, handshake: &mut Handshake, payloads: &[Payload<'_>]) {
    let announced = notification(payloads, NotifyType::SignatureHashAlgorithms);
    handshake.announced = announced.map(|notify| notify.hash_algorithms().collect());
    let childless = notification(payloads, NotifyType::ChildlessIkev2Supported);
    handshake.peer_is_childless = childless.is_some();
    let fragments = notification(payloads, NotifyType::Ikev2FragmentationSupported);
    sa.peer_takes_fragments = fragments.is_some();
}

/// The hashes of SIGNATURE_HASH_ALGORITHMS as they travel.
fn announced_hashes() -> Vec<u8> {
    let numbers = Hash::ANNOUNCED.into_iter().map(Hash::number);
    numbers.flat_map(u16::to_be_bytes).collect()
}

/// The notifications at the end of both messages.
fn notifications<'a>(
    hashes: &'a (DetectionHash, DetectionHash),
    announced: &'a [u8],
) -> Vec<Payload<'a>> {
    let notifications = [
        Notify::new(NotifyType::NatDetectionSourceIp, &hashes.0),
        Notify::new(NotifyType::NatDetectionDestinationIp, &hashes.1),
        Notify::new(NotifyType::Ikev2FragmentationSupported, &[]),
        Notify::new(NotifyType::SignatureHashAlgorithms, announced),
        Notify::new(NotifyType::ChildlessIkev2Supported, &[]),
    ];
    notifications
        .into_iter()
        .map(|notify| Body::Notify(notify).into())
        .collect()
}

/// CERTREQ for these authorities: hashes of 20 bytes, one behind the other (RFC 7296 3.7).
pub(crate) fn certificate_request(authorities: &[u8]) -> Option<Payload<'_>> {
    let request = CertificatePayload {
        encoding: CertificateEncoding::X509_SIGNATURE,
        data: authorities,
    };
    (!authorities.is_empty()).then(|| Body::CertificateRequest(request).into())
}

/// The keys are there, or not.
pub(crate) fn keys(sa: &mut IkeSa, cx: &mut Context<'_>, result: Result<Output, WorkError>) {
    let parts = match result {
        Ok(Output::IkeKeys(parts)) => parts,
        Ok(other) => {
            forget_handles(cx, sa.own_spi(), &other);
            return sa.fail(cx, "no keys came out of the key exchange");
        }
        Err(error) => return sa.fail(cx, &format!("key exchange: {error}")),
    };
    let state = std::mem::replace(&mut sa.state, State::Authenticating);
    if cx.shared.settings.log_keys {
        cx.act(Action::LogKeys(Box::new(LoggedKeys {
            spis: sa.spis,
            initiator: parts.initiator.clone(),
            responder: parts.responder.clone(),
        })));
    }
    let public = match take_keys(sa, *parts) {
        Ok(public) => public,
        Err(why) => return sa.fail(cx, &why),
    };
    match state {
        State::Initiating(initiating) => {
            let Initiating {
                handshake,
                first_child,
                ..
            } = *initiating;
            auth::initiator::begin(sa, cx, handshake, first_child);
        }
        State::Responding(responding) => responder::answer(sa, cx, *responding, &public),
        other => sa.state = other,
    }
}

/// Keys for sending and receiving; the own public value comes back.
fn take_keys(sa: &mut IkeSa, parts: IkeKeyParts) -> Result<Vec<u8>, String> {
    let (own, peer) = if sa.is_initiator {
        (&parts.initiator, &parts.responder)
    } else {
        (&parts.responder, &parts.initiator)
    };
    let sealer = MessageKey::new(own).map_err(|error| error.to_string())?;
    let opener = MessageKey::new(peer).map_err(|error| error.to_string())?;
    sa.keys = Some(SaKeys {
        sealer: Sealer::new(sealer),
        opener,
        sk_d: parts.sk_d,
        authentication: Some((parts.pi, parts.pr)),
    });
    Ok(parts.public)
}
