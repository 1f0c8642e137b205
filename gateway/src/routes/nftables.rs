//! Rules of nftables by netlink: a table is described, encoded and replaced as a whole in one transaction; no `nft` is
//! run.
//!
//! ```text
//!   Ruleset ──► encoding ──► one batch ──► connection ──► kernel
//!     rules of      messages     all or       owns the table      │
//!     named terms   of netlink   nothing      while it is open    ▼
//!                                             `present` reads back what stands there
//! ```
//!
//! `rule` is the language in which firewall rules are written here, `expression` what the kernel makes of each term.

pub(crate) mod attributes;
mod connection;
mod encoding;
mod expression;
#[cfg(any(test, fuzzing))]
pub mod fuzz_body;
mod present;
pub(crate) mod rule;

pub(crate) use connection::{Connection, OWNED, Refused};
pub(crate) use encoding::Count;
pub(crate) use present::Present;

use rule::Rule;

/// The content of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ruleset {
    /// What its hooks see.
    pub family: TableFamily,
    /// The table's name.
    pub table: String,
    /// Names of counters that rules share.
    pub counters: Vec<&'static str>,
    /// In any order: hooks and priorities decide.
    pub chains: Vec<Chain>,
}

/// What the hooks of a table see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableFamily {
    /// IPv4 and IPv6.
    Inet,
    /// Every frame of a device.
    Netdev,
}

/// Rules at one hook. What none of them decides passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    /// Its name.
    pub name: String,
    /// `filter`, or `route`: asks for a way again if the mark has changed.
    pub kind: &'static str,
    /// Where on a packet's way.
    pub hook: Hook,
    /// Smaller ones come first.
    pub priority: i32,
    /// In order.
    pub rules: Vec<Rule>,
}

/// Where on a packet's way rules are asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hook {
    /// Everything that arrives, before routing.
    Prerouting,
    /// What is for this host.
    Input,
    /// What passes through.
    Forward,
    /// What this host makes.
    Output,
    /// Everything that leaves.
    Postrouting,
    /// Frames as they come in by this device.
    Ingress(String),
}

impl TableFamily {
    /// NFPROTO_INET and NFPROTO_NETDEV.
    fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Netdev => 5,
        }
    }
}

impl Hook {
    /// NF_INET_PRE_ROUTING and the following; NF_NETDEV_INGRESS counts by itself.
    fn number(&self) -> u32 {
        match self {
            Self::Prerouting | Self::Ingress(_) => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}
