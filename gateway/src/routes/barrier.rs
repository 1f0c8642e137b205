//! What keeps protected traffic from passing in clear, each by other means than the next, so that no single command of
//! another tool takes all of them away.
//!
//! ```text
//!   Plan ──► Installed ──┬─► Barrier "nftables"         drop rules behind the kernel's own hooks
//!                        ├─► Barrier "device filters"   classic BPF on every device that is not ours
//!                        └─► Barrier "XFRM policies"    the kernel's own IPsec; rests while the second has no gap
//! ```
//!
//! A barrier keeps the plan that it enforces, so it can say what of it the kernel has lost, and put that back.

pub(crate) mod device_filter;
pub(crate) mod nftables;
pub(crate) mod xfrm;

use super::plan::Plan;
use std::io;

/// One way to drop, in the kernel, what a plan protects or discards and what passes in clear all the same.
pub(crate) trait Barrier: Send {
    /// Its name, as `status` and events write it.
    fn name(&self) -> &'static str;

    /// Makes the kernel enforce `plan` instead of the one before. INVARIANT: at no moment in between is a packet passed
    /// that both plans drop. On an error the one before still stands, in the kernel and in [`Barrier::missing`].
    fn install(&mut self, plan: &Plan) -> io::Result<()>;

    /// Asks the kernel what it has, and names in plain words what of ours is gone or changed: `table deleted`. Empty
    /// where all stands, and where nothing has been installed.
    fn missing(&mut self) -> io::Result<Vec<String>>;

    /// Puts back whatever of the plan in force is missing, without a moment in which what still stands does not.
    fn restore(&mut self) -> io::Result<()>;

    /// Covers what is new on the host and is no loss: a new device.
    fn reach_new(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// What keeps it from holding, in whole or in part, that no restoring mends, and what to do: in plain words.
    fn faults(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether a barrier before this one leaves gaps; told before [`Barrier::install`] and [`Barrier::reach_new`].
    fn stand_in(&mut self, _is_needed: bool) {}

    /// Whether it is to have nothing in the kernel, because those before it leave no gaps.
    fn rests(&self) -> bool {
        false
    }

    /// What of the plan it does not see even where it holds.
    fn gaps(&self) -> Option<&'static str> {
        None
    }

    /// How many packets in clear it has dropped, where the kernel counts them with the barrier itself.
    fn dropped(&mut self) -> Option<(&'static str, u64)> {
        None
    }

    /// Takes everything of ours away, also what an earlier gateway of this site left.
    fn remove(&mut self) -> io::Result<()>;
}
