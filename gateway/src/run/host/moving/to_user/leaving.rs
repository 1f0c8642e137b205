//! What leaves, on its way from the kernel's IPsec to our own data plane.
//!
//! ```text
//!   routes lead into the TUN device; the kernel still seals what its `out` policies select
//!     ▲ the thread stays ─► policies and associations of some groups end ─► the thread goes on behind their numbers
//!     └──────────────────────────────────── it seals what waits ◄────────────────────────────────────────────┘
//! ```

use super::ToUser;
use super::one_pause::is_one_pause;
use crate::failure::Failure;
use crate::plane::LastStates;
use crate::routes::plan::Planes;
use ipsec::database::Snapshot;
use ipsec::policy::Direction;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A thread stays no longer than this for several groups; one group takes as long as its calls do.
pub(super) const MAX_PAUSE_TIME: Duration = Duration::from_millis(5);

impl ToUser<'_> {
    pub(super) fn leaving(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let groups = self.databases()?.sealing_groups(&snapshot);
        let is_one_pause = is_one_pause(&snapshot);
        if is_one_pause && groups.is_empty() {
            self.lead_into_the_device(&snapshot)?;
        }
        let (mut groups, mut last) = (groups.into_iter().peekable(), LastStates::listen()?);
        while groups.peek().is_some() {
            let held = self.host.pause(Direction::Out);
            let began = Instant::now();
            if is_one_pause {
                self.lead_into_the_device(&snapshot)?;
            }
            last.forget();
            let (mut ended, mut outcome) = (Vec::new(), Ok(()));
            while outcome.is_ok()
                && (is_one_pause || began.elapsed() < MAX_PAUSE_TIME)
                && let Some(group) = groups.next()
            {
                let databases = self.databases()?;
                outcome = databases.end_sealing(&group, &mut last, &mut ended);
            }
            self.host.same_keys.end(&ended, &snapshot);
            outcome?;
            for sa in &ended {
                sa.state.own_all_numbers();
            }
            drop(held);
            self.has_paused_since(began);
            if groups.peek().is_some() {
                self.host.drain(Direction::Out)?;
            }
        }
        Ok(())
    }

    /// The kernel still seals the packets that its policies select.
    pub(super) fn lead_into_the_device(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let both = Planes::Both { kernel_opens: true };
        self.host.cross(snapshot, both, false).map_err(Failure::new)
    }

    pub(super) fn has_paused_since(&mut self, began: Instant) {
        let longest = self.host.longest_wait.unwrap_or_default();
        self.host.longest_wait = Some(longest.max(began.elapsed()));
    }
}
