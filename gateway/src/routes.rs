//! What the kernel has to do so that protected traffic meets the engine, and nothing passes beside it.
//!
//! ```text
//!   SPD ──► Plan ──┬─► firewall   drop rules in a table of our own (nft): nothing protected passes in clear
//!                  ├─► rules      `ip rule`s: protected traffic looks into our own routing table
//!                  └─► routes     our table: the TUN device, with an MTU per destination; else "unreachable"
//! ```
//!
//! The order is the safety (fail closed): firewall first, then "unreachable", then rules, the TUN device last. All of
//! it stays when the gateway stops or dies, until `esplanade down`; the `record` beside the control socket says what
//! is ours, so that a later `run` or `down` finds it.
//!
//! No loop: packets we send carry a mark and leave by the first rule, straight to the main table.

pub(crate) mod barrier;
pub(crate) mod combined_plan;
pub(crate) mod device_filter;
pub(crate) mod firewall;
pub(crate) mod installed;
pub(crate) mod monitor;
pub mod netlink;
pub mod nftables;
pub(crate) mod plan;
pub(crate) mod range;
pub(crate) mod record;
mod site;
pub(crate) mod steering;
pub(crate) mod tables;

pub(crate) use site::{BadSite, DEFAULT_MARK, DEFAULT_TUN, PREFERENCES_PER_SITE, Site};
