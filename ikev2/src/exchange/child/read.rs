//! What requests and responses of CREATE_CHILD_SA hold (RFC 7296 1.3).

use crate::message::{
    Body, Payload,
    payload::{KeyExchange, Notify, NotifyType, Protocol, SecurityAssociation, TrafficSelector},
};

/// The payloads of a request, or of a response that is no error.
pub(crate) struct Negotiation<'p, 'm> {
    pub association: &'p SecurityAssociation<'m>,
    pub nonce: &'m [u8],
    pub key_exchange: Option<&'p KeyExchange<'m>>,
    /// TSi and TSr; not where an IKE SA is rekeyed.
    pub traffic: Option<(&'p [TrafficSelector<'m>], &'p [TrafficSelector<'m>])>,
    /// REKEY_SA: protocol and SPI of the child SA that is replaced.
    pub rekeys: Option<(Protocol, &'m [u8])>,
    /// USE_TRANSPORT_MODE.
    pub is_transport: bool,
}

/// `None` where a payload that is needed is missing.
pub(crate) fn negotiation<'p, 'm>(payloads: &'p [Payload<'m>]) -> Option<Negotiation<'p, 'm>> {
    let (mut association, mut nonce, mut key_exchange) = (None, None, None);
    let (mut initiator, mut responder) = (None, None);
    let (mut rekeys, mut is_transport) = (None, false);
    for payload in payloads {
        match &payload.body {
            Body::SecurityAssociation(body) => association = Some(body),
            Body::Nonce(body) => nonce = Some(*body),
            Body::KeyExchange(body) => key_exchange = Some(body),
            Body::TrafficSelectorsInitiator(body) => initiator = Some(body.as_slice()),
            Body::TrafficSelectorsResponder(body) => responder = Some(body.as_slice()),
            Body::Notify(notify) if notify.kind == NotifyType::RekeySa => {
                rekeys = Some((notify.protocol, notify.spi));
            }
            Body::Notify(notify) if notify.kind == NotifyType::UseTransportMode => {
                is_transport = true;
            }
            _ => {}
        }
    }
    Some(Negotiation {
        association: association?,
        nonce: nonce?,
        key_exchange,
        traffic: initiator.zip(responder),
        rekeys,
        is_transport,
    })
}

/// The error that a response reports. An unknown error means that the request failed (RFC 7296 3.10.1).
pub(crate) fn error<'m>(payloads: &[Payload<'m>]) -> Option<Notify<'m>> {
    payloads.iter().find_map(|payload| match &payload.body {
        Body::Notify(notify) if notify.kind.is_error() => Some(*notify),
        _ => None,
    })
}
