//! The SAD and the SPD (RFC 4301 4.4): one writer obeys commands, many readers hold an immutable [`Snapshot`].
//!
//! ```text
//!   commands ──► Database::apply ──► a draft, all or nothing ──► Snapshot (Arc) ──► readers, one per batch
//!                                      │
//!                                      └─ associations keep their state (Arc) from snapshot to snapshot
//! ```
//!
//! Everything a packet needs is looked up when a snapshot is made: which associations a policy leads to, and where
//! to find a policy among many (`index`).

mod draft;
mod explain;
mod hash_index;
mod index;
mod interfaces;
mod prefetch;
mod resolve;
mod shadowed;
mod snapshot;
mod spread;

pub use prefetch::TOGETHER;
pub use explain::{Explanation, Finding, Outcome};
pub use interfaces::Interface;
pub use shadowed::Rival;
pub use snapshot::{Allowed, Decision, SaIndex, Snapshot};

use crate::command::{Answer, Command, Refused};
use crate::policy::Policy;
use crate::sa::{LifeEvent, Sa, SaId};
use draft::Draft;
use interfaces::Numbers;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The one writer's view. A clone is a draft: cheap, sharing the associations' state, thrown away or taken over.
#[derive(Clone, Default)]
pub struct Database {
    draft: Draft,
    snapshot: Arc<Snapshot>,
    /// Addresses of this host: they tell which associations of a device lead out.
    local: Arc<HashSet<IpAddr>>,
    numbers: Numbers,
}

/// One policy and what is known of its use.
pub(crate) struct SpdEntry {
    policy: Arc<Policy>,
    id: u32,
    created: u64,
    /// Under a snapshot that is no longer the present one.
    used: AtomicBool,
    last_used: AtomicU64,
}

impl Database {
    /// Obeys all commands or none. `now` is in seconds since the Unix epoch, `random` yields fresh random bits (SPIs
    /// for `GetSpi`, the start of IV counters).
    pub fn apply(
        &mut self,
        commands: &[Command],
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Vec<Answer>, Refused> {
        if commands.iter().all(Command::is_question) {
            return self.draft.clone().obey_all(commands, now, random);
        }
        let mut draft = self.draft.clone();
        let answers = draft.obey_all(commands, now, random)?;
        draft.settle();
        self.draft = draft;
        self.publish();
        Ok(answers)
    }

    /// Takes note of the addresses of this host. Whether anything changed: then there is a new snapshot.
    pub fn know_local(&mut self, addresses: &[IpAddr]) -> bool {
        let local: HashSet<_> = addresses.iter().copied().collect();
        let news = *self.local != local;
        if news {
            self.local = Arc::new(local);
            self.publish();
        }
        news
    }

    /// The present state, to be published to the readers.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// Once a second: ages associations, takes dead ones out, and tells what happened to which. The snapshot is a new
    /// one if any died.
    pub fn tick(&mut self, now: u64) -> Vec<(SaId, LifeEvent)> {
        let mut events = Vec::new();
        for sa in self.draft.sas() {
            events.extend(
                sa.state
                    .take_events(&sa.config, now)
                    .into_iter()
                    .map(|event| (sa.config.id, event)),
            );
        }
        self.take_used();
        for entry in self.draft.policies() {
            if entry.used.swap(false, Ordering::Relaxed) {
                entry.last_used.store(now, Ordering::Relaxed);
            }
        }
        let expired = self.draft.forget_larval(now);
        if expired || events.iter().any(|(_, event)| *event != LifeEvent::Soft) {
            self.draft.bury_dead();
            self.publish();
        } else if !events.is_empty() {
            // A dying association gives way to a younger one.
            self.publish();
        }
        events
    }

    /// Takes over what readers have noted. What a batch notes that is still under way when its snapshot is replaced is lost;
    /// the policy's next packet notes it again.
    fn take_used(&self) {
        self.snapshot
            .take_used(|entry| entry.used.store(true, Ordering::Relaxed));
    }

    fn publish(&mut self) {
        self.take_used();
        let sas: Vec<_> = self.draft.sas().cloned().collect();
        let interfaces = self.numbers.interfaces(&sas, &self.local);
        self.snapshot = Arc::new(Snapshot::new(
            sas,
            self.draft.policies().cloned(),
            interfaces,
            self.draft.spreader(),
        ));
    }
}

/// Whether `sa` is still fit to carry something.
fn is_alive(sa: &Sa) -> bool {
    !sa.state.is_dead()
}

#[cfg(test)]
mod tests;
