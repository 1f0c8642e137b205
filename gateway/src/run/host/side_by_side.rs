//! Both planes carry: pairs of IKE that were there before on the plane that is left, and what is negotiated meanwhile
//! on the other one.
//!
//! ```text
//!   snapshot ──► what the kernel gets ──► routes ──► the threads have the snapshot ──► what the kernel loses
//! ```
//!
//! The user plane knows every association, and seals and opens nothing by those of the kernel.

use super::Host;
use crate::handover::Need;
use crate::memory;
use crate::plane::{Parting, Unsupported, carries, serves};
use dataplane::{DataPlane, Totals};
use ipsec::database::{SaIndex, Snapshot};
use ipsec::policy::Direction;
use ipsec::sa::SaConfig;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a moment is waited for at which nothing waits for the outbound thread, when traffic passes to the kernel.
const MAX_QUIET_TIME: Duration = Duration::from_millis(50);

const DIRECTIONS: [Direction; 3] = [Direction::Out, Direction::In, Direction::Fwd];

impl Host {
    /// From now on each plane has what this says.
    pub(super) fn part(&mut self, parting: Option<Arc<Parting>>) {
        if let Some(plane) = &mut self.kernel_plane {
            plane.databases.part(parting.clone());
        }
        self.parting = parting;
    }

    /// What the threads have carried.
    pub(super) fn by_threads(&self) -> Totals {
        let engine = self.engine.as_ref();
        engine.map_or_else(Totals::default, DataPlane::totals)
    }

    /// Whether packets of a policy with these paths leave by the kernel; `others`: those of which nothing is behind.
    pub(super) fn is_led_by_kernel(
        &self,
        snapshot: &Snapshot,
        paths: &[&[SaIndex]],
        others: bool,
    ) -> bool {
        match &self.parting {
            Some(parting) if parting.leaves_behind(snapshot, paths) => !parting.to_kernel(),
            _ => others,
        }
    }

    /// The user plane seals and opens nothing by the kernel's associations.
    pub(super) fn leave_to_the_kernel(&self, snapshot: &Snapshot) {
        let Some(parting) = &self.parting else {
            return;
        };
        let negotiated = snapshot.sas().filter(|sa| sa.config.is_negotiated);
        for sa in negotiated.filter(|sa| parting.is_kernels(&sa.config.id)) {
            sa.state.leave_all_numbers();
        }
    }

    /// ESP in UDP needs a socket for each plane, which are there where there was some when the move began.
    pub(super) fn can_serve_side_by_side(&self, config: &SaConfig) -> Result<(), Unsupported> {
        let side = self.side.as_ref();
        let divided = side.and_then(|side| side.parked.divided.as_ref());
        let v6 = config.id.destination.is_ipv6();
        let has_socket = divided.is_some_and(|divided| divided.serves(v6));
        if config.encapsulation.is_some() && config.is_negotiated && !has_socket {
            return Err(Unsupported::new(
                "ESP in UDP waits until the gateway has moved to the other plane",
            ));
        }
        match &self.parting {
            Some(parting) if parting.to_kernel() => carries(config),
            _ => serves(config),
        }
    }

    /// Each plane gets the ESP in UDP of its own associations.
    pub(super) fn divide_esp_in_udp(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let side = self.side.as_mut();
        let divided = side.and_then(|side| side.parked.divided.as_mut());
        match divided.zip(self.parting.as_ref()) {
            Some((divided, parting)) => divided.follow(parting, snapshot, &self.local),
            None => Ok(()),
        }
    }

    /// As [`Host::enforce`](crate::plane::Kernel::enforce).
    pub(super) fn enforce_side_by_side(
        &mut self,
        snapshot: &Snapshot,
        needs: &BTreeSet<Need>,
    ) -> io::Result<()> {
        let Some(parting) = self.parting.clone() else {
            return Ok(());
        };
        if !parting.to_kernel() {
            self.put_rings(snapshot)?;
        }
        if snapshot.in_and_fwd_differ() && self.forward().is_none() {
            let (site, netlink) = self.installed.site_and_netlink();
            self.devices.open_direction_devices(site, netlink)?;
        }
        self.leave_to_the_kernel(snapshot);
        self.divide_esp_in_udp(snapshot)?;
        let led = parting.sealed_by_kernel(snapshot);
        let before = self.side.as_ref().map_or(led, |side| side.led);
        // The user plane seals none that leaves behind the kernel's first one, if there is such a moment.
        let held = if led > before {
            self.quiet(Direction::Out, MAX_QUIET_TIME)?
        } else {
            None
        };
        if let Some(plane) = &mut self.kernel_plane {
            plane.databases.put(snapshot, &self.local, Vec::new())?;
        }
        drop(held);
        // The plan holds selectors and addresses, no keys.
        memory::without_keys(|| {
            let plan = self.plan(snapshot, needs)?;
            self.installed.enforce(plan)
        })?;
        if led > before {
            self.drain(Direction::Out)?;
        }
        if let Some(side) = &mut self.side {
            side.led = led;
        }
        Ok(())
    }

    /// A gateway that ends while both planes carry leaves policies that require the kernel, as on the kernel's plane.
    pub(super) fn close_kernel_half_way(&mut self) -> io::Result<()> {
        if self.side.take().is_none() {
            return Ok(());
        }
        self.part(None);
        match (&mut self.kernel_plane, self.databases.get()) {
            (Some(plane), Some(databases)) => {
                let snapshot = databases.load();
                plane.databases.put_policies(&snapshot, &DIRECTIONS, false)
            }
            _ => Ok(()),
        }
    }

    /// The kernel's policies lead packets to the threads no more, once these have what seals them.
    pub(super) fn follow_side_by_side(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        match (&mut self.kernel_plane, &self.side) {
            (Some(plane), Some(_)) => plane.databases.remove_others(snapshot),
            _ => Ok(()),
        }
    }
}
