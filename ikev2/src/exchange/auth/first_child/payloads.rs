//! The payloads of IKE_AUTH that are about the child.

use crate::{
    connection::{Child, ChildMode, Traffic},
    exchange::init::notification,
    message::{
        Body, Payload,
        payload::{Notify, NotifyType, Proposal, SecurityAssociation, TrafficSelector},
    },
    negotiation::Offer,
};

/// The offers without groups: RFC 7296 1.2, there is no key exchange in IKE_AUTH.
pub(super) fn offers(child: &Child) -> Vec<Offer> {
    let offers = child.offers.iter().cloned();
    offers.map(Offer::without_key_exchange).collect()
}

pub(crate) fn selectors(traffic: &[Traffic]) -> Vec<TrafficSelector<'static>> {
    traffic.iter().map(|traffic| traffic.selector()).collect()
}

pub(super) fn traffic(selectors: &[TrafficSelector<'_>]) -> Vec<Traffic> {
    let traffic = selectors.iter().filter_map(Traffic::from_selector);
    traffic.collect()
}

/// RFC 7296 1.3.1: asked for and agreed to by a notification.
pub(super) fn transport(mode: ChildMode) -> Vec<Payload<'static>> {
    match mode {
        ChildMode::Tunnel => Vec::new(),
        ChildMode::Transport => {
            vec![Body::Notify(Notify::new(NotifyType::UseTransportMode, &[])).into()]
        }
    }
}

/// The payloads of a request or of a response that are about the child.
pub(super) struct ChildPayloads<'m> {
    pub association: Option<&'m SecurityAssociation<'m>>,
    pub initiator: &'m [TrafficSelector<'m>],
    pub responder: &'m [TrafficSelector<'m>],
    pub is_transport: bool,
}

impl<'m> ChildPayloads<'m> {
    pub fn find(payloads: &'m [Payload<'m>]) -> Self {
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

pub(super) fn spi_of(proposal: Option<&Proposal<'_>>) -> Option<u32> {
    let spi = <[u8; 4]>::try_from(proposal?.spi).ok()?;
    Some(u32::from_be_bytes(spi))
}
