//! What this side asks for, and whether an answer is one to it.

use super::{Answered, Attempt, Goal, read};
use crate::{
    connection::{Child, ChildMode, Traffic},
    ike_sa::{IkeSa, Task},
    message::Payload,
    negotiation::{confirm, is_within},
};

/// What is configured about the child that an exchange is to make.
pub(super) fn configured(sa: &IkeSa, goal: &Goal) -> Option<Child> {
    let Goal::Child { name, .. } = goal else {
        return None;
    };
    sa.connection.as_ref()?.child(name).cloned()
}

/// RFC 7296 2.9.2: a rekey asks for the traffic of the old pair; 2.9: a new pair first for the packet that needs it.
pub(super) fn wanted_traffic(
    sa: &IkeSa,
    attempt: &Attempt,
    child: &Child,
) -> (Vec<Traffic>, Vec<Traffic>) {
    if let Goal::Child {
        replaces: Some(old),
        ..
    } = attempt.goal
        && let Some(old) = sa.child(old)
    {
        return (old.local_traffic.clone(), old.remote_traffic.clone());
    }
    let (mut local, mut remote) = (child.local.clone(), child.remote.clone());
    if let Task::CreateChild {
        packet: Some((from, to)),
        ..
    } = &attempt.task
    {
        local.insert(0, *from);
        remote.insert(0, *to);
    }
    (local, remote)
}

/// Whether the answer is one to what was asked, and the peer's public value.
pub(super) fn check(
    sa: &IkeSa,
    attempt: &Attempt,
    payloads: &[Payload<'_>],
) -> Result<(Answered, Option<Vec<u8>>), String> {
    let child = configured(sa, &attempt.goal).ok_or("the child is not configured any more")?;
    let answer = read::negotiation(payloads).ok_or("SA or nonce is missing")?;
    let (initiator, responder) = answer.traffic.ok_or("traffic selectors are missing")?;
    let chosen = confirm(&child.offers, answer.association).map_err(|unfit| unfit.to_string())?;
    let spi = answer.association.proposals.first().map(|one| one.spi);
    let spi = spi
        .filter(|spi| spi.len() == 4)
        .ok_or("an SPI of 4 bytes is missing")?;
    let public = match (chosen.group(), answer.key_exchange) {
        (None, _) => None,
        (Some(group), Some(exchange))
            if exchange.group == group.transform()
                && attempt.groups.last() == Some(&exchange.group) =>
        {
            Some(exchange.public.to_vec())
        }
        (Some(_), _) => return Err("the key exchange is of another group".to_owned()),
    };
    let (local, remote) = wanted_traffic(sa, attempt, &child);
    let sent = |traffic: &[Traffic]| -> Vec<_> {
        traffic.iter().map(|traffic| traffic.selector()).collect()
    };
    // RFC 7296 2.9: the responder may narrow, never widen.
    if !is_within(initiator, &sent(&local)) || !is_within(responder, &sent(&remote)) {
        return Err("its traffic selectors are wider than those asked for".to_owned());
    }
    // RFC 7296 1.3.1: a responder that does not take transport mode leaves the notification out.
    if answer.is_transport != (child.mode == ChildMode::Transport) {
        return Err("the peer does not take the mode asked for".to_owned());
    }
    let traffic = |selectors: &[_]| {
        selectors
            .iter()
            .filter_map(Traffic::from_selector)
            .collect()
    };
    let answered = Answered {
        chosen,
        nonce: answer.nonce.to_vec(),
        spi: spi.to_vec(),
        is_transport: answer.is_transport,
        local_traffic: traffic(initiator),
        remote_traffic: traffic(responder),
    };
    Ok((answered, public))
}

/// An SPI as it travels.
pub(super) fn spi_of(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |spi| u32::from_be_bytes(*spi))
}
