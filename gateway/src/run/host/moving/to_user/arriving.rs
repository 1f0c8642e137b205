//! What arrives, on its way from the kernel's IPsec to our own data plane.
//!
//! ```text
//!   native       a copy of each packet reaches both planes; our threads open none while the kernel does
//!     ▲ the thread stays ─► the kernel's associations of some bundles end ─► it opens what their windows do not have
//!     └─────────────────────────────────── it opens what waits ◄──────────────────────────────────────┘
//!   ESP in UDP   our sockets take it ─► the kernel's windows ─► the threads start with what has come since
//! ```

use super::ToUser;
use super::leaving::MAX_PAUSE_TIME;
use crate::failure::Failure;
use crate::plane::LastStates;
use crate::run::host::crossing::sum;
use crate::run::host::kernel_plane::KernelPlane;
use crate::run::host::moving::shared_bundle::has_numbers;
use dataplane::Totals;
use ipsec::policy::Direction;
use ipsec::sa::Sa;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the kernel may take for a packet of which our thread has read a copy.
const MAX_KERNEL_TIME: Duration = Duration::from_micros(500);

/// How long copies of what the kernel has opened without a replay window may wait for our threads: meanwhile these open
/// nothing of such associations.
const MAX_COPIES_TIME: Duration = Duration::from_millis(300);

impl ToUser<'_> {
    /// The threads seal and open nothing by what the kernel has.
    pub(super) fn leave_to_the_kernel(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let databases = self.databases()?;
        let kernels = snapshot
            .sas()
            .filter(|sa| databases.sa(&sa.config.id).is_some());
        kernels.for_each(|sa| sa.state.leave_all_numbers());
        Ok(())
    }

    /// Bundles in UDP: none of their packets reaches the kernel any more.
    pub(super) fn take_over_in_udp(&mut self) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.context.snapshot);
        let mut bundles = self.databases()?.opening_bundles(&snapshot);
        bundles.retain(|bundle| bundle.iter().any(|sa| is_in_udp(sa)));
        if bundles.is_empty() {
            self.waiting_since = None;
        }
        let all = bundles.into_iter().flatten();
        let (in_udp, inside): (Vec<_>, Vec<_>) = all.partition(|sa| is_in_udp(sa));
        let databases = self.databases()?;
        databases.take_over_windows(&in_udp)?;
        let mut last = LastStates::listen()?;
        for sa in &inside {
            databases.end_opening(&sa.config.id, &mut last)?;
        }
        // What waits came after the kernel's last packet, also where no window tells.
        let without = in_udp.iter().chain(&inside);
        without
            .filter(|sa| sa.config.replay_window == 0)
            .for_each(|sa| sa.state.own_all_numbers());
        Ok(())
    }

    pub(super) fn inbound(&mut self) -> Result<(), Failure> {
        let (snapshot, before) = (Arc::clone(&self.context.snapshot), self.by_kernel().inbound);
        let mut bundles = self.databases()?.opening_bundles(&snapshot);
        // What comes for those without a window is lost until the end.
        bundles.sort_by_key(|bundle| bundle.iter().any(|sa| is_without_window(sa)));
        let (mut bundles, mut last) = (bundles.into_iter().peekable(), LastStates::listen()?);
        let mut without_window = Vec::new();
        while bundles.peek().is_some() {
            let held = self.host.pause(Direction::In);
            let began = Instant::now();
            std::thread::sleep(MAX_KERNEL_TIME);
            last.forget();
            while began.elapsed() < MAX_PAUSE_TIME
                && let Some(bundle) = bundles.next()
            {
                for sa in &bundle {
                    self.databases()?.end_opening(&sa.config.id, &mut last)?;
                    // Packets inside IPComp belong to the plane of what is around it.
                    if !has_numbers(sa) {
                        sa.state.own_all_numbers();
                    }
                }
                let without = bundle.into_iter().filter(|sa| is_without_window(sa));
                without_window.extend(without);
            }
            drop(held);
            self.has_paused_since(began);
            if bundles.peek().is_some() {
                self.host.drain(Direction::In)?;
            }
        }
        self.open_without_window(&without_window)?;
        self.databases()?.delete_the_rest()?;
        // What has come since for associations that had ended waits for our threads: the kernel's drop is none.
        let mut carried = self.by_kernel();
        let inbound = &mut carried.inbound;
        inbound.drops = before.drops;
        inbound.arrived = inbound.packets + inbound.drops.iter().sum::<u64>();
        self.host.carried_before = sum(carried, self.before);
        Ok(())
    }

    /// What the kernel has carried.
    fn by_kernel(&self) -> Totals {
        let kernel = self.kernel.as_ref();
        kernel.map(KernelPlane::totals).unwrap_or_default()
    }

    /// Without a replay window nothing tells copies of what the kernel has opened from what has come since: all that
    /// waits is dropped.
    fn open_without_window(&self, sas: &[Arc<Sa>]) -> Result<(), Failure> {
        if sas.is_empty() {
            return Ok(());
        }
        let quiet = self.host.quiet(Direction::In, MAX_COPIES_TIME);
        sas.iter().for_each(|sa| sa.state.own_all_numbers());
        quiet.map(drop).map_err(Failure::new)
    }
}

fn is_without_window(sa: &Sa) -> bool {
    has_numbers(sa) && sa.config.replay_window == 0
}

fn is_in_udp(sa: &Sa) -> bool {
    sa.config.encapsulation.is_some()
}
