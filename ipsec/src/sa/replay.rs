//! The anti-replay window (RFC 4303 3.4.3, appendix A2) of 0 to 8192 packets, 32-bit and extended numbers.

/// The largest window, in packets.
pub const MAX_WINDOW: u32 = 8192;
