//! Barriers drop protected traffic that would pass unencrypted. Each one uses another mechanism of the kernel, so that
//! no single command of another tool removes all of them.
//!
//! ```text
//!   Plan ──► Installed ──┬─► Barrier "nftables"         drop rules at the kernel's netfilter hooks
//!                        ├─► Barrier "device filters"   classic BPF on every device but the gateway's own
//!                        └─► Barrier "XFRM policies"    the kernel's own IPsec; unused while the second has no gap
//! ```
//!
//! A barrier keeps the plan that it enforces, so that it can report which parts are missing in the kernel, and install
//! them again.

pub(crate) mod device_filter;
pub(crate) mod nftables;
pub(crate) mod xfrm;

use super::plan::Plan;
use std::io;

/// One way to drop, in the kernel, unencrypted packets that a plan protects or discards.
pub(crate) trait Barrier: Send {
    /// Its name, as `status` and events write it.
    fn name(&self) -> &'static str;

    /// Makes the kernel enforce `plan` instead of the previous one. INVARIANT: at no moment in between is a packet
    /// passed that both plans drop. On an error the previous plan stays in force, in the kernel and for
    /// [`Barrier::missing`].
    fn install(&mut self, plan: &Plan) -> io::Result<()>;

    /// Makes the kernel enforce `plan`, which drops what the previous one drops, and differs from it at most in the
    /// outer addresses of the gateway's own packets, in routes and in sizes.
    fn install_outer(&mut self, plan: &Plan) -> io::Result<()> {
        self.install(plan)
    }

    /// The port of the socket by which it changes an nftables table, if it does.
    fn nftables_port(&self) -> Option<u32> {
        None
    }

    /// Reads what the kernel has, and describes what of this barrier was deleted or changed: `table deleted`. Empty
    /// if nothing is missing, and if nothing has been installed.
    fn missing(&mut self) -> io::Result<Vec<String>>;

    /// Installs again what is missing of the plan in force. What is still present stays in force throughout.
    fn restore(&mut self) -> io::Result<()>;

    /// Extends the plan in force to devices that were added to the host since.
    fn reach_new(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Why the barrier is not fully in force for reasons that [`Barrier::restore`] cannot repair, and what to do.
    fn faults(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Sets whether an earlier barrier leaves gaps; called before [`Barrier::install`] and [`Barrier::reach_new`].
    fn stand_in(&mut self, _is_needed: bool) {}

    /// Whether it installs nothing in the kernel, because the earlier barriers leave no gaps.
    fn rests(&self) -> bool {
        false
    }

    /// What of the plan it does not cover even while it is fully in force.
    fn gaps(&self) -> Option<&'static str> {
        None
    }

    /// How many unencrypted packets it has dropped, if the kernel counts them for this barrier.
    fn dropped(&mut self) -> Option<(&'static str, u64)> {
        None
    }

    /// Removes everything that this gateway, or an earlier one of this site, has installed.
    fn remove(&mut self) -> io::Result<()>;
}
