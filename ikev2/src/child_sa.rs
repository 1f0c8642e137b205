//! One pair of child SAs, from its installation to its end: which stage follows which, and when.
//!
//! ```text
//!   Installing ─► Standby ─► Current ─► Replaced ─► Deleting ─► Draining ─► removed
//!       │            │         ▲  ▲________│           ▲           ▲
//!       └────────────┼─────────┘ its replacement       │           │ deleted by the peer, or by the
//!        no other    │           was deleted           │           │ response to the own Delete:
//!        pair        └─────────────────────────────────┘───────────┘ late packets are taken for 5 s
//! ```
//!
//! Outbound traffic moves from Standby to Current: the responder of a rekey waits for a sign that the peer is ready.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long the inbound SA of a pair that another one has replaced takes packets after the pair was deleted: those that
/// were on the way.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the responder of a rekey waits for a sign that the initiator has installed the new pair (RFC 7296 2.8)
/// before outbound traffic moves without one. Counted from the last time the answer was sent, and doubled each time
/// that the request came again: then the initiator did not have the answer yet.
pub const MOVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where a pair is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// The data plane was asked to install it.
    Installing,
    /// It receives. Outbound traffic still takes the pair that it replaces.
    Standby,
    /// It carries both directions.
    Current,
    /// It receives; another pair carries outbound traffic. One of the ends deletes it.
    Replaced,
    /// This side has sent a Delete for it and waits for the response.
    Deleting,
    /// Both ends have deleted it: packets that were on the way are still taken.
    Draining,
}

/// What happens to a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Happening {
    /// The data plane has installed it.
    Installed,
    /// Outbound traffic moves to it.
    MovedTo,
    /// Outbound traffic moves to another pair.
    MovedAway,
    /// This side sends a Delete for it.
    DeleteSent,
    /// The peer has deleted it, or has answered the Delete.
    Deleted,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 6] = [
        Self::Installing,
        Self::Standby,
        Self::Current,
        Self::Replaced,
        Self::Deleting,
        Self::Draining,
    ];

    /// The stage that follows; `None` where this cannot happen, and the stage stays.
    pub fn after(self, happening: Happening) -> Option<Self> {
        Some(match (self, happening) {
            (Self::Installing, Happening::Installed) => Self::Standby,
            (Self::Installing | Self::Standby | Self::Replaced, Happening::MovedTo) => {
                Self::Current
            }
            (Self::Current, Happening::MovedAway) => Self::Replaced,
            (
                Self::Installing | Self::Standby | Self::Current | Self::Replaced,
                Happening::DeleteSent,
            ) => Self::Deleting,
            (stage, Happening::Deleted) if stage != Self::Draining => Self::Draining,
            _ => return None,
        })
    }

    /// Whether it exists at both ends as far as is known here: nothing has begun to end it.
    pub fn is_alive(self) -> bool {
        !matches!(self, Self::Deleting | Self::Draining)
    }
}

/// How long outbound traffic waits at most, where the request came `repetitions` times more.
pub fn move_timeout(repetitions: u32) -> Duration {
    MOVE_TIMEOUT.saturating_mul(1 << repetitions.min(5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Happening as H;
    use Stage as S;

    #[test]
    fn stages_follow_each_other_as_in_the_table_and_in_no_other_way() {
        #[rustfmt::skip]
        let table = [
            (S::Installing, [Some(S::Standby), Some(S::Current), None, Some(S::Deleting), Some(S::Draining)]),
            (S::Standby, [None, Some(S::Current), None, Some(S::Deleting), Some(S::Draining)]),
            (S::Current, [None, None, Some(S::Replaced), Some(S::Deleting), Some(S::Draining)]),
            (S::Replaced, [None, Some(S::Current), None, Some(S::Deleting), Some(S::Draining)]),
            (S::Deleting, [None, None, None, None, Some(S::Draining)]),
            (S::Draining, [None, None, None, None, None]),
        ];
        let happenings = [
            H::Installed,
            H::MovedTo,
            H::MovedAway,
            H::DeleteSent,
            H::Deleted,
        ];
        assert_eq!(table.map(|(stage, _)| stage), S::ALL);
        for (stage, row) in table {
            for (happening, expected) in happenings.into_iter().zip(row) {
                assert_eq!(stage.after(happening), expected, "{stage:?}, {happening:?}");
            }
        }
    }

    #[test]
    fn a_pair_that_ends_never_carries_outbound_traffic_again() {
        for stage in [S::Deleting, S::Draining] {
            assert!(!stage.is_alive());
            for happening in [H::Installed, H::MovedTo] {
                assert_eq!(stage.after(happening), None);
            }
        }
    }

    #[test]
    fn the_responder_waits_longer_each_time_the_request_comes_again() {
        let times: Vec<_> = (0..8).map(|again| move_timeout(again).as_secs()).collect();
        assert_eq!(times, [2, 4, 8, 16, 32, 64, 64, 64]);
    }
}
