//! A move between the planes that waits for rekeys.

use crate::control::ClientId;
use std::time::Instant;

/// A move that waits for rekeys.
pub(in crate::run::main_loop) struct PlaneMove {
    /// Who gets the answer.
    pub(super) client: ClientId,
    /// Which way.
    pub(super) to_kernel: bool,
    /// Until when it waits.
    pub(super) deadline: Instant,
    /// Why it goes back, if it does.
    pub(super) failure: Option<String>,
}

impl PlaneMove {
    /// When it must be looked at.
    pub(in crate::run::main_loop) fn due(&self) -> Instant {
        self.deadline
    }
}
