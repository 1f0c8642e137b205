//! Rules of nftables by netlink: a table is described, encoded and replaced as a whole in one transaction, without the
//! program `nft`.
//!
//! ```text
//!   Ruleset ──► encoding ──► one batch ──► connection ──► kernel
//!     rules of      messages     applied      owns the table      │
//!     named terms   of netlink   atomically   while it is open    ▼
//!                                             `present` reads the table back
//! ```
//!
//! `rule` has the terms in which firewall rules are written here, `expression` translates each term to the kernel's
//! expressions.

mod connection;
mod encoding;
mod expression;
#[cfg(any(test, fuzzing))]
pub mod fuzz_body;
mod present;
pub(crate) mod rule;
mod set;

pub(crate) use connection::{Connection, OWNED, Refused};
pub(crate) use encoding::Count;
pub(crate) use present::Present;

use rule::{Field, Rule};
use std::collections::BTreeSet;

/// The content of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ruleset {
    /// Which packets its hooks receive.
    pub family: TableFamily,
    /// The table's name.
    pub table: String,
    /// Names of counters that rules share.
    pub counters: Vec<&'static str>,
    /// Sets that rules name.
    pub sets: Vec<NamedSet>,
    /// In any order: hooks and priorities determine which runs first.
    pub chains: Vec<Chain>,
}

/// A set whose values can change while the rules that name it stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamedSet {
    /// Its name.
    pub name: &'static str,
    /// The field whose values it holds.
    pub field: Field,
    /// In the byte order in which the kernel compares them.
    pub values: BTreeSet<Vec<u8>>,
}

/// Which packets the hooks of a table receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableFamily {
    /// IPv4 and IPv6.
    Inet,
    /// All frames of a device.
    Netdev,
}

/// Rules at one hook. A packet that no rule decides passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    /// Its name.
    pub name: String,
    /// `filter`; or `route`, which looks up the route again if the mark has changed.
    pub kind: &'static str,
    /// The hook at which it runs.
    pub hook: Hook,
    /// Chains with smaller values run first.
    pub priority: i32,
    /// In order.
    pub rules: Vec<Rule>,
}

/// The places in the kernel's packet path where rules run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hook {
    /// Everything that arrives, before routing.
    Prerouting,
    /// Packets to this host.
    Input,
    /// Forwarded packets.
    Forward,
    /// Packets that this host sends.
    Output,
    /// Everything that leaves.
    Postrouting,
    /// Frames received by this device.
    Ingress(String),
}

impl Ruleset {
    /// Whether another table is the same but for the values of its sets.
    pub(crate) fn differs_in_values_at_most(&self, other: &Self) -> bool {
        let Self {
            family,
            table,
            counters,
            sets,
            chains,
        } = other;
        self.family == *family
            && self.table == *table
            && self.counters == *counters
            && self.chains == *chains
            && self.has_sets_like(sets)
    }

    /// The names of its sets.
    pub(crate) fn set_names(&self) -> Vec<&'static str> {
        self.sets.iter().map(|set| set.name).collect()
    }

    /// Whether it has these sets, with any values.
    pub(crate) fn has_sets_like(&self, sets: &[NamedSet]) -> bool {
        let name = |set: &NamedSet| (set.name, set.field);
        self.sets.iter().map(name).eq(sets.iter().map(name))
    }
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
    /// NF_INET_PRE_ROUTING and the following; NF_NETDEV_INGRESS has its own numbering.
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
