//! A move with associations of IKE: between the first steps and the last ones both planes carry, until rekeys have
//! brought each of them to the other plane, or back.
//!
//! ```text
//!   first steps ──► both planes, rekeys ──► last steps
//!                    │ too long, or a last step failed
//!                    └──► the way back: both planes, rekeys ──► the first steps are undone
//! ```

use super::super::Host;
use super::super::crossing::{MoveContext, sum};
use super::super::parked::{Parked, SideBySide};
use super::to_kernel::{self, ToKernel};
use super::to_user::{self, ToUser};
use crate::failure::Failure;
use crate::plane::{Mover, carry_out};
use dataplane::Totals;
use ipsec::database::Snapshot;
use ipsec::sa::SaId;
use std::sync::Arc;

impl Host {
    /// Takes the first steps; from then on both planes carry.
    pub(super) fn begin_with_rekeys(
        &mut self,
        to_kernel: bool,
        context: MoveContext<'_>,
    ) -> Result<(), Failure> {
        let snapshot = Arc::clone(&context.snapshot);
        let parked = if to_kernel {
            let mut mover = ToKernel::new(self, context);
            carry_out(
                &mut mover,
                &to_kernel::STEPS[..to_kernel::STEPS_BEFORE_REKEYS],
            )?;
            mover.park()
        } else {
            let mut mover = ToUser::new(self, context);
            carry_out(&mut mover, &to_user::STEPS[..to_user::STEPS_BEFORE_REKEYS])?;
            mover.park()
        };
        self.stand_side_by_side(parked, &snapshot);
        Ok(())
    }

    fn stand_side_by_side(&mut self, parked: Parked, snapshot: &Snapshot) {
        // On a move to the kernel its counters start at zero, so no earlier count is subtracted.
        let plane = self.kernel_plane.as_ref().filter(|_| !parked.to_kernel);
        let before = plane.map(|plane| plane.databases.carried());
        let parting = self.parting.as_ref();
        let led = parting.map_or(0, |parting| parting.sealed_by_kernel(snapshot));
        self.side = Some(SideBySide {
            parked,
            before: before.unwrap_or_default(),
            led,
        });
    }

    /// The associations of IKE that are still to pass over.
    pub(in crate::run) fn left_behind(&self, snapshot: &Snapshot) -> Vec<SaId> {
        let parting = self.parting.as_ref();
        let left = parting
            .into_iter()
            .flat_map(|parting| parting.left(snapshot));
        left.map(|config| config.id).collect()
    }

    /// From now on the way leads back to the plane that was. The next change of the databases puts it in force.
    pub(in crate::run) fn turn_back(&mut self, snapshot: &Snapshot) {
        let Some(parting) = &self.parting else {
            return;
        };
        let turned = parting.turned(snapshot);
        if let Some(crossing) = &mut self.crossing {
            crossing.leads_by_kernel = turned.to_kernel();
        }
        self.part(Some(Arc::new(turned)));
        // An error is ignored here: the next change of the databases divides the port again and reports it.
        let _ = self.divide_esp_in_udp(snapshot);
    }

    /// The last steps, once no association is left behind. On an error both planes carry as before.
    pub(in crate::run) fn end_move(&mut self, context: MoveContext<'_>) -> Result<(), Failure> {
        let Some(side) = self.side.take() else {
            return Ok(());
        };
        let (parting, snapshot) = (self.parting.clone(), Arc::clone(&context.snapshot));
        let (to_kernel, meanwhile) = (side.parked.to_kernel, self.carried_meanwhile(&side));
        let (outcome, parked) = if to_kernel {
            let mut mover = ToKernel::unpark(self, context, side.parked);
            let steps = &to_kernel::STEPS[to_kernel::STEPS_BEFORE_REKEYS..];
            (carry_out(&mut mover, steps), mover.park())
        } else {
            let mut mover = ToUser::unpark(self, context, side.parked);
            let steps = &to_user::STEPS[to_user::STEPS_BEFORE_REKEYS..];
            (carry_out(&mut mover, steps), mover.park())
        };
        if outcome.is_err() {
            self.part(parting);
            self.stand_side_by_side(parked, &snapshot);
            return outcome;
        }
        if !to_kernel {
            self.kernel_plane = None;
            self.carried_before = sum(meanwhile, self.carried_before);
        }
        self.leave_the_crossing(&snapshot);
        Ok(())
    }

    /// Undoes the first steps, once nothing is left on the plane to which they led. What could not be undone is in the
    /// answer.
    pub(in crate::run) fn undo_move(&mut self, context: MoveContext<'_>) -> Vec<String> {
        let Some(side) = self.side.take() else {
            return Vec::new();
        };
        let snapshot = Arc::clone(&context.snapshot);
        let (by_kernel, by_threads) = (self.carried_meanwhile(&side), self.by_threads());
        let before = side.parked.before;
        let faults = if side.parked.to_kernel {
            self.carried_before = sum(by_kernel, self.carried_before);
            let steps = &to_kernel::STEPS[..to_kernel::STEPS_BEFORE_REKEYS];
            undo_all(ToKernel::unpark(self, context, side.parked), steps)
        } else {
            let steps = &to_user::STEPS[..to_user::STEPS_BEFORE_REKEYS];
            let faults = undo_all(ToUser::unpark(self, context, side.parked), steps);
            // The kernel's own counts go on from its beginning.
            self.carried_before = sum(by_threads, before);
            faults
        };
        self.leave_the_crossing(&snapshot);
        self.has_cleared_kernel &= faults.is_empty();
        faults
    }

    fn carried_meanwhile(&self, side: &SideBySide) -> Totals {
        let plane = self.kernel_plane.as_ref();
        let carried = plane.map(|plane| side.carried_by(plane));
        carried.unwrap_or_default()
    }
}

fn undo_all<M: Mover>(mut mover: M, steps: &[M::Step]) -> Vec<String> {
    let mut faults = Vec::new();
    for step in steps.iter().rev() {
        if let Err(why) = mover.undo(*step) {
            faults.push(format!("this could not be undone: {step}: {why}"));
        }
    }
    faults
}
