//! IKE_SA_INIT (RFC 7296 1.2): algorithms, key exchange, nonces, and whether a NAT is in between. Nothing of it is
//! authentic until IKE_AUTH.

use crate::{
    ike_sa::{Handshake, IkeSa},
    message::{
        Body, Payload, PayloadType,
        payload::{
            CertificateEncoding, CertificatePayload, KeyExchange, Notify, NotifyType,
            SecurityAssociation,
        },
    },
    nat::DetectionHash,
    signatures::Hash,
};

pub(crate) mod initiator;
pub(crate) mod keys;
pub(crate) mod responder;

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
