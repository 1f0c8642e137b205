//! A frame as a packet socket gives it.

use std::time::Duration;

/// A frame as the kernel showed it. With offloads that may be one that no wire would carry: see
/// [`super::to_wire_frames`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// When, since 1970.
    pub at: Duration,
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
    /// Set where the frame holds several packets: UDP payload bytes of each.
    pub udp_segment: Option<u16>,
    /// Set where the checksum was left to the hardware: where the sum begins, and where it goes from there.
    pub checksum: Option<(u16, u16)>,
}
