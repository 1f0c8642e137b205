//! Our own data plane: the database that its threads read, and the kernel's tables around it.
//!
//! ```text
//!   commands ──► a draft of the database ──► kernel's tables: closed ──► routes ──► open ──► published to the threads
//!                  │ refused, or its numbers   │ failed: closed, the old ones again
//!                  │ cannot be kept (`state`)  │
//!                  └──► nothing has changed ◄──┘
//! ```

use super::{Plane, Unsupported, check};
use crate::state::{Numbers, Pending};
use arc_swap::ArcSwap;
use ipsec::command::{Answer, Command, Refused};
use ipsec::database::{Database, KeptInterface, Snapshot};
use ipsec::policy::Policy;
use ipsec::sa::{LifetimeEvent, Sa, SaConfig, SaId, SaUsage};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The parts that must match the databases: the kernel's tables, and the sockets that associations need.
pub(crate) trait Kernel {
    /// Whether this association can be served here, or why not.
    fn can_serve(&self, config: &SaConfig) -> Result<(), Unsupported>;

    /// Whether this policy can be enforced here, or why not.
    fn can_enforce(&self, _: &Policy) -> Result<(), Unsupported> {
        Ok(())
    }

    /// The addresses at which protected packets arrive.
    fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        Ok(Vec::new())
    }

    /// Makes the devices of a snapshot.
    fn open_devices(&mut self, _: &Snapshot) -> io::Result<()> {
        Ok(())
    }

    /// Updates drop rules, routes, devices and sockets. On an error the old ones are in force again, or everything is
    /// blocked.
    fn enforce(&mut self, snapshot: &Snapshot) -> io::Result<()>;

    /// What has to wait until the threads have the enforced snapshot.
    fn follow(&mut self, _: &Snapshot) -> io::Result<()> {
        Ok(())
    }
}

/// The plane of a running gateway.
pub(crate) struct OwnPlane<K> {
    database: Database,
    published: Arc<ArcSwap<Snapshot>>,
    /// Snapshots that are replaced but may still be in use by batches in flight.
    retired: Vec<Arc<Snapshot>>,
    kernel: K,
    /// Whether the kernel's side could not be updated to the databases.
    behind: bool,
    /// Whether any databases have been enforced yet. Before that there is nothing to return to except the rules of an
    /// earlier gateway.
    has_enforced: bool,
    start: Start,
    clock: fn() -> u64,
    random: fn() -> u64,
    numbers: Numbers,
}

/// A gateway enforces what its file and its peers say at once: rules and devices that an earlier gateway has left serve
/// both.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Changes are enforced one by one.
    Over,
    /// They are collected, none yet.
    Empty,
    /// They are collected.
    Collected,
}

/// How long a delete waits for batches in flight. They take milliseconds.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(2);

impl<K: Kernel> OwnPlane<K> {
    /// An empty plane. `clock` returns seconds since the Unix epoch, `random` unpredictable bits.
    pub(crate) fn new(kernel: K, clock: fn() -> u64, random: fn() -> u64) -> Self {
        Self {
            database: Database::default(),
            published: Arc::default(),
            retired: Vec::new(),
            kernel,
            behind: false,
            has_enforced: false,
            start: Start::Over,
            clock,
            random,
            numbers: Numbers::default(),
        }
    }

    /// Keeps numbers across restarts from now on.
    pub(crate) fn keep(&mut self, numbers: Numbers) {
        self.numbers = numbers;
    }

    /// Collects changes from now on.
    pub(crate) fn collect(&mut self) {
        self.start = Start::Empty;
    }

