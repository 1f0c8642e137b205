//! The request of this side that waits for key work or for its response.

use super::{creating::Attempt, state::Ending};
use crate::endpoint::ChildId;

/// The request that waits for its response.
pub(crate) enum Current {
    /// IKE_AUTH.
    Auth,
    /// INFORMATIONAL.
    Informational(About),
    /// CREATE_CHILD_SA.
    Create(Box<Attempt>),
}

/// What a request of this side was about.
pub(crate) enum About {
    /// Whether the peer lives.
    Liveness,
    /// These children are deleted.
    Children(Vec<ChildId>),
    /// The IKE SA is deleted.
    Close(Ending),
}
