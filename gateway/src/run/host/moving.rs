//! A running gateway moves from its own data plane to the kernel's IPsec, or back: the steps of both ways.
//!
//! ```text
//!   plan: one plane ──► both, nothing led otherwise ──► out ──► in ──► the other plane alone
//! ```
//!
//! The barriers drop the same all the time: what is in clear and protected. While both planes carry, each sequence number
//! belongs to one of them.

mod to_kernel;
mod to_user;

use super::super::sockets;
use super::Host;
use crate::memory;
use crate::plane::{Mover, carry_out};
use crate::routes::plan::Planes;
use crate::run::RunOptions;
use dataplane::counters::PacketCounts;
use dataplane::{Hook, Totals};
use ipsec::database::Snapshot;
use std::io;
use std::sync::Arc;

/// While the gateway moves.
#[derive(Clone, Copy)]
pub(super) struct Crossing {
    /// The planes that the barriers know.
    planes: Planes,
    /// Whether routes lead to the kernel's IPsec.
    leads_by_kernel: bool,
}

/// What a move needs beside the host.
pub(in crate::run) struct MoveContext<'a> {
    /// The options of this gateway.
    pub options: &'a RunOptions,
    /// The databases.
    pub snapshot: Arc<Snapshot>,
    /// Takes notices of the data plane's threads.
    pub hook: Hook,
}

impl Host {
    /// Moves to the kernel's IPsec, or from there to our own data plane. On an error the plane is the one that was.
    pub(in crate::run) fn move_plane(
        &mut self,
        to_kernel: bool,
        context: MoveContext<'_>,
    ) -> Result<(), String> {
        let before = self.carried_before;
        let outcome = match to_kernel {
            true => run(to_kernel::ToKernel::new(self, context), &to_kernel::STEPS),
            false => run(to_user::ToUser::new(self, context)?, &to_user::STEPS),
        };
        self.crossing = None;
        if outcome.is_err() {
            self.carried_before = before;
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
            let plan = self.plan(snapshot, &needs);
            self.installed.enforce(plan)
        })
    }
}

fn run<M: Mover>(mut mover: M, steps: &[M::Step]) -> Result<(), String> {
    carry_out(&mut mover, steps)
}

/// Both planes' counts, one after the other.
pub(super) fn sum(one: Totals, other: Totals) -> Totals {
    Totals {
        outbound: sum_of(one.outbound, &other.outbound),
        inbound: sum_of(one.inbound, &other.inbound),
    }
}

fn sum_of(mut one: PacketCounts, other: &PacketCounts) -> PacketCounts {
    one.arrived += other.arrived;
    one.packets += other.packets;
    one.bytes += other.bytes;
    one.trains += other.trains;
    one.batches += other.batches;
    one.calls += other.calls;
    for (count, more) in one.drops.iter_mut().zip(other.drops) {
        *count += more;
    }
    one
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