    /// Enforces what was collected, and each change by itself from now on.
    pub(crate) fn enforce_collected(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.start, Start::Over) == Start::Collected {
            self.kernel.enforce(&self.database.snapshot())?;
            self.has_enforced = true;
        }
        Ok(())
    }

    /// What keeps numbers across restarts.
    pub(crate) fn numbers(&mut self) -> &mut Numbers {
        &mut self.numbers
    }

    /// The current snapshot, as the data plane's threads read it.
    pub(crate) fn published(&self) -> Arc<ArcSwap<Snapshot>> {
        Arc::clone(&self.published)
    }

    /// The kernel's side.
    pub(crate) fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// A copy to try things on.
    pub(crate) fn draft(&self) -> Database {
        self.database.clone()
    }

    /// Ages associations. Expired ones have left the databases when this returns, and the kernel's tables too unless
    /// these could not be updated; then every tick tries again. `visit` is called for each association.
    pub(crate) fn tick(
        &mut self,
        visit: impl FnMut(&Arc<Sa>, &SaUsage),
    ) -> (Vec<(SaId, LifetimeEvent)>, io::Result<()>) {
        let before = self.database.snapshot();
        let events = self.database.tick((self.clock)(), visit);
        let after = self.database.snapshot();
        let changed = !Arc::ptr_eq(&before, &after);
        if changed {
            self.published.store(Arc::clone(&after));
            self.numbers.follow(&after, &Pending::default());
        }
        let followed = if changed || self.behind {
            let enforced = self.kernel.enforce(&after);
            enforced.and_then(|()| self.kernel.follow(&after))
        } else {
            Ok(())
        };
        self.behind = followed.is_err();
        (events, followed)
    }

    /// Makes the devices that exist without associations too. If one cannot be made, the old ones stay; what was made
    /// beside them is removed with the next change.
    pub(crate) fn keep_interfaces(&mut self, kept: &[KeptInterface]) -> io::Result<()> {
        let mut draft = self.database.clone();
        if draft.keep_interfaces(kept) {
            self.kernel.open_devices(&draft.snapshot())?;
            self.database = draft;
            self.publish();
        }
        Ok(())
    }

    /// Updates the kernel's side after addresses or paths have changed.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        let addresses = self.kernel.addresses()?;
        if self.database.set_local_addresses(&addresses) {
            self.published.store(self.database.snapshot());
        }
        let snapshot = self.database.snapshot();
        let enforced = self.kernel.enforce(&snapshot);
        let followed = enforced.and_then(|()| self.kernel.follow(&snapshot));
        self.behind = followed.is_err();
        followed
    }

    fn publish(&mut self) {
        let snapshot = self.database.snapshot();
        self.retired.push(self.published.swap(snapshot));
    }

    /// Waits until no batch holds a snapshot from before the last change. Keys are zeroed when the last reference to an
    /// association is dropped, so only then is a delete complete; the caller must hold no old snapshot either.
    pub(crate) fn drain(&mut self) {
        let end = Instant::now() + MAX_DRAIN_TIME;
        for old in self.retired.drain(..) {
            while Arc::strong_count(&old) > 1 && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl<K: Kernel> Plane for OwnPlane<K> {
    fn supports(&self, command: &Command) -> Result<(), Unsupported> {
        match command {
            Command::AddSa(config) | Command::UpdateSa(config) => self.kernel.can_serve(config),
            Command::AddPolicy(policy) | Command::UpdatePolicy(policy) => {
                self.kernel.can_enforce(policy)
            }
            _ => Ok(()),
        }
    }

    fn apply(&mut self, commands: &[Command]) -> Result<Vec<Answer>, Refused> {
        check(self, commands)?;
        let mut random = || (self.random)();
        let mut draft = self.database.clone();
        let addresses = self.kernel.addresses();
        if let Ok(addresses) = &addresses {
            draft.set_local_addresses(addresses);
        }
        let addresses = addresses.unwrap_or_default();
        let (draft, answers) = draft.applied(commands, (self.clock)(), &mut random)?;
        if commands.iter().all(Command::is_question) {
            return Ok(answers);
        }
        let after = draft.snapshot();
        let before = self.database.snapshot();
        let pending = self.numbers.recall(commands, &before, &after, &addresses)?;
        let enforced = match self.start {
            Start::Over => self.kernel.enforce(&after),
            Start::Empty | Start::Collected => {
                self.start = Start::Collected;
                Ok(())
            }
        };
        if let Err(error) = enforced {
            // The old tables were accepted before. If they are refused now, the first error is still the one to report.
            if self.has_enforced {
                let enforced = self.kernel.enforce(&before);
                self.behind = enforced.and_then(|()| self.kernel.follow(&before)).is_err();
            }
            self.numbers.follow(&before, &Pending::default());
            return Err(Refused {
                index: commands.len(),
                reason: error.to_string(),
            });
        }
        // Traffic is let through from here: packets that the new databases cover are led to the engine, and no others.
        self.has_enforced |= self.start == Start::Over;
        drop(before);
        self.database = draft;
        self.publish();
        // The next tick tries it again.
        self.behind = self.kernel.follow(&after).is_err();
        self.numbers.follow(&after, &pending);
        Ok(answers)
    }
}

#[cfg(test)]
mod tests;
