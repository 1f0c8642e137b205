//! Which configured child a request of the peer is for, by which algorithms, for which traffic.

use super::{read, refused::RefusedRequest};
use crate::{
    connection::{Child, ChildMode, Traffic},
    endpoint::ChildId,
    ike_sa::IkeSa,
    message::payload::{NotifyType, TrafficSelector},
    negotiation::{Chosen, KeyExchangeOffered, Narrowed, Outcome, choose, narrow},
};

/// The configured child that fits, the algorithms, and the traffic with that of the peer as initiator's.
pub(super) fn agree(
    sa: &IkeSa,
    asked: &read::Negotiation<'_, '_>,
    replaces: Option<ChildId>,
) -> Result<(Child, Chosen, Narrowed), RefusedRequest> {
    let Some((initiator, responder)) = asked.traffic else {
        let why = "traffic selectors are missing";
        return Err(RefusedRequest::new(NotifyType::InvalidSyntax, why));
    };
    let old = replaces.and_then(|old| sa.child(old));
    let old = old.map(|old| old.name.as_str());
    let children = sa
        .connection
        .iter()
        .flat_map(|connection| &connection.children);
    let offered = match asked.key_exchange {
        Some(exchange) => KeyExchangeOffered::Payload(exchange.group),
        None => KeyExchangeOffered::Absent,
    };
    let mut refusal = RefusedRequest::new(
        NotifyType::TsUnacceptable,
        "no child is configured for such traffic",
    );
    for child in children.filter(|child| old.is_none_or(|old| old == child.name)) {
        // RFC 7296 1.3.1: transport mode has to be asked for. Where it is not configured, the answer is tunnel mode.
        if child.mode == ChildMode::Transport && !asked.is_transport {
            continue;
        }
        let (local, remote) = (selectors(&child.local), selectors(&child.remote));
        let Some(traffic) = narrow((initiator, responder), (&remote, &local)) else {
            continue;
        };
        match choose(&asked.association.proposals, &child.offers, offered) {
            Ok(Outcome::Chosen(chosen)) => return Ok((child.clone(), chosen, traffic)),
            Ok(Outcome::OtherGroup(group)) => return Err(RefusedRequest::other_group(group)),
            Err(why) => {
                refusal = RefusedRequest::new(NotifyType::NoProposalChosen, why.to_string());
            }
        }
    }
    Err(refusal)
}

fn selectors(traffic: &[Traffic]) -> Vec<TrafficSelector<'static>> {
    traffic.iter().map(|traffic| traffic.selector()).collect()
}
