//! Opens the file: its folder is checked, its lock taken, and a state that belongs to another machine or is too old is
//! refused.

use super::committer::Committer;
use super::header::{BadHeader, Header};
use super::keeper::Keeper;
use super::last_used::LastUsed;
use super::machine::{Foreign, Machine};
use super::recent::Recent;
use super::records::Records;
use super::store::{BadStore, Store};
use super::{Keeping, Numbers};
use crate::control::Folder;
use crate::control::folder::BadFolder;
use crate::failure::Failure;
use crate::privileges::User;
use dataplane::io::Warn;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where numbers are stored by default: a folder in it for each control socket.
const DEFAULT: &str = "/var/lib/esplanade";

/// Names of all files in the folder begin with it.
const NAME: &str = "numbers";

/// The file, behind that name.
const KIND: &str = "state";

/// The file of recent numbers, behind the name of the control socket. The folder is usually in memory (`/run`).
const RECENT: &str = "recent";

/// The options of the command line.
pub(crate) struct Wanted<'a> {
    /// `--state`.
    pub folder: Option<&'a Path>,
    /// `--no-state`.
    pub none: bool,
    /// `--fresh-keys`.
    pub fresh_keys: bool,
    /// The user who becomes the owner of the folder and its files, if they are root's.
    pub new_owner: Option<&'a User>,
    /// The control socket, which no other gateway has.
    pub control: &'a Path,
    /// The folder of the control socket.
    pub beside: &'a Folder,
}

/// Opens the state as the options request. All that needs a privilege happens here.
pub(crate) fn open(wanted: &Wanted<'_>, warn: &Warn) -> Result<Numbers, Failure> {
    if wanted.none {
        return Ok(not_kept("--no-state", warn));
    }
    let folder = match wanted.folder {
        Some(folder) => folder.to_owned(),
        None => default_folder(wanted.control),
    };
    let name = folder.join(NAME);
    match Folder::make_for(&name, "--state", wanted.new_owner) {
        Ok(folder) => open_in(&folder, &name, wanted, warn).map(Numbers::Kept),
        // The folder is only a default, and not every user may write there.
        Err(error) if wanted.folder.is_none() => Ok(not_kept(&error.to_string(), warn)),
        Err(error) => Err(Failure::new(error)),
    }
}

fn not_kept(why: &str, warn: &Warn) -> Numbers {
    warn(&format!(
        "sequence numbers are not stored across restarts ({why}): after one, peers drop this gateway's packets as \
         replayed until its numbers pass the old ones, and recorded packets are accepted again. `--state DIR` stores \
         them"
    ));
    Numbers::NotKept(format!("sequence numbers are not stored ({why})"))
}

/// One for each control socket: gateways of one host that can run side by side have different ones.
fn default_folder(control: &Path) -> PathBuf {
    let control = std::path::absolute(control).unwrap_or_else(|_| control.to_owned());
    let name = control.to_string_lossy();
    Path::new(DEFAULT).join(name.trim_matches('/').replace('/', "-"))
}

fn open_in(
    folder: &Folder,
    name: &Path,
    wanted: &Wanted<'_>,
    warn: &Warn,
) -> Result<Keeping, Failure> {
    let place = format!("{}.{KIND}", name.display());
    let lock = folder.lock().map_err(|error| match error {
        BadFolder::Locked(_) => Failure::new(taken(folder, &place)),
        error => Failure::new(error),
    })?;
    let fail = |error: BadFolder| Failure::new(error);
    let file = match folder.file_of(KIND).map_err(fail)? {
        Some(file) => file,
        None => create(folder, &place)?,
    };
    let last_used = match LastUsed::load(wanted.beside) {
        Err(_) if wanted.fresh_keys => None,
        last_used => last_used?,
    };
    let (store, records) = match read(file, last_used.as_ref(), &place) {
        Ok(read) => read,
        Err(why) if wanted.fresh_keys && why.can_begin_anew => {
            warn(&format!(
                "{} Because of --fresh-keys it is replaced by a new one: no key of the setkey file may have been \
                 used before",
                why.words
            ));
            Store::open(create(folder, &place)?)
                .map_err(|error| Failure::new(refusal(error, &place).words))?
        }
        Err(why) => return Err(Failure::new(why)),
    };
    if let Some(user) = wanted.new_owner {
        folder.hand_over(user).map_err(fail)?;
    }
    let committer = begin(store, records, wanted.beside, &place)?;
    Ok(Keeping::new(committer, place, lock, warn))
}

/// Adds what a killed process has written to its file of recent numbers alone. Then writes to the header where the file
/// is in use from now on, and by which process.
fn begin(
    mut store: Store<File>,
    mut records: Records,
    beside: &Folder,
    place: &str,
) -> Result<Committer<File>, Failure> {
    let here = Machine::here(&store.header().salt);
    let fail = |error: io::Error| Failure::new(format!("cannot write {place}: {error}"));
    if store.header().machine.boot == here.boot {
        read_recent(beside, &store, &mut records)?;
        store.commit(&mut records).map_err(fail)?;
    } else {
        records.are_of_earlier_boot();
    }
    let inode = store.disk().metadata().map_or(0, |found| found.ino());
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |found| found.ino());
    let begun = store.begin(|header| {
        header.machine = here;
        header.inode = inode;
        header.owner = rustix::process::geteuid().as_raw().into();
        header.pid = std::process::id().into();
        header.namespace = namespace;
    });
    begun.map_err(fail)?;
    let used = LastUsed::of(store.header());
    used.save(beside)?;
    let recent = create_recent(beside, &used)?;
    Ok(Committer::new(store, Keeper::new(records, recent)))
}

