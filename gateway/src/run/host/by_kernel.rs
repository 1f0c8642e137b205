//! The host of a gateway whose packets the kernel's own IPsec seals and opens: no device, no threads, and of the
//! sockets those alone by which ESP in UDP arrives.

use super::Host;
use crate::plane::KernelDatabases;
use crate::report::Directions;
use crate::routes::firewall::ring_bypass::Rings;
use ipsec::database::Snapshot;
use ipsec::policy::Policy;
use ipsec::sa::{Sa, SaId};
use netlink_packet_xfrm::state::ModifyMessage;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Host {
    /// This host's addresses, as of the last change.
    pub(in crate::run) fn local(&self) -> &[IpAddr] {
        &self.local
    }

    /// Whether the kernel's own IPsec carries the packets, and it alone.
    pub(in crate::run) fn is_by_kernel(&self) -> bool {
        self.kernel_plane.is_some() && self.side.is_none()
    }

    /// Asks the kernel for the counters of its associations, unless they are younger than `max_age`.
    pub(in crate::run) fn read_kernel_counters(&mut self, max_age: Duration) -> io::Result<()> {
        let Some(plane) = &mut self.kernel_plane else {
            return Ok(());
        };
        if plane.read_at.is_some_and(|at| at.elapsed() < max_age) {
            return Ok(());
        }
        plane.read_at = Some(Instant::now());
        plane.databases.read_counters()
    }

    /// The number by which the kernel's notifications name what this gateway has changed.
    pub(in crate::run) fn kernel_port(&self) -> u32 {
        let plane = self.kernel_plane.as_ref();
        plane.map_or(0, |plane| plane.databases.port())
    }

    /// Associations by which the kernel would use a nonce of our own data plane again, or one of its own from before,
    /// each with the sequence number by which it would.
    pub(in crate::run) fn repeated_nonces(&mut self, snapshot: &Snapshot) -> Vec<(Arc<Sa>, u64)> {
        self.same_keys.check(snapshot)
    }

    /// Why associations cannot move once more under the same key.
    pub(in crate::run) fn nonces_refuse(
        &self,
        snapshot: &Snapshot,
        to_kernel: bool,
    ) -> Option<String> {
        self.same_keys.refusal(snapshot, to_kernel)
    }

    /// The policy that a notification of the kernel names.
    pub(in crate::run) fn kernels_policy(&self, index: u32) -> Option<Arc<Policy>> {
        self.kernel_plane.as_ref()?.databases.policy_of_index(index)
    }

    /// The number of the XFRM interface of this name.
    pub(in crate::run) fn device_number(&self, name: &str) -> Option<u32> {
        self.devices.number(name)
    }

    /// The directions that the kernel keeps of its associations; none where it keeps none, or carries nothing.
    pub(in crate::run) fn kept_directions(&self) -> Directions {
        let plane = self.kernel_plane.as_ref();
        plane.map_or_else(Directions::new, |plane| plane.databases.kept_directions())
    }

    /// The association that a notification of the kernel names.
    pub(in crate::run) fn kernels_sa(&self, id: &SaId) -> Option<Arc<Sa>> {
        self.kernel_plane.as_ref()?.databases.sa(id).cloned()
    }

    /// Takes over the last counters of an association that the kernel has ended.
    pub(in crate::run) fn observe_last(&mut self, id: &SaId, last: &ModifyMessage) {
        if let Some(plane) = &mut self.kernel_plane {
            plane.databases.observe(id, last);
        }
    }

    /// Reads what an earlier gateway has left in the kernel.
    pub(in crate::run) fn read_leftovers(&mut self) -> io::Result<()> {
        let addresses = self.outside.netlink.addresses()?;
        match &mut self.kernel_plane {
            Some(plane) => plane.databases.begin(&addresses),
            None => Ok(()),
        }
    }

    /// Why the kernel's association is not the one that the gateway before has passed on; none if it is.
    pub(in crate::run) fn why_not_passed_on(
        &mut self,
        sa: &Sa,
    ) -> io::Result<Option<&'static str>> {
        match &mut self.kernel_plane {
            Some(plane) => plane.databases.why_not_passed_on(sa),
            None => Ok(None),
        }
    }

    /// Removes the rules that keep native ESP from the kernel where packet rings receive it.
    pub(super) fn end_ring_bypass(&mut self) -> io::Result<()> {
        self.installed.install_ring_bypass(&Rings::default())
    }

    /// A gateway that stops leaves its policies, so that nothing passes in clear, and no association: their numbers are
    /// in its state file.
    pub(in crate::run) fn end_kernel_associations(&mut self) -> io::Result<()> {
        self.close_kernel_half_way()?;
        match &mut self.kernel_plane {
            Some(plane) => plane.databases.remove_sas(),
            None => Ok(()),
        }
    }

    /// Removes all that this gateway has changed in the kernel.
    pub(in crate::run) fn take_away(&mut self) -> io::Result<()> {
        self.installed.remove()?;
        match &mut self.kernel_plane {
            Some(plane) => plane.databases.remove_all(),
            None => Ok(()),
        }
    }

    /// What an earlier gateway of this site left in the kernel's IPsec, when the packets were carried there, or a move
    /// that could not be undone whole: our threads go on behind the kernel's numbers. The drop rules are in place when
    /// this is called, and at a start the threads have not begun yet.
    pub(super) fn remove_left_in_kernel(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        if !self.has_cleared_kernel && !self.is_by_kernel() {
            // A kernel without XFRM has nothing.
            if let Ok(mut left) = KernelDatabases::open(self.installed.site()) {
                left.remove_what_is_left(snapshot, &self.local)?;
            }
        }
        self.has_cleared_kernel = true;
        Ok(())
    }
}
