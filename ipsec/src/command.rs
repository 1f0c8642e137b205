//! Commands for a plane: what configures (setkey, IKE) sends them, what enforces (our own data plane, the kernel's
//! XFRM, a recorder) applies them.
//!
//! Keys that do not fit cannot get here: a [`SaConfig`] holds a [`Suite`](crate::suite::Suite), which is proof.

use crate::policy::{Direction, Policy, Selector};
use crate::sa::{Phase, Protocol, SaConfig, SaId, Spi};
use std::net::IpAddr;
use std::sync::Arc;

/// One change, or one query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// A new association; one with the same id is an error.
    AddSa(Arc<SaConfig>),
    /// A new configuration for an association that exists; its state stays.
    UpdateSa(Arc<SaConfig>),
    /// Remove this association.
    DeleteSa {
        /// Which.
        id: SaId,
        /// Its source address, which setkey names too.
        source: IpAddr,
    },
    /// Remove every association between two addresses; not those that IKE negotiated.
    DeleteAllSas {
        /// Outer source.
        source: IpAddr,
        /// Outer destination.
        destination: IpAddr,
        /// ESP or AH.
        protocol: Protocol,
    },
    /// Show one association.
    GetSa {
        /// Which.
        id: SaId,
        /// Its source address.
        source: IpAddr,
    },
    /// Reserve an SPI for an association to come (PF_KEY's GETSPI).
    GetSpi {
        /// Outer source.
        source: IpAddr,
        /// Outer destination, a local address.
        destination: IpAddr,
        /// ESP or AH.
        protocol: Protocol,
        /// Smallest and largest acceptable value; `None` lets the plane choose.
        range: Option<(Spi, Spi)>,
    },
    /// Remove all associations, or all of one protocol; not those that IKE negotiated.
    FlushSas(Option<Protocol>),
    /// Show all associations, or all of one protocol.
    DumpSas(Option<Protocol>),
    /// A new policy; one with the same selector and direction is an error.
    AddPolicy(Arc<Policy>),
    /// A policy, new or instead of the one with the same selector and direction.
    UpdatePolicy(Arc<Policy>),
    /// Remove this policy.
    DeletePolicy {
        /// Which traffic.
        selector: Selector,
        /// Which way.
        direction: Direction,
    },
    /// Show one policy.
    GetPolicy {
        /// Which traffic.
        selector: Selector,
        /// Which way.
        direction: Direction,
    },
    /// Remove all policies; not those of IKE's peers, whose networks would otherwise be open.
    FlushPolicies,
    /// Show all policies.
    DumpPolicies,
}

impl Command {
    /// Whether it is a query, which changes nothing.
    pub fn is_question(&self) -> bool {
        matches!(
            self,
            Self::GetSa { .. } | Self::DumpSas(_) | Self::GetPolicy { .. } | Self::DumpPolicies
        )
    }
}

/// The answer of a plane to one [`Command`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// The associations requested.
    Sas(Vec<SaReport>),
    /// The policies requested.
    Policies(Vec<PolicyReport>),
    /// The SPI reserved.
    Spi(Spi),
}

/// One association as `setkey -D` and `status` show it. Times are seconds since the Unix epoch, 0 for never.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaReport {
    /// Its configuration.
    pub config: Arc<SaConfig>,
    /// The highest sequence number sent or received so far.
    pub sequence: u64,
    /// When it was added.
    pub created: u64,
    /// When it was first used.
    pub first_used: u64,
    /// When it was last used.
    pub last_used: u64,
    /// Bytes carried, as lifetimes count them.
    pub bytes: u64,
    /// Packets carried.
    pub packets: u64,
    /// Its phase.
    pub phase: Phase,
    /// Drops charged to this association, by [`Dropped::index`](crate::Dropped::index); those that are not 0.
    pub drops: Vec<(crate::Dropped, u64)>,
}

/// One policy as `setkey -DP` and `status` show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyReport {
    /// The entry.
    pub policy: Arc<Policy>,
    /// Its number.
    pub id: u32,
    /// When it was added, in seconds since the Unix epoch.
    pub created: u64,
    /// When it last decided about a packet, 0 for never.
    pub last_used: u64,
}

/// Why a plane refused. Nothing was changed: a list of commands is applied as a whole or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Which command of the list, from 0.
    pub index: usize,
    /// Why, and what to do about it.
    pub reason: String,
}