fn read_recent(beside: &Folder, store: &Store<File>, records: &mut Records) -> Result<(), Failure> {
    let Some(file) = beside.file_of(RECENT).map_err(Failure::new)? else {
        return Ok(());
    };
    Recent::read(&file, &LastUsed::of(store.header()), records).map_err(|error| {
        let place = beside.socket().display();
        Failure::new(format!("cannot read {place}.{RECENT}: {error}"))
    })
}

fn create_recent(beside: &Folder, state: &LastUsed) -> Result<Option<Recent>, Failure> {
    let bytes = Recent::empty(state);
    beside.write(RECENT, &bytes).map_err(Failure::new)?;
    let file = beside.file_of(RECENT).map_err(Failure::new)?;
    Ok(file.map(Recent::new))
}

/// Removes the file of recent numbers, once all numbers are in the state.
pub(crate) fn remove_recent(beside: &Folder) -> io::Result<()> {
    beside.remove(RECENT).map_err(io::Error::other)
}

fn create(folder: &Folder, place: &str) -> Result<File, Failure> {
    let mut header = Header::default();
    for word in header.salt.chunks_mut(8) {
        word.copy_from_slice(&crate::random::system_random().to_le_bytes());
    }
    folder
        .write_durably(KIND, &Store::<File>::empty(&header))
        .map_err(Failure::new)?;
    match folder.file_of(KIND).map_err(Failure::new)? {
        Some(file) => Ok(file),
        None => Err(Failure::new(format!(
            "{place} was removed right after it was created"
        ))),
    }
}

/// Why a state is not continued.
struct NotOurs {
    words: String,
    /// Whether starting with new keys solves it.
    can_begin_anew: bool,
}

impl std::fmt::Display for NotOurs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)?;
        if self.can_begin_anew {
            f.write_str(
                " Set new keys on both sides, and start once with --fresh-keys, which asserts that no key of the \
                 setkey file was ever used",
            )
        } else {
            Ok(())
        }
    }
}

fn read(
    file: File,
    last_used: Option<&LastUsed>,
    place: &str,
) -> Result<(Store<File>, Records), NotOurs> {
    let (store, records) = Store::open(file).map_err(|error| refusal(error, place))?;
    match doubt(&store, last_used) {
        None => Ok((store, records)),
        Some(why) => Err(NotOurs {
            words: format!(
                "{place} {why}: numbers that are unused according to it may have been used."
            ),
            can_begin_anew: true,
        }),
    }
}

fn refusal(error: BadStore, place: &str) -> NotOurs {
    let (words, can_begin_anew) = match error {
        BadStore::Header(BadHeader::Version(version)) => (
            format!(
                "{place} has format version {version}, written by a newer version of this program: use that version"
            ),
            false,
        ),
        BadStore::Header(BadHeader::Unknown) => (
            format!("{place} is damaged, or not a state file of this program."),
            true,
        ),
        BadStore::SaRecord => (
            format!("{place} is damaged: both copies of a record are invalid."),
            true,
        ),
        BadStore::Io(error) => (format!("cannot use {place}: {error}"), false),
    };
    NotOurs {
        words,
        can_begin_anew,
    }
}

/// Why numbers that this state calls unused may have been used: by another machine, or by this one before its state was
/// restored from an older copy.
fn doubt(store: &Store<File>, last_used: Option<&LastUsed>) -> Option<&'static str> {
    let header = store.header();
    let here = Machine::here(&header.salt);
    match here.foreign(&header.machine) {
        Some(Foreign::Machine) => return Some("was made on another machine"),
        Some(Foreign::Generation) => {
            return Some("is older than the last copy or snapshot restore of this virtual machine");
        }
        None => {}
    }
    let inode = store.disk().metadata().map_or(0, |found| found.ino());
    let same_boot = header.machine.boot == here.boot;
    if same_boot && header.inode != 0 && header.inode != inode {
        return Some("is a copy of the file that was used last");
    }
    let this = LastUsed::of(header);
    let is_older =
        last_used.is_some_and(|last| last.file == this.file && last.generation > this.generation);
    is_older.then_some("is older than the one that was used last")
}

/// The error for a state that another process holds, which the file's header identifies.
fn taken(folder: &Folder, place: &str) -> String {
    let file = folder.file_of(KIND).ok().flatten();
    let holder = file
        .and_then(|file| Store::open(file).ok())
        .map(|(store, _)| {
            let header = store.header();
            format!(
                " (process {} of user {} in network namespace net:[{}])",
                header.pid, header.owner, header.namespace
            )
        });
    format!(
        "{place} is in use by another gateway{}: choose another folder with --state",
        holder.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests;
