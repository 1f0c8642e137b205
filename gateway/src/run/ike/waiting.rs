//! Clients of the control socket whose answer depends on what the ike process reports.

use crate::control::ClientId;
use std::time::Instant;

/// A client that waits.
pub(crate) struct Waiting {
    /// Which.
    pub(crate) client: ClientId,
    /// For what.
    pub(crate) wanted: AwaitedOutcome,
    /// Until when.
    pub(crate) deadline: Instant,
}

/// What a client waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AwaitedOutcome {
    /// The status, with the report of this token.
    Status {
        /// The token.
        token: u64,
        /// What the answer shows.
        form: StatusForm,
    },
    /// The story of this token.
    Why(u64),
    /// That this peer is up.
    Up(String),
    /// That it is down.
    Down(String),
    /// That its child SAs, or its IKE SA, are rekeyed.
    Rekey {
        /// The peer.
        name: String,
        /// The IKE SA.
        ike: bool,
    },
}

impl AwaitedOutcome {
    /// Whether it is an answer of the ike process to a question.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Status { .. } | Self::Why(_))
    }
}

/// What a status shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StatusForm {
    /// Everything, as data.
    Data,
    /// Everything, for people.
    Table,
    /// These peers with their associations, for people.
    Peers(Vec<String>),
}
