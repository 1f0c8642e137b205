//! A running gateway moves from its own data plane to the kernel's IPsec, or back: the steps of both ways.
//!
//! ```text
//!   plan: one plane ──► both, nothing led otherwise ──► out ──► in ──► the other plane alone
//!                                                                 └─► keys of IKE: rekeys are waited for ──┘
//! ```
//!
//! The barriers drop the same all the time. While both planes carry, each sequence number belongs to one of them, and
//! each association of IKE to one.

mod paces;
mod quiet;
mod rekeys;
mod shared_bundle;
mod to_kernel;
mod to_user;

use super::super::sockets;
use super::Host;
use super::crossing::{Crossing, MoveContext};
use crate::failure::Failure;
use crate::memory;
use crate::plane::{Mover, Parting, carry_out};
use crate::routes::plan::Planes;
use crate::run::icmp_validation;
use crate::run::sockets::Sockets;
use ipsec::database::Snapshot;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

impl Host {
    /// Moves to the kernel's IPsec, or from there to our own data plane. On an error the plane is the one that was.
    /// Where there are associations of IKE both planes carry when this returns, until [`Host::end_move`].
    pub(in crate::run) fn move_plane(
        &mut self,
        to_kernel: bool,
        context: MoveContext<'_>,
    ) -> Result<(), Failure> {
        self.longest_wait = None;
        let snapshot = Arc::clone(&context.snapshot);
        let parting = Parting::at_the_beginning(to_kernel, &context.snapshot);
        let has_rekeys = parting.left(&context.snapshot).next().is_some();
        self.part(Some(Arc::new(parting)));
        let outcome = if has_rekeys {
            self.begin_with_rekeys(to_kernel, context)
        } else if to_kernel {
            run(to_kernel::ToKernel::new(self, context), &to_kernel::STEPS)
        } else {
            run(to_user::ToUser::new(self, context), &to_user::STEPS)
        };
        if outcome.is_err() || !has_rekeys {
            self.leave_the_crossing(&snapshot);
        }
        if outcome.is_err() {
            // Should something of the move be left in the kernel, it goes with the next change.
            self.has_cleared_kernel = false;
        }
        outcome
    }

    /// The planes of the next plan, and whether its routes lead to the kernel's IPsec.
    pub(super) fn planes(&self) -> (Planes, bool) {
        match self.crossing {
            Some(crossing) => (crossing.planes, crossing.leads_by_kernel),
            None if self.is_by_kernel() => (Planes::Kernel, true),
            None => (Planes::User, false),
        }
    }

    /// One plane carries everything.
    fn leave_the_crossing(&mut self, snapshot: &Snapshot) {
        self.crossing = None;
        self.part(None);
        if !self.is_by_kernel()
            && let Err(why) = self.put_rings(snapshot)
        {
            (self.warn)(&format!("packet rings could not be opened: {why}"));
        }
    }

    /// Puts barriers and routes of a state between the planes.
    fn cross(
        &mut self,
        snapshot: &Snapshot,
        planes: Planes,
        leads_by_kernel: bool,
    ) -> io::Result<()> {
        self.crossing = Some(Crossing {
            planes,
            leads_by_kernel,
        });
        let needs = sockets::needs(snapshot, &self.local);
        // The plan holds selectors and addresses, no keys.
        memory::without_keys(|| {
            let plan = self.plan(snapshot, &needs)?;
            self.installed.enforce(plan)
        })
    }

    /// Sockets of which none is open yet.
    fn fresh_sockets(&self, context: &MoveContext<'_>) -> Result<Sockets, Failure> {
        let judge = icmp_validation::judge(&self.databases, &self.paths);
        let site = self.installed.site();
        let (options, outside) = (context.options, &self.outside);
        let sockets = Sockets::new(site, options, outside, &self.paths, judge, &self.warn);
        let mut sockets = sockets?;
        sockets.beside_ike = self.sockets.beside_ike;
        sockets.inherit(BTreeMap::new(), self.sockets.order().clone());
        Ok(sockets)
    }
}

/// A mover of its own for each list.
fn run<M: Mover>(mut mover: M, steps: &[M::Step]) -> Result<(), Failure> {
    carry_out(&mut mover, steps)
}
