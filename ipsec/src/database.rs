//! The SAD and the SPD: one writer obeys commands, many readers hold an immutable [`Snapshot`].

use crate::Dropped;
use crate::command::{Answer, Command, Refused};
use crate::packet::Outline;
use crate::policy::{Direction, Policy};
use crate::sa::{Sa, SaId};
use std::sync::Arc;

/// The one writer's view.
#[derive(Default)]
pub struct Database {
    snapshot: Arc<Snapshot>,
}

/// Both databases at one moment, with everything a packet needs looked up beforehand.
#[derive(Default)]
pub struct Snapshot {
    _private: (),
}

/// An association's place in one snapshot. Never valid in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaIndex(pub u32);

/// What outbound policy says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision<'a> {
    /// Pass in clear.
    Bypass,
    /// Drop, and why.
    Drop(Dropped),
    /// Protect by these, the first applied innermost.
    Protect(&'a [SaIndex]),
    /// A policy wants protection and no association exists: tell whoever can make one.
    Acquire {
        /// Number of the policy.
        policy: u32,
    },
}

impl Database {
    /// Obeys all commands or none. `now` is in seconds since the Unix epoch, `random` yields fresh random bits (SPIs
    /// for `GetSpi`, start of IV counters).
    pub fn apply(
        &mut self,
        commands: &[Command],
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Vec<Answer>, Refused> {
        todo!()
    }

    /// The present state, to be published to the readers.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }
}

impl Snapshot {
    /// The association for an arriving packet.
    pub fn find(&self, id: &SaId) -> Option<SaIndex> {
        todo!()
    }

    /// The association at a place found in this snapshot.
    pub fn sa(&self, index: SaIndex) -> &Sa {
        todo!()
    }

    /// All associations.
    pub fn sas(&self) -> impl Iterator<Item = &Sa> {
        std::iter::empty()
    }

    /// All policies of one direction in the order in which they are asked, with their numbers.
    pub fn policies(&self, direction: Direction) -> impl Iterator<Item = (u32, &Arc<Policy>)> {
        std::iter::empty()
    }

    /// Outbound policy for a packet about to leave.
    pub fn outbound(&self, packet: &Outline) -> Decision<'_> {
        todo!()
    }

    /// Inbound policy (`in`, or `fwd` for a packet to be forwarded): whether a packet that came through `path`
    /// (outermost first; empty if it came in clear) may pass (RFC 4301 5.2).
    pub fn inbound(&self, packet: &Outline, path: &[SaIndex]) -> Result<(), Dropped> {
        todo!()
    }
}
