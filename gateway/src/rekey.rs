//! `esplanade rekey`: new keys on both sides, in any order, and no packet is lost.
//!
//! ```text
//!   installed ──► new inbound SAs are accepted; new outbound SAs are on standby: one dummy packet per second uses them
//!   answered  ──► an authentic packet arrived on a new SA: the peer has the new keys and accepts them
//!   moved     ──► the new SAs are used for sending, the old ones are on standby
//!   done      ──► nothing arrived on the old SAs for some seconds: they are deleted
//! ```
//!
//! Each peer is handled on its own (`progress`); what a text requests is determined before anything changes (`plan`). A
//! peer from which nothing arrives stays with the old keys.

mod plan;
mod progress;

pub(crate) use plan::RekeyPlan;
pub(crate) use progress::{Pace, RekeyProgress, Step, Turn};

use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaConfig, SaId};
use std::net::IpAddr;
use std::sync::Arc;

/// The name of an association in a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SaReference {
    /// Destination, protocol, SPI.
    pub id: SaId,
    /// Outer source address.
    pub source: IpAddr,
}

impl SaReference {
    fn of(config: &SaConfig) -> Self {
        Self {
            id: config.id,
            source: config.source,
        }
    }

    /// The association of this name, if there is one.
    pub(crate) fn find<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Sa> {
        let found = snapshot.find(&self.id).map(|place| snapshot.sa(place))?;
        (found.config.source == self.source).then_some(found)
    }
}

/// The same configuration, on standby or not.
fn standing_by(config: &SaConfig, is_standby: bool) -> Arc<SaConfig> {
    Arc::new(SaConfig {
        is_standby,
        ..config.clone()
    })
}

#[cfg(test)]
mod tests;
