//! What this side has to request of the peer: one at a time, as the window of 1 requires (RFC 7296 2.3).

use super::{Context, IkeSa, State, Task};

impl IkeSa {
    /// Adds a task, unless the same waits already: it is begun when nothing else is going on.
    pub fn add_task(&mut self, task: Task) {
        if !self.tasks.contains(&task) {
            self.tasks.push_back(task);
        }
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
                self.add_task(Task::CreateChild { child, packet });
            }
        }
        if let State::Established(established) = &mut self.state {
            established.children_at = Some(cx.now.saturating_add(connection.retry.1));
        }
    }
}
