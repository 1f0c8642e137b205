//! Fragments: cutting a packet that does not fit, and reassembling those that arrive (RFC 791, RFC 815, RFC 8200 4.5).
//!
//! ```text
//!   packet ──► Cutter ──► fragments        of IPv4 as any router may, of IPv6 as its source must
//!   fragments ──► Reassembler ──► packet   outer ones, before ESP is looked for (RFC 4303 3.4.1)
//! ```
//!
//! Fragments are not authenticated yet, so the memory they may take is bounded, the oldest are dropped first when it is
//! used up, and a packet whose fragments overlap is lost as a whole (RFC 5722), for IPv4 as for IPv6.

mod cut;
mod join;
mod read;

pub use cut::Cutter;
pub use join::{Offered, Reassembler, ReassemblyLimits};

/// Every fragment but the last carries a multiple of this (RFC 791 3.2, RFC 8200 4.5).
const UNIT: usize = 8;

#[cfg(test)]
mod tests;
