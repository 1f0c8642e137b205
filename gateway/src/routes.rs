//! What the kernel has to do so that protected traffic meets the engine, and nothing passes beside it.
//!
//! ```text
//!   SPD ──► Plan ──┬─► firewall   drop rules in a table of our own (nft): nothing protected passes in clear
//!                  ├─► rules      `ip rule`s: protected traffic looks into our own routing table
//!                  └─► routes     our table: the TUN device, with an MTU per destination; else "unreachable"
//! ```
//!
//! The order is the safety (fail closed): firewall first, then "unreachable", then rules, the TUN device last. All of
//! it stays when the gateway stops or dies, until `esplanade down`; the [`record`] beside the control socket says what
//! is ours, so that a later `run` or `down` finds it.
//!
//! No loop: packets we send carry a mark and leave by the first rule, straight to the main table.

pub mod barrier;
pub mod combined_plan;
pub mod device_filter;
pub mod firewall;
pub mod installed;
pub mod monitor;
pub mod netlink;
pub mod nftables;
pub mod plan;
pub mod range;
pub mod record;
mod site;
pub mod steering;
pub mod tables;

pub use site::{BadSite, DEFAULT_MARK, DEFAULT_TABLE, DEFAULT_TUN, PREFERENCES_PER_SITE, Site};
