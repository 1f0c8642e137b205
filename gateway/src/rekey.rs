//! `esplanade rekey`: new keys on both sides, in any order, and no packet is lost.
//!
//! ```text
//!   installed ──► new associations receive; new ones for sending stand by, and a dummy packet a second tells the peer of them
//!   heard     ──► an authentic packet came by a new one: the peer has the new keys, and receives by them
//!   moved     ──► new ones carry what is sent, old ones stand by
//!   done      ──► nothing came by the old ones for some seconds: they are deleted
//! ```
//!
//! Each peer goes its way alone (`course`); what a text asks for is found out before anything changes (`plan`). A peer
//! that is never heard stays with the old keys.

mod course;
mod plan;

pub use course::{Course, Pace, Step, Turn};
pub use plan::{Ends, Peer, Plan};

use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaConfig, SaId};
use std::net::IpAddr;
use std::sync::Arc;

/// What an association is named by in a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaReference {
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

    /// The association, if there is one of this name.
    pub fn find<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Sa> {
        let found = snapshot.find(&self.id).map(|place| snapshot.sa(place))?;
        (found.config.source == self.source).then_some(found)
    }
}

/// The same configuration, to be sent by or not.
fn standing_by(config: &SaConfig, is_standby: bool) -> Arc<SaConfig> {
    Arc::new(SaConfig {
        is_standby,
        ..config.clone()
    })
}

#[cfg(test)]
mod tests;
