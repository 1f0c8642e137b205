//! A request of the peer that is answered by an error.

use crate::{
    exchange::Context,
    ike_sa::IkeSa,
    message::{
        Body, ExchangeType,
        payload::{Notify, NotifyType, Protocol},
    },
    work::WorkError,
};

/// Why a request is refused: the notification, and the reason for the story.
pub(crate) struct RefusedRequest {
    pub kind: NotifyType,
    /// Protocol and SPI of the child SA that is meant.
    pub about: Option<(Protocol, Vec<u8>)>,
    pub data: Vec<u8>,
    pub why: String,
}

impl RefusedRequest {
    pub fn new(kind: NotifyType, why: impl Into<String>) -> Self {
        Self {
            kind,
            about: None,
            data: Vec::new(),
            why: why.into(),
        }
    }

    /// RFC 7296 1.3: the group that the peer should have sent.
    pub fn other_group(group: u16) -> Self {
        Self {
            data: group.to_be_bytes().to_vec(),
            ..Self::new(NotifyType::InvalidKePayload, "another group is preferred")
        }
    }
}

/// Answers by an error. The IKE SA stays.
pub(crate) fn refuse(sa: &mut IkeSa, cx: &mut Context<'_>, id: u32, refused: RefusedRequest) {
    let kind = refused.kind;
    sa.step(
        cx,
        format!(
            "a request of the peer is refused by {kind}: {}",
            refused.why
        ),
    );
    let (protocol, spi) = refused.about.unwrap_or((Protocol::NONE, Vec::new()));
    let notify = Notify {
        protocol,
        spi: &spi,
        kind,
        data: &refused.data,
    };
    sa.respond(
        cx,
        id,
        ExchangeType::CREATE_CHILD_SA,
        &[Body::Notify(notify).into()],
    );
}

/// A public value that is refused is the peer's fault; all else passes.
pub(crate) fn of_work(error: &WorkError) -> RefusedRequest {
    let kind = match error {
        WorkError::KeyExchange(_) => NotifyType::InvalidSyntax,
        _ => NotifyType::TemporaryFailure,
    };
    RefusedRequest::new(kind, error.to_string())
}
