//! Installs, compares and removes one table of the gateway in the kernel, and reads its counters.
//!
//! While this process runs it owns the table: other tools' `flush ruleset` skips it, and `delete table` is refused.
//! When the process dies the table stays, and the next process of the gateway takes it over. A kernel before 6.9 does
//! not support that; there the table can be changed by every program.

use crate::routes::nftables::{
    Connection, Count, NamedSet, OWNED, Present, Refused, Ruleset, TableFamily,
};
use std::io;

/// A table and the connection that owns it.
pub(crate) struct Firewall {
    family: TableFamily,
    table: String,
    connection: Option<Connection>,
    /// The rules installed last, and how the kernel listed them then; no list if another program changed the table
    /// meanwhile.
    applied: Option<(Ruleset, Option<Present>)>,
    /// The kernel's generation number of its ruleset at which nothing was missing.
    generation: Option<u32>,
}

impl Firewall {
    /// Reads and changes nothing yet.
    pub(crate) fn new(family: TableFamily, table: String) -> Self {
        Self {
            family,
            table,
            connection: None,
            applied: None,
            generation: None,
        }
    }

    /// Replaces the table's contents atomically; its counters keep their values. On an error nothing has changed.
    pub(crate) fn apply(&mut self, ruleset: &Ruleset) -> io::Result<()> {
        let old = self.applied();
        if old.is_some_and(|old| old != ruleset && old.differs_in_values_at_most(ruleset)) {
            return self.change_values(ruleset.sets.clone());
        }
        self.replace(ruleset)
    }

    fn replace(&mut self, ruleset: &Ruleset) -> io::Result<()> {
        match self.put(ruleset, OWNED) {
            Err(refused) if refused.is_about_flags() => self.apply_unowned(ruleset),
            outcome => self.settle(ruleset, outcome),
        }
    }

    /// The same with a table that every program may change.
    pub(super) fn apply_unowned(&mut self, ruleset: &Ruleset) -> io::Result<()> {
        let outcome = self.put(ruleset, 0);
        self.settle(ruleset, outcome)
    }

    /// Gives the sets of the table these values, atomically; its rules stay. Does nothing before rules were installed.
    pub(crate) fn change_values(&mut self, sets: Vec<NamedSet>) -> io::Result<()> {
        let Some((mut ruleset, present)) = self.applied.take() else {
            return Ok(());
        };
        let Ok(generation) = self.try_to_change_values(&ruleset, &sets) else {
            // The table is not as it was left, or the kernel has no room: replacing all of it repairs the first, and
            // explains the second.
            let old = ruleset.clone();
            ruleset.sets = sets;
            self.applied = Some((old, present));
            return self.replace(&ruleset);
        };
        // The kernel counts the transactions of all programs. One more than before: the gateway's was the only one, and
        // the rest of the table is as it was.
        let is_next = |known: u32| known.wrapping_add(1) == generation;
        self.generation = Some(generation).filter(|_| self.generation.is_some_and(is_next));
        let present = present.map(|present| present.with_values(&sets));
        ruleset.sets = sets;
        self.applied = Some((ruleset, present));
        Ok(())
    }

    /// The kernel's generation number after the change.
    fn try_to_change_values(&mut self, ruleset: &Ruleset, sets: &[NamedSet]) -> io::Result<u32> {
        let connection = self.connection()?;
        let changed = connection.change_values(ruleset, sets);
        changed.map_err(|refused| refused.error)?;
        connection.generation()
    }

    fn put(&mut self, ruleset: &Ruleset, flags: u32) -> Result<(), Refused> {
        let (family, table) = (self.family, self.table.clone());
        let connection = self.connection().map_err(Refused::whole)?;
        let counts = connection.counts(family, &table, &ruleset.counters);
        // An error is ignored: only counts would be lost, and the transaction reports a lasting fault more precisely.
        connection.replace(ruleset, flags, &counts.unwrap_or_default())
    }

