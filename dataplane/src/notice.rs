//! What the data plane tells whoever runs it.

use ipsec::packet::Outline;
use ipsec::policy::Direction;
use std::io;
use std::sync::Arc;

/// Something that somebody outside should hear of. Limits of associations are told by
/// [`Database::tick`](ipsec::database::Database::tick).
#[derive(Debug)]
pub enum Notice {
    /// Policy, or a route into a device of its own, wants this packet protected and there is no association (RFC 4301
    /// 5.1). Told for every such packet: whoever listens thins it out.
    Acquire {
        /// Number of the policy; 0 where a device wants it.
        policy: u32,
        /// Number of the device; 0 where a policy wants it.
        interface: u32,
        /// The packet.
        outline: Outline,
    },
    /// A source failed for good; its direction stands still.
    Failed {
        /// Which direction.
        direction: Direction,
        /// What the system said.
        error: io::Error,
    },
}

/// Who hears of notices; called on the data plane's threads, hence quick.
pub type Hook = Arc<dyn Fn(Notice) + Send + Sync>;
