//! The kernel's associations end one by one, and those of our own data plane go on behind their numbers.

use super::ToUser;
use crate::failure::Failure;
use crate::plane::KernelDatabases;
use ipsec::policy::Direction;
use ipsec::sa::Sa;
use std::sync::Arc;
use std::time::Duration;

/// How long copies of what the kernel has opened without a replay window may wait for our threads: meanwhile these open
/// nothing of such associations.
const MAX_COPIES_TIME: Duration = Duration::from_millis(300);

impl ToUser<'_> {
    /// The associations that seal, of those that both planes carry for a moment.
    fn sealing(&self) -> Vec<Arc<Sa>> {
        let carried = KernelDatabases::to_carry(&self.context.snapshot, &self.host.local);
        let sealing = carried.into_iter().filter(|(_, is_inbound)| !is_inbound);
        sealing.map(|(sa, _)| sa).collect()
    }

    pub(super) fn outbound(&mut self) -> Result<(), Failure> {
        self.databases()?.end_sending()?;
        let (sealing, snapshot) = (self.sealing(), Arc::clone(&self.context.snapshot));
        self.host.same_keys.end(&sealing, &snapshot);
        Ok(())
    }

    pub(super) fn inbound(&mut self) -> Result<(), Failure> {
        let before = self.host.totals().inbound;
        let snapshot = Arc::clone(&self.context.snapshot);
        self.databases()?.end_opening(&snapshot)?;
        // What has come since for associations that had ended waits in our sockets: the kernel's drop is none.
        let mut carried = self.host.totals();
        let inbound = &mut carried.inbound;
        inbound.drops = before.drops;
        inbound.arrived = inbound.packets + inbound.drops.iter().sum::<u64>();
        self.carried = carried;
        Ok(())
    }

    /// Without a replay window nothing tells copies of what the kernel has opened from what has come since: all that
    /// waits is dropped.
    pub(super) fn open_without_window(&self) -> Result<(), Failure> {
        let sas = self.context.snapshot.sas();
        let is_without = |sa: &&Arc<Sa>| sa.config.replay_window == 0 && !sa.config.is_negotiated;
        let mut sas = sas.filter(is_without).peekable();
        if sas.peek().is_some() {
            let quiet = self.host.quiet(Direction::In, MAX_COPIES_TIME);
            sas.for_each(|sa| sa.state.own_all_numbers());
            quiet.map(drop)?;
        }
        Ok(())
    }

    pub(super) fn put_back_associations(&mut self) -> Result<(), Failure> {
        let (snapshot, local) = (Arc::clone(&self.context.snapshot), self.host.local.clone());
        for sa in snapshot.sas() {
            sa.state.own_all_numbers();
        }
        let mut ended = self.sealing();
        let databases = self.databases()?;
        ended.retain(|sa| databases.sa(&sa.config.id).is_none());
        self.host.same_keys.watch(&ended);
        let put = self.databases()?.put(&snapshot, &local, Vec::new());
        let watched = self.host.same_keys.capture_from_now();
        put.and(watched).map_err(Failure::new)
    }
}
