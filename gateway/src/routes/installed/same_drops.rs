//! Changes to a plan that drops what the plan in force drops: associations come and go, and their MTUs and outer
//! addresses with them. Neither the rules of the barriers nor routing rules change.

use super::Installed;
use crate::routes::plan::Plan;
use crate::routes::tables::Tables;
use std::io;

impl<T: Tables> Installed<T> {
    /// Puts the routes of a plan that differ from those in force, while the gateway's own packets of both plans pass.
    /// What other programs have deleted is not looked for here: the watch restores it.
    pub(super) fn lead_otherwise(&mut self, plan: Plan) -> io::Result<()> {
        let outer = self.plan.as_ref().map(|old| &old.outer);
        let both = outer.filter(|old| **old != plan.outer).map(|old| Plan {
            outer: old | &plan.outer,
            ..plan.clone()
        });
        let outcome = match &both {
            Some(both) => self.lead_with_outer(both, &plan),
            None => self.put_changed_routes(&plan),
        };
        if outcome.is_ok() {
            self.plan = Some(plan);
        } else {
            self.closed = both.or(Some(plan));
            // If the rollback fails, the watch repeats it; until then the same traffic is dropped.
            let _ = self.settle();
        }
        outcome
    }

    fn lead_with_outer(&mut self, both: &Plan, plan: &Plan) -> io::Result<()> {
        self.install_outer(both)?;
        self.put_changed_routes(plan)?;
        self.install_outer(plan)
    }

    fn install_outer(&mut self, plan: &Plan) -> io::Result<()> {
        for number in 0..self.barriers.len() {
            self.say_whether_needed(number);
            self.barriers[number].install_outer(plan)?;
        }
        Ok(())
    }
}
