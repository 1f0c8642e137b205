//! What this side has to request of the peer: one at a time, as the window of 1 requires (RFC 7296 2.3).

use super::{IkeSa, State};
use crate::{
    connection::Traffic,
    endpoint::ChildId,
    exchange::{Context, child, informational},
};

/// Something to request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Whether the peer still answers: an empty INFORMATIONAL request (RFC 7296 2.4).
    Liveness,
    /// Delete these children.
    DeleteChildren(Vec<ChildId>),
    /// Delete the IKE SA.
    Close {
        /// Why, for the story.
        reason: String,
    },
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

/// The request that waits for its response.
pub(crate) enum Current {
    /// IKE_AUTH.
    Auth,
    /// INFORMATIONAL.
    Informational(informational::About),
    /// CREATE_CHILD_SA.
    Create(Box<child::Attempt>),
}

impl IkeSa {
    /// Adds a task, unless the same waits already, and begins it if nothing else is going on.
    pub fn add_task(&mut self, cx: &mut Context<'_>, task: Task) {
        if !self.tasks.contains(&task) {
            self.tasks.push_back(task);
        }
        self.next_task(cx);
    }

    /// Begins the next task if nothing waits for a response.
    pub fn next_task(&mut self, cx: &mut Context<'_>) {
        while self.current.is_none()
            && matches!(self.state, State::Established(_))
            && self.requests.next_id().is_some()
        {
            let Some(task) = self.tasks.pop_front() else {
                return;
            };
            match task {
                Task::Liveness => informational::send_liveness(self, cx),
                Task::DeleteChildren(children) => {
                    informational::send_delete(self, cx, &children);
                }
                Task::Close { reason } => informational::send_close(self, cx, &reason),
                Task::CreateChild { .. } | Task::RekeyChild(_) | Task::RekeyIke => {
                    child::begin(self, cx, task);
                }
            }
        }
    }
}