    /// Reads back what was installed.
    fn settle(&mut self, ruleset: &Ruleset, outcome: Result<(), Refused>) -> io::Result<()> {
        let (family, table) = (self.family, self.table.clone());
        outcome.map_err(|refused| explain(refused, &table))?;
        let connection = self.connection()?;
        // Read first, as in `missing`.
        let generation = connection.generation();
        let present = Present::read(connection, family, &table, &ruleset.set_names());
        let present = present.ok().flatten();
        let present = present.filter(|present| present.has_shape_of(ruleset));
        self.generation = generation.ok().filter(|_| present.is_some());
        self.applied = Some((ruleset.clone(), present));
        Ok(())
    }

    /// What was installed last.
    pub(crate) fn applied(&self) -> Option<&Ruleset> {
        self.applied.as_ref().map(|(ruleset, _)| ruleset)
    }

    /// Describes what of it is missing or changed in the kernel. Costs one short request while no table changes.
    pub(crate) fn missing(&mut self) -> io::Result<Vec<String>> {
        if self.applied.is_none() {
            return Ok(Vec::new());
        }
        let (family, table) = (self.family, self.table.clone());
        let known = self.generation;
        let sets = self.applied().map(Ruleset::set_names).unwrap_or_default();
        let connection = self.connection()?;
        // Read first: changes after this lead to another comparison the next time.
        let generation = connection.generation()?;
        if known == Some(generation) {
            return Ok(Vec::new());
        }
        let now = Present::read(connection, family, &table, &sets)?;
        let wanted = self
            .applied
            .as_ref()
            .and_then(|(_, present)| present.as_ref());
        let words = match wanted {
            Some(wanted) => wanted.differences(now.as_ref()),
            None => vec!["another program changed the table while it was created".to_owned()],
        };
        self.generation = words.is_empty().then_some(generation);
        Ok(words)
    }

    /// The number by which notifications name what it has changed; none before anything was.
    pub(crate) fn port(&self) -> Option<u32> {
        self.connection.as_ref().map(Connection::port)
    }

    /// Packets and bytes of each named counter, as far as they can be read.
    pub(crate) fn counts(&mut self, names: &[&'static str]) -> Vec<Count> {
        let (family, table) = (self.family, self.table.clone());
        let counts = self
            .connection()
            .and_then(|connection| connection.counts(family, &table, names));
        counts.unwrap_or_default()
    }

    /// Whether a running process owns the table. Before Linux 6.9 tables have no owner.
    pub(crate) fn has_owner(&mut self) -> io::Result<bool> {
        let (family, table) = (self.family, self.table.clone());
        self.connection()?.has_owner(family, &table)
    }

    /// Deletes the table, whichever process has created it, unless that one is running.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        let (family, table) = (self.family, self.table.clone());
        let removed = self.connection()?.remove(family, &table);
        removed.map_err(|refused| explain(refused, &table))?;
        self.applied = None;
        self.generation = None;
        Ok(())
    }

    fn connection(&mut self) -> io::Result<&mut Connection> {
        if self.connection.is_none() {
            self.connection = Some(Connection::open().map_err(absent)?);
        }
        self.connection
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// Explains the error of a kernel without nftables over netlink.
fn absent(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::EOPNOTSUPP) => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no nftables, and without drop rules protected traffic could pass unencrypted: load the \
             module (modprobe nf_tables; for a container: on its host), or install a kernel that has it",
        ),
        _ => error,
    }
}

fn explain(refused: Refused, table: &str) -> io::Error {
    let code = refused.error.raw_os_error();
    let step = refused.step();
    match (refused.message, code) {
        (None, Some(libc::EPERM)) => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "no permission to change drop rules: CAP_NET_ADMIN is needed, run as root",
        ),
        (None, Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT)) => absent(refused.error),
        (Some(_), Some(libc::EPERM)) => io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "the nftables table `{table}` belongs to another running process: another gateway for the same \
                 device is running in this network namespace (`esplanade status`), stop it first"
            ),
        ),
        (Some(_), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT)) => {
            io::Error::other(format!(
                "the kernel lacks a part of nftables that the drop rules need ({step}: {}): load the modules \
                 nft_fib_inet, nft_fib_ipv4 and nft_fib_ipv6 (`nf_tables_inet` built in; for a container: on its host)",
                refused.error
            ))
        }
        _ => io::Error::other(format!(
            "the kernel refused the drop rules ({step}: {})",
            refused.error
        )),
    }
}
