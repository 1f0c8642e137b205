//! The initiator's part: which child it asks for, and whether the answer is one to that.

use super::payloads::{ChildPayloads, offers, selectors, spi_of, traffic, transport};
use crate::{
    connection::{Child, ChildMode, Connection, Traffic},
    exchange::Context,
    ike_sa::{Agreed, FirstChild, IkeSa, Wanted},
    message::{
        Body, Payload,
        payload::{NotifyType, SecurityAssociation},
    },
    negotiation::{Offer, confirm, is_within},
};

/// The child that this side asks for.
pub(in crate::exchange::auth) fn offer(
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
pub(in crate::exchange::auth) struct Offered<'a> {
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

/// The responder's answer to what this side asked for.
pub(in crate::exchange::auth) fn answered(
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
