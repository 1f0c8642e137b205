//! The arguments of netperf.

use crate::load::Direction;

/// netperf between client and server.
#[derive(Debug, Clone, PartialEq)]
pub struct Netperf {
    /// What it does.
    pub test: Test,
    /// Send every write at once (TCP_NODELAY).
    pub nodelay: bool,
    /// Which way user data goes, one at a time; requests go from the client to the server.
    pub direction: Direction,
}

/// What netperf does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Test {
    /// One TCP stream: TCP_STREAM, or TCP_MAERTS where the far end sends.
    Stream {
        /// Bytes of each write; `None`: netperf's own choice.
        message_bytes: Option<u32>,
        /// Uncounted traffic before each load.
        warm_up_megabytes: u32,
    },
    /// Datagrams without a pause: UDP_STREAM.
    Datagrams {
        /// Bytes of user data in each.
        message_bytes: u32,
    },
    /// One request after another over one connection: TCP_RR.
    Requests {
        /// Bytes of a request, and of its answer.
        bytes: u32,
    },
}

/// Not netperf's usual one, where a netserver of the host itself may listen.
pub(super) const PORT: u16 = 5304;
/// Seconds between intermediate results.
pub(super) const REPORT_INTERVAL_S: f64 = 0.5;
pub(super) const MEGABYTE: i64 = 1 << 20;
