//! What `tune apply` has changed, so that `tune revert` can restore it: one small file, written before any setting is.
//!
//! The first old value wins, however often a setting is changed. All values that were ever written are kept, so that a
//! value set by another program is recognised even if a run was killed between the file and the setting.

use crate::file_path::folder_of;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The default path of the state file.
pub(super) const DEFAULT_STATE_FILE: &str = "/var/lib/esplanade/tune.json";

/// The file's content.
#[derive(Serialize, Deserialize, Default, Debug, PartialEq)]
pub(super) struct State {
    /// The boot that it belongs to: after another boot settings have their initial values.
    pub boot: String,
    pub changed: Vec<Changed>,
}

/// One target that was changed.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(super) struct Changed {
    /// The setting's name.
    pub name: String,
    pub target: String,
    /// The network namespace that the target was seen from.
    pub network: String,
    pub before: String,
    /// Everything that was written there, the latest last.
    pub written: Vec<String>,
}

impl State {
    /// Reads the state; it is empty without a file, or where the machine was rebooted since.
    pub(super) fn load(path: &Path, boot: &str) -> io::Result<Self> {
        let fresh = || Self {
            boot: boot.to_owned(),
            changed: Vec::new(),
        };
        let text = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(fresh()),
            read => read?,
        };
        let state: Self = serde_json::from_slice(&text).map_err(|error| {
            io::Error::other(format!(
                "it is damaged ({error}); restore the old values in it by hand, then remove it"
            ))
        })?;
        Ok(if state.boot == boot { state } else { fresh() })
    }

    /// Writes the file atomically; removes it when there is nothing to remember.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        if self.changed.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let draft = path.with_extension("new");
        let _ = fs::remove_file(&draft);
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        // The folder is synced too, so that the file's name survives a power failure.
        File::open(folder_of(path))?.sync_all()
    }

    /// Notes that `value` is about to be written.
    pub(super) fn note(
        &mut self,
        name: &str,
        target: &str,
        network: &str,
        before: &str,
        value: &str,
    ) {
        if let Some(known) = self.find(target, network) {
            known.written.push(value.to_owned());
            return;
        }
        self.changed.push(Changed {
            name: name.to_owned(),
            target: target.to_owned(),
            network: network.to_owned(),
            before: before.to_owned(),
            written: vec![value.to_owned()],
        });
    }

    /// What is known of a target.
    pub(super) fn find(&mut self, target: &str, network: &str) -> Option<&mut Changed> {
        let mut all = self.changed.iter_mut();
        all.find(|one| one.target == target && one.network == network)
    }
}

/// Makes the folder if needed, and takes a lock that is held until the returned file is dropped.
pub(super) fn lock(path: &Path) -> io::Result<File> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder_of(path))?;
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.with_extension("lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(lock)
}
