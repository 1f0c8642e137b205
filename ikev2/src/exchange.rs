//! The exchanges of an IKE SA: what is done with each request, response and finished work.
//!
//! ```text
//!   init            IKE_SA_INIT, both roles: algorithms, key exchange, NAT     init::initiator, init::responder
//!   auth            IKE_AUTH, both roles: identities, proofs, the first child  auth::initiator, auth::responder
//!   child           CREATE_CHILD_SA: child SAs
//!   rekey           CREATE_CHILD_SA: an IKE SA in the place of another
//!   collision       both ends have rekeyed the same SA
//!   informational   INFORMATIONAL: deletes, liveness, errors
//! ```
//!
//! A function here gets the IKE SA and a [`Context`]; it sends, starts work and changes the state. It never waits.

use crate::{
    ike_sa::{Current, IkeSa, State, Task},
    message::{ExchangeType, Header, Payload, payload::NotifyType},
    work::{Output, WorkError},
};

pub(crate) mod auth;
pub(crate) mod child;
pub(crate) mod collision;
pub(crate) mod informational;
pub(crate) mod init;
mod receive;
pub(crate) mod rekey;

pub(crate) use crate::ike_sa::{Context, NONCE_BYTES, Order, Purpose, Shared, forget_handles};

pub(crate) use auth::first_child::installed as first_child_installed;

/// A work of this IKE SA has finished.
pub(crate) fn done(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    purpose: Purpose,
    result: Result<Output, WorkError>,
) {
    match purpose {
        Purpose::Begin => init::initiator::begun(sa, cx, result),
        Purpose::Keys => init::keys::made(sa, cx, result),
        Purpose::Prove => auth::outcome::proven(sa, cx, result),
        Purpose::Check => auth::outcome::checked(sa, cx, result),
        Purpose::FirstChild => auth::first_child::keys(sa, cx, result),
        Purpose::Create(number) => child::done(sa, cx, number, result),
        Purpose::Forget => {}
    }
}

/// An authentic request has come for the first time.
pub(crate) fn request(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    header: &Header,
    payloads: &[Payload<'_>],
) {
    let id = header.message_id;
    child::request_came(sa, id);
    match (header.exchange, &sa.state) {
        (ExchangeType::IKE_AUTH, State::Authenticating) if !sa.is_initiator => {
            auth::responder::request(sa, cx, id, payloads);
        }
        (ExchangeType::CREATE_CHILD_SA, State::Established(_) | State::Closing(_)) => {
            child::request(sa, cx, id, payloads);
        }
        (ExchangeType::INFORMATIONAL, State::Established(_) | State::Closing(_)) => {
            informational::request(sa, cx, id, payloads);
        }
        // RFC 7296 2.21.3: a request that makes no sense here gets an error, and nothing else happens.
        _ => sa.respond_notify(cx, id, header.exchange, NotifyType::InvalidSyntax, &[]),
    }
}

/// The authentic response to the request that waits for one.
pub(crate) fn response(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    header: &Header,
    payloads: &[Payload<'_>],
) {
    let current = sa.current.take();
    match (current, header.exchange) {
        (Some(Current::Auth), ExchangeType::IKE_AUTH) => {
            auth::initiator::response(sa, cx, payloads);
        }
        (Some(Current::Informational(about)), ExchangeType::INFORMATIONAL) => {
            informational::response(sa, cx, about, payloads);
        }
        (Some(Current::Create(attempt)), ExchangeType::CREATE_CHILD_SA) => {
            child::response(sa, cx, attempt, payloads);
        }
        (current, _) => {
            // Its private value is forgotten with the IKE SA.
            sa.current = current;
            sa.fail(cx, "the peer answered by a message of another exchange");
        }
    }
}

/// Something of [`IkeSa::next_at`] is due.
pub(crate) fn timer(sa: &mut IkeSa, cx: &mut Context<'_>) {
    if matches!(sa.state, State::Lingering(until) if until <= cx.now) {
        sa.state = State::Gone;
    }
    init::initiator::give_up_after_refusal(sa, cx);
    sa.repeat_requests(cx);
    if sa.established().is_some() {
        informational::check_liveness(sa, cx);
        child::timer(sa, cx);
        let children_at = sa.established().and_then(|known| known.children_at);
        if children_at.is_some_and(|at| at <= cx.now) {
            sa.bring_up_children(cx);
        }
        if sa.close_at.take_if(|at| *at <= cx.now).is_some() {
            let own = sa.own_spi();
            cx.shared.orders.push(Order::CloseIfOtherLives { own });
        }
    }
}

/// Begins the next task if nothing waits for a response: one request at a time, as the window of 1 requires (RFC 7296
/// 2.3).
pub(crate) fn run_tasks(sa: &mut IkeSa, cx: &mut Context<'_>) {
    while sa.current.is_none()
        && matches!(sa.state, State::Established(_))
        && sa.requests.next_id().is_some()
    {
        let Some(task) = sa.tasks.pop_front() else {
            return;
        };
        match task {
            Task::Liveness => informational::send_liveness(sa, cx),
            Task::DeleteChildren(children) => {
                child::delete::send(sa, cx, &children);
            }
            Task::Close(ending) => informational::send_close(sa, cx, ending),
            Task::CreateChild { .. } | Task::RekeyChild(_) | Task::RekeyIke => {
                child::begin(sa, cx, task);
            }
        }
    }
}
