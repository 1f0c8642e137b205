//! What this side has to request of the peer: one at a time, as the window of 1 requires (RFC 7296 2.3).

use super::{Ending, IkeSa, State};
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

    /// Asks for the children that are configured but not there. The side that began the IKE SA does so.
    pub fn bring_up_children(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        if !self.is_initiator {
            return;
        }
        for child in &connection.children {
            let is_there = self.children.iter().any(|there| there.name == child.name);
            if !child.on_demand && !is_there {
                let (child, packet) = (child.name.clone(), None);
                self.add_task(cx, Task::CreateChild { child, packet });
            }
        }
        if let State::Established(established) = &mut self.state {
            established.children_at = Some(cx.now.saturating_add(connection.retry.1));
        }
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
                    child::delete::send(self, cx, &children);
                }
                Task::Close(ending) => informational::send_close(self, cx, ending),
                Task::CreateChild { .. } | Task::RekeyChild(_) | Task::RekeyIke => {
                    child::begin(self, cx, task);
                }
            }
        }
    }
}
