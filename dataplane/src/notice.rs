//! Notifications from the data plane to the program that runs it.

use ipsec::packet::Outline;
use ipsec::policy::Direction;
use std::io;
use std::sync::Arc;

/// A notification. Expired lifetimes of SAs are reported by [`Database::tick`](ipsec::database::Database::tick).
#[derive(Debug)]
pub enum Notice {
    /// Policy, or a route into a device of its own, requires protection for this packet and there is no SA (RFC 4301
    /// 5.1). Sent for every such packet; the receiver limits the rate.
    Acquire {
        /// Number of the policy; 0 where a device requires it.
        policy: u32,
        /// Number of the device; 0 where a policy requires it.
        interface: u32,
        /// The packet.
        outline: Outline,
    },
    /// A source failed permanently; its direction has stopped.
    Failed {
        /// Which direction.
        direction: Direction,
        /// The system's error.
        error: io::Error,
    },
}

/// Receives notices; called on the data plane's threads, so it must be quick.
pub type Hook = Arc<dyn Fn(Notice) + Send + Sync>;
