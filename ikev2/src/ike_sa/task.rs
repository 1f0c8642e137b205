//! What this side has to request of the peer.

use super::state::Ending;
use crate::{connection::Traffic, endpoint::ChildId};

/// Something to request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Whether the peer still answers: an empty INFORMATIONAL request (RFC 7296 2.4).
    Liveness,
    /// Delete these children.
    DeleteChildren(Vec<ChildId>),
    /// Delete the IKE SA, which then ends so.
    Close(Ending),
    /// A child SA of this name, for this packet.
    CreateChild {
        child: String,
        packet: Option<(Traffic, Traffic)>,
    },
    /// Replace a child SA.
    RekeyChild(ChildId),
    /// Replace this IKE SA.
    RekeyIke,
}
