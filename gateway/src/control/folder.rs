//! A folder of the gateway, opened once and checked: the folder of the control socket, with the lock and the record of
//! its gateway, or the folder of the numbers that are kept across restarts (`state`).
//!
//! ```text
//!   /run/esplanade/              owned by the gateway or root; no other user may write there
//!       control.sock             0600
//!       control.sock.lock        0600: who holds it is the gateway of this socket
//!       control.sock.state       0600: what is ours in the kernel
//!       control.sock.recent      0600: the last sequence numbers (`state`)
//! ```
//!
//! The checks apply to the folder that the path leads to, whatever links or folders of other users lie on the way. All
//! later accesses use its descriptor, with names that contain no slash and are never followed as links.

mod error;
mod made;
mod owner;

use crate::file_path::folder_of;
use crate::privileges::{AllowedFiles, User};
pub(crate) use error::BadFolder;
use error::not_ours;
use made::{make_missing, remove_empty};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, flock, fstat, openat,
    openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The largest file that is read from the folder, in bytes: a record has a few hundred.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The option that selects another folder for the control socket.
const CONTROL: &str = "--control";

/// The place of one control socket. Cheap to share by reference; holds one descriptor.
pub(crate) struct Folder {
    descriptor: OwnedFd,
    socket: PathBuf,
    name: OsString,
    /// Folders that were made for it, the outermost first.
    made: Vec<PathBuf>,
    /// The option that chooses another one.
    option: &'static str,
    /// Who may own it beside root and the current user: the user that this process is about to become.
    new_owner: Option<u32>,
}

impl Folder {
    /// The folder of this control socket, made with mode 0700 where there is none.
    pub(crate) fn make(socket: &Path) -> Result<Self, BadFolder> {
        Self::make_for(socket, CONTROL, None)
    }

    /// The same for a process that may be about to become another user, who may own the folder already.
    pub(crate) fn make_as(socket: &Path, new_owner: Option<&User>) -> Result<Self, BadFolder> {
        Self::make_for(socket, CONTROL, new_owner)
    }

    /// The folder of files that are named like this one, made with mode 0700 where there is none. `option` chooses
    /// another.
    pub(crate) fn make_for(
        name: &Path,
        option: &'static str,
        new_owner: Option<&User>,
    ) -> Result<Self, BadFolder> {
        let made = make_missing(folder_of(name))?;
        let opened = Self::open_for(name, option, new_owner);
        match opened {
            Ok(folder) => Ok(Self { made, ..folder }),
            Err(error) => {
                remove_empty(&made);
                Err(error)
            }
        }
    }

    /// The folder of this control socket, as it is.
    pub(crate) fn open(socket: &Path) -> Result<Self, BadFolder> {
        Self::open_for(socket, CONTROL, None)
    }

    fn open_for(
        socket: &Path,
        option: &'static str,
        new_owner: Option<&User>,
    ) -> Result<Self, BadFolder> {
        let place = folder_of(socket).to_owned();
        let name = socket.file_name();
        let name = name.ok_or_else(|| BadFolder::NoName(socket.to_owned()))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(&place, flags, Mode::empty()).map_err(|error| match error {
                Errno::NOENT => BadFolder::Absent(place.clone()),
                _ => BadFolder::Io(place.clone(), error.into()),
            })?;
        let found =
            fstat(&descriptor).map_err(|error| BadFolder::Io(place.clone(), error.into()))?;
        let folder = Self {
            descriptor,
            socket: socket.to_owned(),
            name: name.to_owned(),
            made: Vec::new(),
            option,
            new_owner: new_owner.map(User::uid),
        };
        folder.check_owner(&found, &place)?;
        Ok(folder)
    }

