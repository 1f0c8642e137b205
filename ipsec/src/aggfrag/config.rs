//! What an association aggregates and fragments by.

/// The most payloads that a receiver waits behind a missing one for.
pub const MAX_REORDER_WINDOW_PAYLOADS: u16 = 1024;

/// How an association aggregates and fragments. Both ends need the mode; each chooses the rest for itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aggfrag {
    /// Whether a packet may be continued in the next payload (RFC 9347 2.2.2), or only whole ones are sent.
    pub fragments: bool,
    /// Bytes of an outer packet, its IP header included; 0 for as many as the path carries.
    pub size: u16,
    /// Outer packets each second, all of one size, padding where there is nothing to send (RFC 9347 2.4.1); 0 for
    /// packets as there are some, without padding.
    pub rate: u32,
    /// How many payloads may overtake a missing one before it is given up (RFC 9347 2.2.3).
    pub reorder_window: u16,
    /// Milliseconds after which a missing packet is given up, even if few have followed.
    pub reorder_timeout_ms: u16,
}

impl Default for Aggfrag {
    fn default() -> Self {
        Self {
            fragments: true,
            size: 0,
            rate: 0,
            reorder_window: 3,
            reorder_timeout_ms: 100,
        }
    }
}
