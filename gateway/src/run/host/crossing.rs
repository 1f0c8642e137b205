//! What the steps of a move between the planes share.

use crate::routes::plan::Planes;
use crate::run::RunOptions;
use dataplane::counters::PacketCounts;
use dataplane::{Hook, Totals};
use ipsec::database::Snapshot;
use std::sync::Arc;

/// While the gateway moves.
#[derive(Clone, Copy)]
pub(super) struct Crossing {
    /// The planes that the barriers know.
    pub(super) planes: Planes,
    /// Whether routes lead to the kernel's IPsec.
    pub(super) leads_by_kernel: bool,
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