    /// The control socket, as the user named it.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Takes the lock of this socket. It is released when the returned file is dropped.
    pub(crate) fn lock(&self) -> Result<File, BadFolder> {
        let place = self.place("lock");
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE;
            let file = self.open_file("lock", flags, Mode::RUSR | Mode::WUSR)?;
            let held = fstat(&file).map_err(|error| self.io("lock", error))?;
            self.refuse_if_open_to_others(&file, &place)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(BadFolder::Locked(place)),
                Err(error) => return Err(self.io("lock", error)),
            }
            // A lock on a file that was removed meanwhile excludes no other process.
            let named = statat(
                &self.descriptor,
                self.file("lock"),
                AtFlags::SYMLINK_NOFOLLOW,
            );
            if named.is_ok_and(|named| (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)) {
                return Ok(file);
            }
        }
    }

    /// The content of a file of this socket, if there is one.
    pub(crate) fn read(&self, kind: &str) -> Result<Option<Vec<u8>>, BadFolder> {
        let file = match self.open_file(kind, OFlags::RDONLY, Mode::empty()) {
            Err(BadFolder::Absent(_)) => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        let read = file.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| BadFolder::Io(self.place(kind), error))?;
        Ok(Some(bytes))
    }

    /// Writes a file of this socket atomically.
    pub(crate) fn write(&self, kind: &str, bytes: &[u8]) -> Result<(), BadFolder> {
        self.put(kind, bytes, |_| Ok(()))
    }

    /// As [`Folder::write`], and the file survives a power failure afterwards.
    pub(crate) fn write_durably(&self, kind: &str, bytes: &[u8]) -> Result<(), BadFolder> {
        self.put(kind, bytes, File::sync_all)?;
        rustix::fs::fsync(&self.descriptor).map_err(|error| self.io(kind, error))
    }

    fn put(
        &self,
        kind: &str,
        bytes: &[u8],
        finish: impl Fn(&File) -> io::Result<()>,
    ) -> Result<(), BadFolder> {
        let draft = format!("{kind}.new");
        self.remove(&draft)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.open_file(&draft, flags, Mode::RUSR | Mode::WUSR)?;
        let written = file.write_all(bytes).and_then(|()| finish(&file));
        written.map_err(|error| {
            // A draft that is written in part is removed.
            let _ = self.remove(&draft);
            BadFolder::Io(self.place(&draft), error)
        })?;
        let (from, to) = (self.file(&draft), self.file(kind));
        renameat(&self.descriptor, from, &self.descriptor, to).map_err(|error| self.io(kind, error))
    }

    /// A file of this socket for reading and writing, if there is one.
    pub(crate) fn file_of(&self, kind: &str) -> Result<Option<File>, BadFolder> {
        match self.open_file(kind, OFlags::RDWR, Mode::empty()) {
            Err(BadFolder::Absent(_)) => Ok(None),
            file => file.map(Some),
        }
    }

    /// Removes a file of this socket, if there is one.
    pub(crate) fn remove(&self, kind: &str) -> Result<(), BadFolder> {
        match unlinkat(&self.descriptor, self.file(kind), AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(self.io(kind, error)),
            _ => Ok(()),
        }
    }

    /// What exists at the socket's path, if anything.
    pub(crate) fn socket_there(&self) -> io::Result<Option<Stat>> {
        match statat(&self.descriptor, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Removes the socket.
    pub(crate) fn remove_socket(&self) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, &self.name, AtFlags::empty())?)
    }

    /// Removes what was made for a gateway that did not start: its files, while the lock is held, and its folder.
    pub(crate) fn undo(&self) {
        let kinds = ["numbers", "recent", "lock"];
        if !self.made.is_empty() && kinds.iter().all(|kind| self.remove(kind).is_ok()) {
            remove_empty(&self.made);
        }
    }

    /// The paths that a running gateway must still reach: the folder, and those that a failed start removes.
    pub(crate) fn places(&self) -> io::Result<AllowedFiles> {
        let mut places = AllowedFiles::of_every_gateway();
        places.keep_files_in(self.descriptor.as_fd())?;
        for folder in self.made.iter().filter_map(|folder| folder.parent()) {
            places.remove_folders_in(folder);
        }
        Ok(places)
    }

    /// A file of this name to which secrets are added: for its owner alone.
    pub(crate) fn append_secrets_to(&self, name: &str) -> Result<File, BadFolder> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let file = self.open_named(OsStr::new(name), flags, Mode::RUSR | Mode::WUSR)?;
        self.refuse_if_open_to_others(&file, &self.socket.with_file_name(name))?;
        Ok(file)
    }

    /// A file that others can open is one that they can read, or lock.
    fn refuse_if_open_to_others(&self, file: &File, place: &Path) -> Result<(), BadFolder> {
        let found = fstat(file).map_err(|error| BadFolder::Io(place.to_owned(), error.into()))?;
        match found.st_mode & 0o077 {
            0 => Ok(()),
            _ => Err(not_ours(&found, place, self.option)),
        }
    }

    fn open_file(&self, kind: &str, flags: OFlags, mode: Mode) -> Result<File, BadFolder> {
        self.open_named(&self.file(kind), flags, mode)
    }

    /// Opens a name of one component inside the folder, following no link; by `openat2` where the kernel has it (5.6).
    fn open_named(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<File, BadFolder> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = match openat2(&self.descriptor, name, flags, mode, beneath) {
            // A container's system call filter answers unknown calls with `PERM`.
            Err(Errno::NOSYS | Errno::PERM) => openat(&self.descriptor, name, flags, mode),
            opened => opened,
        };
        let place = self.socket.with_file_name(name);
        let file = opened.map_err(|error| match error {
            Errno::NOENT => BadFolder::Absent(place.clone()),
            Errno::LOOP => BadFolder::NoFile(place.clone(), self.option),
            error => BadFolder::Io(place.clone(), error.into()),
        })?;
        let found = fstat(&file).map_err(|error| BadFolder::Io(place.clone(), error.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(BadFolder::NoFile(place, self.option));
        }
        self.check_owner(&found, &place)?;
        Ok(file.into())
    }

    fn file(&self, kind: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(".");
        name.push(kind);
        name
    }

    fn place(&self, kind: &str) -> PathBuf {
        self.socket.with_file_name(self.file(kind))
    }

    fn io(&self, kind: &str, error: Errno) -> BadFolder {
        BadFolder::Io(self.place(kind), error.into())
    }
}

#[cfg(test)]
mod tests;
