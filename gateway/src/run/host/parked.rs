//! A move that waits for rekeys while both planes carry.

use super::kernel_plane::KernelPlane;
use crate::plane::Carried;
use crate::run::sockets::{Divided, Sockets};
use dataplane::Totals;
use ipsec::sa::Sa;
use std::sync::Arc;

/// What a move goes on with when its rekeys are over.
pub(super) struct Parked {
    /// Which way it began.
    pub(super) to_kernel: bool,
    /// To the kernel: the associations that both planes carry, and whether each is inbound.
    pub(super) sas: Vec<(Arc<Sa>, bool)>,
    /// The sockets of the kernel's ESP in UDP.
    pub(super) sockets: Option<Sockets>,
    /// Its own ones beside those of our threads, while both take ESP in UDP of IKE.
    pub(super) divided: Option<Divided>,
    /// To our own data plane: what was carried there before this move.
    pub(super) before: Totals,
}

/// Both planes carry.
pub(super) struct SideBySide {
    /// What the move goes on with.
    pub(super) parked: Parked,
    /// What the kernel had carried when this began, if that is counted elsewhere.
    pub(super) before: Carried,
    /// How many `out` policies it has.
    pub(super) led: usize,
}

impl SideBySide {
    /// What the kernel has carried meanwhile.
    pub(super) fn carried_by(&self, plane: &KernelPlane) -> Totals {
        plane.carried_since(self.before)
    }
}
