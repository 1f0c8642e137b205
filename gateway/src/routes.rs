//! What is configured in the kernel so that protected traffic reaches the data plane and none is sent unencrypted.
//!
//! ```text
//!   SPD ──► Plan ──┬─► firewall   drop rules in a separate nftables table: no protected traffic leaves unencrypted
//!                  ├─► rules      `ip rule`s: protected traffic is looked up in the gateway's routing table
//!                  └─► routes     that table: the TUN device, with an MTU per destination; else "unreachable"
//! ```
//!
//! The order of installation makes it fail closed: the firewall first, then "unreachable" routes, then rules, and the
//! route to the TUN device last. All of it stays when the gateway stops or dies, until `esplanade down`; the `record`
//! beside the control socket lists what the gateway has installed, so that a later `run` or `down` finds it.
//!
//! Outer packets do not loop: they carry a mark, and the first routing rule sends marked packets to the main table.

pub(crate) mod barrier;
pub(crate) mod combined_plan;
pub(crate) mod device_filter;
pub(crate) mod firewall;
pub(crate) mod gateway_peers;
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
