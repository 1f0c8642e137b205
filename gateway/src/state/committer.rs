//! The records in memory and the file on the disk, behind a lock each: only what needs a durable record waits for the
//! disk.
//!
//! ```text
//!   writer, 20 times a second:  keeper ──► file of recent numbers            never waits for the disk
//!   syncer, whenever it lacks something, and recall:
//!                               keeper ──► plan ──► write, sync ──► keeper: these numbers may be used
//!                               locked              file locked     locked
//! ```
//!
//! The file's lock is taken first, the keeper's inside it and never during a write.

use super::disk::Disk;
use super::header::Header;
use super::keeper::{Changed, Keeper, Outcome};
use super::record::Moment;
use super::store::Store;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Both, for all threads.
pub(super) struct Committer<D> {
    store: Mutex<Store<D>>,
    keeper: Mutex<Keeper>,
    /// The header of the file since this start.
    header: Header,
}

impl<D: Disk> Committer<D> {
    pub(super) fn new(store: Store<D>, keeper: Keeper) -> Self {
        Self {
            header: store.header().clone(),
            store: Mutex::new(store),
            keeper: Mutex::new(keeper),
        }
    }

    /// The header of the file since this start.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// The records and associations in memory.
    pub(super) fn keeper(&self) -> MutexGuard<'_, Keeper> {
        lock(&self.keeper)
    }

    /// Gives changed associations the stored numbers of their keys; returns once the disk reserves more, or has refused
    /// to.
    pub(super) fn recall(
        &self,
        changed: &[Changed<'_>],
        moment: Moment,
    ) -> (Outcome, io::Result<()>) {
        let mut keeper = self.keeper();
        let outcome = keeper.recall(changed, moment);
        // A failure is reported by the writer's next round.
        let _ = keeper.write_recent();
        drop(keeper);
        let committed = self.commit();
        self.keeper().allow_recalled(changed);
        (outcome, committed)
    }

    /// Takes over what has changed and writes it to the file of recent numbers.
    pub(super) fn round(&self, moment: Moment) -> io::Result<()> {
        let mut keeper = self.keeper();
        keeper.round(moment);
        keeper.write_recent()
    }

    /// Whether the disk lacks anything.
    pub(super) fn is_behind(&self) -> bool {
        self.keeper().records().are_changed()
    }

    /// Writes what the disk lacks, and returns once it would survive a power failure. If the disk is full, the records
    /// that already have room in the file are still written.
    pub(super) fn commit(&self) -> io::Result<()> {
        let mut store = lock(&self.store);
        if !self.is_behind() {
            return Ok(());
        }
        if store.is_cut()? {
            store.mend()?;
            self.keeper().records().are_lost();
        }
        let count = self.keeper().records().count();
        let grown = store.grow(count);
        let plan = self.keeper().records().plan(store.room());
        store.write(&plan)?;
        self.keeper().is_durable(&plan);
        grown
    }

    /// The last write: no number is used any more.
    pub(super) fn finish(&self, moment: Moment) -> io::Result<()> {
        self.keeper().finish(moment);
        let committed = self.commit();
        // Exact numbers for the next start, also where the disk has refused them.
        let _ = self.keeper().write_recent();
        committed
    }
}

/// A thread that panicked has left complete records: a reservation is written before it is used.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
