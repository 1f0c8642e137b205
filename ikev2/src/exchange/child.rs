//! CREATE_CHILD_SA (RFC 7296 1.3).

use super::Context;
use crate::{
    endpoint::{ChildId, Use},
    ike_sa::{IkeSa, Task},
    message::{ExchangeType, Payload, payload::NotifyType},
    work::{Handle, Output, WorkError},
};
use std::time::Duration;

/// What CREATE_CHILD_SA keeps in an IKE SA.
#[derive(Default)]
pub(crate) struct Creating {}

/// A request of this side, from its first key work to its response.
pub(crate) struct Attempt {}

impl Creating {
    /// When there is something to do.
    pub fn next_at(&self) -> Option<Duration> {
        None
    }

    /// Handles to forget when the IKE SA ends.
    pub fn handles(&self) -> Vec<Handle> {
        Vec::new()
    }
}

/// Begins a task: [`Task::CreateChild`], [`Task::RekeyChild`] or [`Task::RekeyIke`].
pub(crate) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>, task: Task) {
    sa.step(cx, format!("{task:?} is not possible"));
}

/// A work of [`Purpose::Create`](super::Purpose::Create) has finished.
pub(crate) fn done(
    _sa: &mut IkeSa,
    _cx: &mut Context<'_>,
    _number: u32,
    _result: Result<Output, WorkError>,
) {
}

/// An authentic request of the peer.
pub(crate) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, id: u32, _payloads: &[Payload<'_>]) {
    let exchange = ExchangeType::CREATE_CHILD_SA;
    sa.respond_notify(cx, id, exchange, NotifyType::NoAdditionalSas, &[]);
}

/// The authentic response to `attempt`.
pub(crate) fn response(
    _sa: &mut IkeSa,
    _cx: &mut Context<'_>,
    _attempt: Attempt,
    _payloads: &[Payload<'_>],
) {
}

/// The data plane has installed a child of an exchange of this module, or not.
pub(crate) fn installed(
    _sa: &mut IkeSa,
    _cx: &mut Context<'_>,
    _child: ChildId,
    _outcome: Result<(), String>,
) {
}

/// The data plane reports about a child.
pub(crate) fn used(_sa: &mut IkeSa, _cx: &mut Context<'_>, _child: ChildId, _what: Use) {}

/// The peer has deleted this child; it is taken away next.
pub(crate) fn deleted_by_peer(_sa: &mut IkeSa, _cx: &mut Context<'_>, _child: ChildId) {}

/// Something of [`IkeSa::next_at`] is due: lifetimes.
pub(crate) fn timer(_sa: &mut IkeSa, _cx: &mut Context<'_>) {}
