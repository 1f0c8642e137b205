//! What holds for all connections.

use std::time::Duration;

/// Limits and other settings of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Handshakes of peers in progress at a time.
    pub max_half_open: usize,
    /// Handshakes of one address in progress at a time.
    pub max_half_open_per_address: usize,
    /// From so many handshakes in progress on, a cookie is asked for (RFC 7296 2.6).
    pub cookie_threshold: usize,
    /// A cookie's secret is used for so long, and accepted for as long again.
    pub cookie_lifetime: Duration,
    /// A handshake that the peer began is given up after so long.
    pub half_open_timeout: Duration,
    /// The first [`ChildId`](super::ChildId). A driver that starts again gives a larger one, so that child SAs of an
    /// earlier endpoint are not taken for those of this one.
    pub first_child: u64,
    /// Whether keys come out as [`Action::LogKeys`](super::Action::LogKeys).
    pub log_keys: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_half_open: 4096,
            max_half_open_per_address: 64,
            cookie_threshold: 256,
            cookie_lifetime: Duration::from_secs(30),
            half_open_timeout: Duration::from_secs(30),
            first_child: 1,
            log_keys: false,
        }
    }
}
