//! What the IPsec RFCs say, as pure code: no threads, no clock, no sockets, no randomness.
//!
//! The modules in the order in which a packet meets them:
//!
//! ```text
//!   packet     what an IP packet says about itself           wire/    the headers, bytes <-> meaning
//!   policy     which traffic is protected, and how           database the SAD and SPD, and one Snapshot of both
//!   sa         one security association: configuration, and the state that outlives snapshots
//!   tunnel     the outer header around the inner one         esp      stamp, seal, look, open, strip
//!   ah         stamp, cover, sign, look, verify            transport the headers that stay outside
//!   aggfrag    many packets in one, one across many
//!   nat        what a NAT breaks in transport mode
//!   fragment   cut and join                                  pmtu     what fits, and telling who sent too much
//!   dropped    every reason why a packet goes no further
//! ```
//!
//! and in the order in which a configuration does: `setkey` text becomes [`command::Command`]s, a
//! [`database::Database`] obeys them and publishes snapshots. [`algorithm`] is the one table of suites.

#![forbid(unsafe_code)]

pub mod aggfrag;
pub mod ah;
pub mod algorithm;
pub mod command;
pub mod database;
pub mod dropped;
pub mod esp;
pub mod fragment;
pub mod nat;
pub mod packet;
pub mod pmtu;
pub mod policy;
pub mod sa;
pub mod setkey;
pub mod suite;
pub mod transport;
pub mod tunnel;
pub mod wire;

pub use dropped::Dropped;
