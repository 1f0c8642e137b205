//! What a UDP socket counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State and counters of a UDP socket, for `status`; shared by its source and its sink.
#[derive(Debug, Default)]
pub struct UdpStats {
    pub(super) segments: AtomicBool,
    pub(super) coalesces: AtomicBool,
    pub(super) keepalives: AtomicU64,
    pub(super) ike: AtomicU64,
}

impl UdpStats {
    /// Whether the kernel segments what is sent.
    pub fn segments(&self) -> bool {
        self.segments.load(Ordering::Relaxed)
    }

    /// Whether the kernel coalesces what arrives.
    pub fn coalesces(&self) -> bool {
        self.coalesces.load(Ordering::Relaxed)
    }

    /// From now on the kernel coalesces what arrives, or does not.
    pub fn note_coalescing(&self, coalesces: bool) {
        self.coalesces.store(coalesces, Ordering::Relaxed);
    }

    /// Keepalives that came (RFC 3948 2.3).
    pub fn keepalives(&self) -> u64 {
        self.keepalives.load(Ordering::Relaxed)
    }

    /// IKE messages that came (RFC 3948 2.2).
    pub fn ike_messages(&self) -> u64 {
        self.ike.load(Ordering::Relaxed)
    }
}
