//! The IPsec RFCs as pure code: no threads, no clock, no sockets, no randomness.
//!
//! The modules in the order in which a packet meets them:
//!
//! ```text
//!   packet     the facts of an IP packet that policy needs   wire/    headers, bytes <-> fields
//!   policy     which traffic is protected, and how           database the SAD and SPD, and one Snapshot of both
//!   sa         one security association: configuration, and the state that outlives snapshots
//!   tunnel     the outer header around the inner one         esp      seal, parse, open, strip
//!   ah         sign, parse, verify                          transport headers before ESP or AH
//!   ipcomp     compress and decompress what ESP or AH then protects
//!   aggfrag    many packets in one, one across many
//!   nat        what a NAT breaks in transport mode
//!   fragment   fragment and reassemble                       pmtu     what fits, and ICMP errors where it does not
//!   dropped    every reason why a packet goes no further
//! ```
//!
//! and in the order in which a configuration does: `setkey` text becomes [`command::Command`]s, a
//! [`database::Database`] applies them and publishes snapshots. [`algorithm`] is the one table of suites.

#![forbid(unsafe_code)]

// Unit tests run the bodies of fuzz targets, which name the crate as other crates do.
#[cfg(test)]
extern crate self as ipsec;

pub mod aggfrag;
pub mod ah;
pub mod algorithm;
pub mod command;
pub mod database;
pub mod dropped;
pub mod esp;
pub mod fragment;
pub mod ipcomp;
pub mod nat;
pub mod packet;
pub mod pmtu;
pub mod policy;
pub mod sa;
mod selector;
pub mod setkey;
pub mod suite;
pub mod transport;
pub mod tunnel;
pub mod wire;

pub use dropped::Dropped;
