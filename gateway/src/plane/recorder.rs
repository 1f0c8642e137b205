//! A plane that applies commands in memory only and records them: for tests and for `setkey -n`.

use super::{Plane, Unsupported, check};
use ipsec::command::{Answer, Command, Refused};
use ipsec::database::Database;
#[cfg(any(test, fuzzing))]
use ipsec::database::Snapshot;
#[cfg(any(test, fuzzing))]
use std::sync::Arc;

/// Records every list of commands that was applied.
#[derive(Default)]
pub(crate) struct Recorder {
    database: Database,
    applied: Vec<Command>,
    random: u64,
}

impl Recorder {
    /// A recorder that starts from what `database` holds.
    pub(crate) fn over(database: Database) -> Self {
        Self {
            database,
            ..Self::default()
        }
    }

    /// The commands that it applied, in order.
    #[cfg(test)]
    pub(crate) fn applied(&self) -> &[Command] {
        &self.applied
    }

    /// The databases after those commands.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.database.snapshot()
    }
}

impl Plane for Recorder {
    fn supports(&self, _: &Command) -> Result<(), Unsupported> {
        Ok(())
    }

    fn apply(&mut self, commands: &[Command]) -> Result<Vec<Answer>, Refused> {
        check(self, commands)?;
        let counter = &mut self.random;
        let answers = self.database.apply(commands, 0, &mut || {
            *counter += 1;
            *counter
        })?;
        self.applied.extend_from_slice(commands);
        Ok(answers)
    }
}
