//! The SAD and the SPD (RFC 4301 4.4): one writer applies commands, many readers hold an immutable [`Snapshot`].
//!
//! ```text
//!   commands ──► Database::apply ──► a draft, all or nothing ──► Snapshot (Arc) ──► readers, one per batch
//!                                      │
//!                                      └─ associations keep their state (Arc) from snapshot to snapshot
//! ```
//!
//! Everything a packet needs is looked up when a snapshot is made: which associations a policy leads to, and where
//! to find a policy among many (`index`).

mod alike;
mod change_error;
mod choices;
mod compression;
mod compression_lookup;
mod draft;
mod explain;
mod hash_index;
mod index;
mod interfaces;
mod prefetch;
mod resolve;
mod sa_index;
mod shadowed;
mod snapshot;
mod spd_entry;
mod spread;

pub use explain::{Explanation, Finding, Hop, NumberedPolicy, Outcome, Surroundings, Way};
pub use interfaces::{Interface, KeptInterface};
pub use prefetch::MAX_PREFETCH_PACKETS;
pub use sa_index::SaIndex;
pub use shadowed::Shadowed;
pub use snapshot::{Allowed, Decision, Snapshot};

use crate::command::{Answer, Command, Refused};
use crate::sa::{LifetimeEvent, Sa, SaId, SaUsage};
use draft::Draft;
use interfaces::Numbers;
use spd_entry::SpdEntry;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The one writer's view. A clone is a draft: cheap, sharing the associations' state, to be dropped or kept.
#[derive(Clone, Default)]
pub struct Database {
    draft: Draft,
    snapshot: Arc<Snapshot>,
    /// Addresses of this host: associations of a device from one of them are outbound.
    local: Arc<HashSet<IpAddr>>,
    numbers: Numbers,
    /// Devices that exist without associations too.
    kept: Arc<[KeptInterface]>,
    /// Whether policies may bear a mark of their use that has no time yet.
    has_marks: bool,
}

/// How many associations ahead of the one that is aged the next ones are prefetched: in two steps, because the state
/// is found by the association.
const PREFETCHED_SAS: usize = 8;

impl Database {
    /// Applies all commands or none. `now` is in seconds since the Unix epoch, `random` yields fresh random bits (SPIs
    /// for `GetSpi`, the start of IV counters).
    pub fn apply(
        &mut self,
        commands: &[Command],
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Vec<Answer>, Refused> {
        let (changed, answers) = self.clone().applied(commands, now, random)?;
        if !commands.iter().all(Command::is_question) {
            *self = changed;
        }
        Ok(answers)
    }

    /// A database that is to be changed, and is lost if any command is refused: as [`Database::apply`], without a
    /// further copy.
    pub fn applied(
        mut self,
        commands: &[Command],
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<(Self, Vec<Answer>), Refused> {
        let answers = self.draft.apply_all(commands, now, random)?;
        if !commands.iter().all(Command::is_question) {
            self.draft.finish_updates();
            self.publish();
        }
        Ok((self, answers))
    }

    /// Sets the addresses of this host. True if they changed: then there is a new snapshot.
    pub fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> bool {
        let local: HashSet<_> = addresses.iter().copied().collect();
        let news = *self.local != local;
        if news {
            self.local = Arc::new(local);
            self.publish();
        }
        news
    }

    /// Sets the devices that exist without associations too. True if they changed: then there is a new snapshot.
    pub fn keep_interfaces(&mut self, kept: &[KeptInterface]) -> bool {
        let news = *self.kept != *kept;
        if news {
            self.kept = kept.into();
            self.publish();
        }
        news
    }

    /// The devices that exist without associations too.
    pub fn kept_interfaces(&self) -> &[KeptInterface] {
        &self.kept
    }

    /// The current snapshot, to be published to the readers.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// Once a second: ages associations, removes dead ones, and returns what happened to each. The snapshot is a new
    /// one if any died. `visit` is called for each association: all in one pass, for of thousands none lies in a cache.
    pub fn tick(
        &mut self,
        now: u64,
        visit: impl FnMut(&Arc<Sa>, &SaUsage),
    ) -> Vec<(SaId, LifetimeEvent)> {
        let events = self.age(now, visit);
        self.snapshot.take_used(|entry| entry.note_used(now));
        if std::mem::take(&mut self.has_marks) {
            for entry in self.draft.policies() {
                entry.take_used(now);
            }
        }
        let expired = self.draft.expire_larval(now);
        if expired
            || events
                .iter()
                .any(|(_, event)| *event != LifetimeEvent::Soft)
        {
            self.draft.remove_dead();
            self.publish();
        } else if !events.is_empty() {
            // Traffic moves from a dying association to a younger one.
            self.publish();
        }
        events
    }

    fn age(
        &self,
        now: u64,
        mut visit: impl FnMut(&Arc<Sa>, &SaUsage),
    ) -> Vec<(SaId, LifetimeEvent)> {
        let mut events = Vec::new();
        let mut later = self.draft.sas().skip(2 * PREFETCHED_SAS);
        let mut soon = self.draft.sas().skip(PREFETCHED_SAS);
        for sa in self.draft.sas() {
            later.next().inspect(|sa| sa.fetch_for_aging());
            soon.next().inspect(|sa| sa.state.fetch());
            let (own, usage) = sa.state.take_events_and_usage(&sa.config, now);
            events.extend(own.into_iter().map(|event| (sa.config.id, event)));
            visit(sa, &usage);
        }
        events
    }

    fn publish(&mut self) {
        // The marks that readers have set. One that a batch sets after its snapshot was replaced is lost; the policy's
        // next packet sets it again.
        self.snapshot.take_used(SpdEntry::mark_used);
        self.has_marks = true;
        let sas: Vec<_> = self.draft.sas().cloned().collect();
        let interfaces = self.numbers.interfaces(&sas, &self.local, &self.kept);
        self.snapshot = Arc::new(Snapshot::new(
            sas,
            self.draft.policies().cloned(),
            interfaces,
            self.draft.spreader(),
        ));
    }
}

#[cfg(test)]
mod tests;
