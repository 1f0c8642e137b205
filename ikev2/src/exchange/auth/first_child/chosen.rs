//! The responder's part: which child of the connection the peer asks for, and the answer.

use super::payloads::{ChildPayloads, offers, selectors, spi_of, transport};
use crate::{
    connection::{ChildMode, Connection},
    exchange::Context,
    ike_sa::{Agreed, FirstChild, IkeSa},
    message::{
        Body, Payload,
        payload::{Notify, NotifyType, SecurityAssociation},
    },
    negotiation::{KeyExchangeOffered, Outcome, choose as choose_proposal, narrow},
};

/// Which child of the connection the peer asks for. Nothing comes of it before the peer is authenticated.
pub(in crate::exchange::auth) fn choose(
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

/// The payloads of the response.
pub(in crate::exchange::auth) struct Answered<'a> {
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
