//! RFC 4301 5.2: whether a packet that came through these SAs may pass, and through which device it is written to the
//! kernel. The device conveys the result of the policy check.
//!
//! ```text
//!   in and fwd allow it ──► the first device    the kernel delivers or forwards it, by its destination
//!   in alone            ──► IN_ONLY_DEVICE      drop rules keep it from being forwarded
//!   fwd alone           ──► FWD_ONLY_DEVICE     drop rules keep it from being delivered here
//! ```
//!
//! Only the kernel knows whether a packet is for this host, and only after its address translation. A packet mark is no
//! alternative: what is written to a TUN device has none.

use crate::io::tun_devices::{FWD_ONLY_DEVICE, IN_ONLY_DEVICE};
use ipsec::Dropped;
use ipsec::database::{Allowed, SaIndex, Snapshot};
use ipsec::packet::{FlowTemplate, Outline};

/// Checks packets against policy; keeps the last result, as most packets are followed by another one of their flow.
#[derive(Default)]
pub(super) struct PolicyCheck {
    last: Option<LastAllowed>,
}

/// A packet that policy allowed through an SA, and what packets of its flow have in common.
struct LastAllowed {
    outline: Outline,
    sa: SaIndex,
    interface: u32,
    template: Option<FlowTemplate>,
}

impl PolicyCheck {
    /// Outline and device of a packet of the same flow and SA as the last one, without reading its headers.
    pub fn recognize(&self, packet: &[u8], sa: SaIndex) -> Option<(Outline, u32)> {
        let last = self.last.as_ref().filter(|last| last.sa == sa)?;
        let total_len = last.template.as_ref()?.total_len_of(packet)?;
        let outline = Outline {
            total_len,
            ..last.outline
        };
        Some((outline, last.interface))
    }

    /// The device for a packet that came through a single SA. A packet that differs from the last one in nothing but
    /// its length has the same.
    pub fn check(
        &mut self,
        snapshot: &Snapshot,
        forwards: bool,
        packet: &[u8],
        outline: &Outline,
        sa: SaIndex,
    ) -> Result<u32, Dropped> {
        if let Some(last) = &mut self.last {
            last.outline.total_len = outline.total_len;
            if last.sa == sa && last.outline == *outline {
                return Ok(last.interface);
            }
        }
        let interface = check(snapshot, forwards, outline, &[sa])?;
        self.last = Some(LastAllowed {
            outline: *outline,
            sa,
            interface,
            template: FlowTemplate::new(packet, outline),
        });
        Ok(interface)
    }
}

/// The device for a packet that came through the SAs of `path`, outermost first; or why there is none. Where everything
/// is forwarded, a packet that only `in` allows is dropped.
pub(super) fn check(
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
