//! What a peer is read with, beside its table.

use super::files::Files;
use crate::failure::Failure;
use std::net::IpAddr;

/// What the whole file decides for each peer.
pub(super) struct Surroundings<'a> {
    /// The files that a peer names.
    pub(super) files: Files<'a>,
    /// The addresses of a host name.
    pub(super) resolve: &'a dyn Fn(&str) -> Result<Vec<IpAddr>, Failure>,
    /// Whether the processor has instructions for AES.
    pub(super) aes_is_fast: bool,
    /// The present time, in seconds since the Unix epoch.
    pub(super) now: u64,
}
