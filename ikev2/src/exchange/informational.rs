//! INFORMATIONAL (RFC 7296 1.4): deletes, liveness, errors.

use super::{Context, child};
use crate::{
    endpoint::{ChildId, RemoveReason},
    ike_sa::{
        Current, Ending, IkeSa, State, Task,
        children::{ChildStage, ChildState},
    },
    message::{
        Body, ExchangeType, Payload,
        payload::{Delete, Notify, NotifyType, Protocol},
    },
};
use std::time::Duration;

const EXCHANGE: ExchangeType = ExchangeType::INFORMATIONAL;

/// What a request of this side was about.
pub(crate) enum About {
    /// Whether the peer lives.
    Liveness,
    /// These children are deleted.
    Children(Vec<(ChildId, RemoveReason)>),
    /// The IKE SA is deleted.
    Close(Ending),
}

impl IkeSa {
    /// When the peer has been silent for so long that it is asked. A request that waits for its response asks already.
    pub fn liveness_at(&self, established: &crate::ike_sa::Established) -> Option<Duration> {
        let dpd = self.connection.as_ref()?.dpd?;
        let is_idle = self.current.is_none() && self.tasks.is_empty();
        // The other side's question answers this one's too: both together would ask twice as often.
        let dpd = if self.is_initiator {
            dpd
        } else {
            dpd + dpd / 4
        };
        is_idle.then(|| established.heard_at.saturating_add(dpd))
    }
}

/// Asks the peer whether it lives, if it has been silent for too long.
pub(crate) fn check_liveness(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let due = sa
        .established()
        .and_then(|established| sa.liveness_at(established));
    if due.is_some_and(|at| at <= cx.now) {
        sa.add_task(cx, Task::Liveness);
    }
}

/// RFC 7296 1.4: an empty request, to which the peer must answer.
pub(crate) fn send_liveness(sa: &mut IkeSa, cx: &mut Context<'_>) {
    if sa.request(cx, EXCHANGE, &[]) {
        sa.current = Some(Current::Informational(About::Liveness));
    }
}

/// Deletes children: RFC 7296 1.4.1, by the SPIs of their inbound SAs.
pub(crate) fn send_delete(sa: &mut IkeSa, cx: &mut Context<'_>, children: &[ChildId]) {
    let mut deleted = Vec::new();
    let (mut esp, mut ah) = (Vec::new(), Vec::new());
    for child in &mut sa.children {
        if !children.contains(&child.id) || child.stage == ChildStage::Deleting {
            continue;
        }
        deleted.push((child.id, reason(child)));
        child.stage = ChildStage::Deleting;
        let spis = if child.protocol == Protocol::AH {
            &mut ah
        } else {
            &mut esp
        };
        spis.push(child.inbound_spi.to_be_bytes());
    }
    let payloads = deletes(&esp, &ah);
    if !payloads.is_empty() && sa.request(cx, EXCHANGE, &payloads) {
        sa.current = Some(Current::Informational(About::Children(deleted)));
    }
}

fn deletes<'a>(esp: &'a [[u8; 4]], ah: &'a [[u8; 4]]) -> Vec<Payload<'a>> {
    let parts = [(Protocol::ESP, esp), (Protocol::AH, ah)];
    let parts = parts.into_iter().filter(|(_, spis)| !spis.is_empty());
    parts
        .map(|(protocol, spis)| Body::Delete(Delete::children(protocol, spis)).into())
        .collect()
}

fn reason(child: &ChildState) -> RemoveReason {
    match child.stage {
        ChildStage::Replaced => RemoveReason::Replaced,
        ChildStage::Current | ChildStage::Deleting => RemoveReason::Deleted,
    }
}

/// Deletes the IKE SA, and with it all its children.
pub(crate) fn send_close(sa: &mut IkeSa, cx: &mut Context<'_>, ending: Ending) {
    let delete = Body::Delete(Delete::IKE_SA).into();
    if !sa.request(cx, EXCHANGE, &[delete]) {
        return;
    }
    sa.current = Some(Current::Informational(About::Close(ending)));
    sa.state = match std::mem::replace(&mut sa.state, State::Gone) {
        State::Established(established) => State::Closing(established),
        other => other,
    };
}

/// A request of the peer.
pub(crate) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, id: u32, payloads: &[Payload<'_>]) {
    let mut removed = Vec::new();
    let (mut esp, mut ah) = (Vec::new(), Vec::new());
    let mut ending = None;
    for payload in payloads {
        match &payload.body {
            Body::Delete(delete) if delete.protocol == Protocol::IKE => {
                ending = Some(closed_by_peer(sa));
            }
            Body::Delete(delete) => {
                for spi in delete.spis() {
                    let spi = u32::from_be_bytes(spi);
                    let Some(child) = sa.child_by_outbound(delete.protocol, spi) else {
                        continue;
                    };
                    // RFC 7296 1.4.1: what this side has asked to delete too is not answered by its SPI.
                    if child.stage != ChildStage::Deleting {
                        let answered = if child.protocol == Protocol::AH {
                            &mut ah
                        } else {
                            &mut esp
                        };
                        answered.push(child.inbound_spi.to_be_bytes());
                    }
                    removed.push((child.id, reason(child)));
                }
            }
            Body::Notify(notify) => {
                if let Some(why) = fatal(notify) {
                    ending = Some(Ending::Failed(why));
                }
            }
            _ => {}
        }
    }
    sa.respond(cx, id, EXCHANGE, &deletes(&esp, &ah));
    for (child, reason) in removed {
        child::deleted_by_peer(sa, cx, child);
        sa.remove_child(cx, child, reason, "the peer deleted it");
    }
    if let Some(ending) = ending {
        sa.end_and_linger(cx, ending);
    }
}

fn closed_by_peer(sa: &IkeSa) -> Ending {
    if sa.is_redundant {
        return Ending::Superseded;
    }
    Ending::Closed {
        why: "the peer deleted the IKE SA".to_owned(),
        by_peer: true,
    }
}

/// RFC 7296 2.21.2 and 2.21.3: these end the IKE SA.
fn fatal(notify: &Notify<'_>) -> Option<String> {
    match notify.kind {
        NotifyType::AuthenticationFailed => {
            Some("the peer does not accept the proof of the own identity".to_owned())
        }
        NotifyType::InvalidSyntax => {
            Some("the peer found a message of this side malformed".to_owned())
        }
        _ => None,
    }
}

/// The response to a request of this side.
pub(crate) fn response(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    about: About,
    payloads: &[Payload<'_>],
) {
    match about {
        About::Liveness => {}
        About::Children(children) => {
            for (child, reason) in children {
                sa.remove_child(cx, child, reason, "deleted by this side");
            }
        }
        About::Close(ending) => return sa.end(cx, ending),
    }
    let notifies = payloads.iter().filter_map(|payload| match &payload.body {
        Body::Notify(notify) => Some(notify),
        _ => None,
    });
    if let Some(why) = notifies.filter_map(fatal).next() {
        sa.fail(cx, &why);
    }
}
