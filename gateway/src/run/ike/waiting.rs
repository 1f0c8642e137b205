//! Clients of the control socket whose answer depends on what IKE reports.

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
        /// For people, and not as data.
        as_table: bool,
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

impl Waiting {
    /// Whether it waits for what the ike process knows.
    pub(crate) fn is_for_ike(&self) -> bool {
        matches!(
            self.wanted,
            AwaitedOutcome::Status { .. } | AwaitedOutcome::Why(_)
        )
    }
}
