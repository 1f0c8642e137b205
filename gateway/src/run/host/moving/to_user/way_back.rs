//! A move to our own data plane that fails: the kernel has again what it had.

use super::ToUser;
use crate::failure::Failure;
use crate::plane::KernelDatabases;
use crate::run::forward::Plaintext;
use crate::run::host::crossing::sum;
use dataplane::DataPlane;
use ipsec::sa::Sa;
use std::sync::Arc;

impl ToUser<'_> {
    /// The threads end. What they have carried counts on.
    pub(super) fn end_threads(&mut self) {
        let Some(kernel) = self.kernel.take() else {
            return;
        };
        let host = &mut *self.host;
        let last = host.engine.take().map(DataPlane::stop);
        host.carried_before = sum(last.unwrap_or_default(), self.before);
        host.kernel_plane = Some(kernel);
        self.plaintext = Some(std::mem::replace(&mut host.plaintext, Plaintext::Kernel));
    }

    /// The kernel's associations go on behind what our threads have used.
    pub(super) fn put_back_associations(&mut self) -> Result<(), Failure> {
        let (snapshot, local) = (Arc::clone(&self.context.snapshot), self.host.local.clone());
        for sa in snapshot.sas() {
            sa.state.own_all_numbers();
        }
        let carried = KernelDatabases::to_carry(&snapshot, &local).into_iter();
        let sealing = carried.filter(|(_, is_inbound)| !is_inbound);
        let databases = self.databases()?;
        let ended = sealing.filter(|(sa, _)| databases.sa(&sa.config.id).is_none());
        let ended: Vec<Arc<Sa>> = ended.map(|(sa, _)| sa).collect();
        databases.delete_the_rest()?;
        self.host.same_keys.end(&ended, &snapshot);
        self.host.same_keys.watch(&ended);
        let put = self.databases()?.put(&snapshot, &local, Vec::new());
        let watched = self.host.same_keys.capture_from_now();
        put.and(watched).map_err(Failure::new)
    }

    /// The sockets are those that the kernel's IPsec has received by.
    pub(super) fn put_back_sockets(&mut self) -> Result<(), Failure> {
        if let Some(sockets) = self.sockets.take() {
            self.host.sockets = sockets;
        }
        self.give_back_esp()?;
        self.host.end_ring_bypass().map_err(Failure::new)
    }

    /// All ESP in UDP is the kernel's.
    fn give_back_esp(&mut self) -> Result<(), Failure> {
        let sockets = &self.host.sockets;
        let Some(mut divided) = self.divided.take() else {
            sockets.give_esp(true)?;
            sockets.leave_gro_to_the_kernel();
            return Ok(());
        };
        divided.give_all(true)?;
        sockets.give_esp(true)?;
        sockets.leave_gro_to_the_kernel();
        divided.give_all(false).map_err(Failure::new)
    }

    /// ESP in UDP may be some of either plane. Which plane gets which SPIs is said on the way back.
    pub(super) fn part_sockets(&mut self) -> Result<(), Failure> {
        let Some(divided) = self.divided.as_ref().filter(|divided| !divided.is_empty()) else {
            return Ok(());
        };
        let sockets = &mut self.host.sockets;
        sockets.is_divided = true;
        sockets
            .coalesce_shared(divided, false)
            .map_err(Failure::new)
    }
}
