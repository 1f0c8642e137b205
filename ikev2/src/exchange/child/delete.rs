//! Deletes of child SAs (RFC 7296 1.4.1), in both directions. A pair that another one has replaced still receives for
//! some seconds; any other is taken away at once.

use super::{is_rekeying, settle};
use crate::{
    child_sa::{DRAIN_TIMEOUT, Happening},
    endpoint::{ChildId, RemoveReason},
    exchange::Context,
    ike_sa::{About, Current, IkeSa},
    message::{
        Body, ExchangeType, Payload,
        payload::{Delete, Protocol},
    },
};

/// The SPIs of one Delete payload.
pub(crate) type Spis = (Protocol, Vec<[u8; 4]>);

/// Sends a Delete for these pairs.
pub(crate) fn send(sa: &mut IkeSa, cx: &mut Context<'_>, ids: &[ChildId]) {
    let mut spis = Vec::new();
    let mut deleted = Vec::new();
    for id in ids {
        let Some(pair) = sa.child_mut(*id) else {
            continue;
        };
        if !pair.advance(Happening::DeleteSent) {
            continue;
        }
        add(&mut spis, pair.protocol, pair.inbound_spi);
        deleted.push(*id);
        stop_unless_replaced(sa, cx, *id, "deleted by this side");
    }
    let payloads = payloads(&spis);
    if !payloads.is_empty() && sa.request(cx, ExchangeType::INFORMATIONAL, &payloads) {
        sa.current = Some(Current::Informational(About::Children(deleted)));
    }
}

/// RFC 7296 1.4.1: the SPIs of the own inbound SAs.
pub(crate) fn payloads(spis: &[Spis]) -> Vec<Payload<'_>> {
    spis.iter()
        .map(|(protocol, spis)| Body::Delete(Delete::children(*protocol, spis)).into())
        .collect()
}

fn add(spis: &mut Vec<Spis>, protocol: Protocol, spi: u32) {
    let spi = spi.to_be_bytes();
    match spis.iter_mut().find(|part| part.0 == protocol) {
        Some(part) => part.1.push(spi),
        None => spis.push((protocol, vec![spi])),
    }
}

/// The peer has answered the Delete for these pairs, by whatever (RFC 7296 2.25.1: an empty answer, if both have
/// deleted).
pub(crate) fn response(sa: &mut IkeSa, cx: &mut Context<'_>, ids: &[ChildId]) {
    for id in ids {
        deleted(sa, cx, *id);
    }
}

/// A Delete of the peer. What is returned is for the response.
pub(crate) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, deletes: &[Delete<'_>]) -> Vec<Spis> {
    let mut spis = Vec::new();
    for delete in deletes {
        for spi in delete.spis() {
            let spi = u32::from_be_bytes(spi);
            let Some(pair) = sa.child_by_outbound(delete.protocol, spi) else {
                sa.creating.remember_early_delete(delete.protocol, spi);
                continue;
            };
            let (id, stage) = (pair.id, pair.stage);
            // RFC 7296 2.25.1: what this side is trying to close too is left out of the response.
            if stage.is_alive() {
                add(&mut spis, pair.protocol, pair.inbound_spi);
            }
            deleted(sa, cx, id);
        }
    }
    spis
}

/// Both ends have deleted a pair.
pub(crate) fn deleted(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId) {
    let Some(pair) = sa.child_mut(id) else { return };
    if !pair.advance(Happening::Deleted) {
        return;
    }
    pair.drained_at = Some(cx.now.saturating_add(DRAIN_TIMEOUT));
    let successor = pair.peers_successor.as_ref().map(|successor| successor.id);
    if let Some(successor) = successor.and_then(|id| sa.child_mut(id)) {
        // RFC 7296 2.8: the peer has the answer by which it was made.
        successor.answered = None;
    }
    stop_unless_replaced(sa, cx, id, "the peer deleted it");
    if sa.child(id).is_some_and(|pair| pair.is_removed) && !is_rekeying(sa, id) {
        sa.remove_child(cx, id, RemoveReason::Deleted, "");
    }
}

/// A pair of which no other takes over the traffic carries nothing more: its networks are closed.
fn stop_unless_replaced(sa: &mut IkeSa, cx: &mut Context<'_>, id: ChildId, why: &str) {
    if !settle::fall_back(sa, cx, id) && !is_rekeying(sa, id) {
        sa.stop_child(cx, id, RemoveReason::Deleted, why);
    }
}

/// Whether the peer has not answered a Delete of child SAs yet.
pub(super) fn is_waiting(sa: &IkeSa) -> bool {
    matches!(
        &sa.current,
        Some(Current::Informational(About::Children(_)))
    )
}
