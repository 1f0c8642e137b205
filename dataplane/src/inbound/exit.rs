//! By which device an opened packet goes to the kernel: that is how policy's word travels with it.
//!
//! ```text
//!   in and fwd allow it ──► the first device        the kernel delivers or forwards it, as its destination has it
//!   in alone            ──► tunnels::IN_ONLY_DEVICE       drop rules let nothing of it be forwarded
//!   fwd alone           ──► tunnels::FWD_ONLY_DEVICE      drop rules let nothing of it be delivered here
//! ```
//!
//! Whether a packet is for this host is known to the kernel alone, and only behind its address translation. A mark would
//! say less: what is written to a TUN device has none.

use crate::io::tun_devices::{FWD_ONLY_DEVICE, IN_ONLY_DEVICE};
use ipsec::Dropped;
use ipsec::database::{Allowed, SaIndex, Snapshot};
use ipsec::packet::Outline;

/// RFC 4301 5.2: by which device a packet may go that came through `path`, outermost first; or why by none. Where everything
/// is forwarded, what `in` alone allows goes nowhere.
pub(super) fn judge(
    snapshot: &Snapshot,
    forwards: bool,
    outline: &Outline,
    path: &[SaIndex],
) -> Result<u32, Dropped> {
    let innermost = path.last().map_or(0, |sa| snapshot.interface_of(*sa));
    match snapshot.inbound(outline, path)? {
        Allowed::Both => Ok(innermost),
        Allowed::In if forwards => snapshot.forwarded(outline, path).map(|()| 0),
        Allowed::In => Ok(IN_ONLY_DEVICE),
        Allowed::Fwd => Ok(FWD_ONLY_DEVICE),
    }
}
