//! The owner of a folder and of the files in it, when the gateway runs as another user than the one that has started
//! it.
//!
//! What root has made in this start, or an earlier version has left, is given to the gateway's user. Each file is
//! opened first and checked by its descriptor, so that no link leads to a file elsewhere.

use super::Folder;
use super::error::{BadFolder, WRITABLE_BY_OTHERS, not_ours};
use crate::file_path::folder_of;
use crate::privileges::User;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fchown, fstat, openat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The files beside a socket, or beside the stored numbers, by the suffix of their names.
const KINDS: [&str; 3] = ["lock", "state", "recent"];

/// How names of gateways' files begin that do not depend on the socket's name.
const BEGINNINGS: [&[u8]; 2] = [b"numbers.", b"armed-"];

impl Folder {
    /// Gives the folder and the files of this socket in it to a user. Other files are not given away, so there must be
    /// none. The lock must be held.
    pub(crate) fn hand_over(&self, user: &User) -> Result<(), BadFolder> {
        let io = |error| BadFolder::Io(folder_of(&self.socket).to_owned(), Errno::into(error));
        let found = fstat(&self.descriptor).map_err(io)?;
        if found.st_uid != user.uid() {
            if let Some(other) = self.other_thing().map_err(io)? {
                return Err(BadFolder::Shared {
                    place: folder_of(&self.socket).to_owned(),
                    other,
                    user: user.clone(),
                    option: self.option,
                });
            }
            let (uid, gid) = owner(user);
            fchown(&self.descriptor, uid, gid).map_err(io)?;
        }
        for kind in KINDS {
            self.hand_over_file(kind, user)?;
        }
        self.hand_over_socket(user)
    }

    fn hand_over_file(&self, kind: &str, user: &User) -> Result<(), BadFolder> {
        let file = match self.open_file(kind, OFlags::RDONLY, Mode::empty()) {
            Err(BadFolder::Absent(_)) => return Ok(()),
            file => file?,
        };
        let found = fstat(&file).map_err(|error| self.io(kind, error))?;
        if found.st_uid == user.uid() {
            return Ok(());
        }
        // A file with a second name (hard link) may matter to others.
        if found.st_nlink != 1 {
            return Err(not_ours(&found, &self.place(kind), self.option));
        }
        let (uid, gid) = owner(user);
        fchown(&file, uid, gid).map_err(|error| self.io(kind, error))
    }

    /// Gives the socket to the user, so that it can send requests to its own gateway.
    fn hand_over_socket(&self, user: &User) -> Result<(), BadFolder> {
        let io = |error| BadFolder::Io(self.socket.clone(), Errno::into(error));
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = match openat(&self.descriptor, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            socket => socket.map_err(io)?,
        };
        let found = fstat(&socket).map_err(io)?;
        let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
        if !is_socket || found.st_uid == user.uid() {
            return Ok(());
        }
        let (uid, gid) = owner(user);
        chownat(socket.as_fd(), "", uid, gid, AtFlags::EMPTY_PATH).map_err(io)
    }

    /// Only root, this user, the gateways' user and the user that this process is about to become may write.
    pub(super) fn check_owner(&self, found: &Stat, place: &Path) -> Result<(), BadFolder> {
        let is_trusted = User::is_trusted(found.st_uid) || self.new_owner == Some(found.st_uid);
        if is_trusted && found.st_mode & WRITABLE_BY_OTHERS == 0 {
            return Ok(());
        }
        Err(not_ours(found, place, self.option))
    }

    /// A file in the folder that no gateway has made.
    fn other_thing(&self) -> Result<Option<OsString>, Errno> {
        let stem = self.socket.file_stem().unwrap_or(&self.name);
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && !is_of_a_gateway(name, stem.as_bytes()) {
                return Ok(Some(OsStr::from_bytes(name).to_owned()));
            }
        }
        Ok(None)
    }
}

/// Files of this socket or of these stored numbers, of any version, and sockets of other gateways with their files.
fn is_of_a_gateway(name: &[u8], stem: &[u8]) -> bool {
    let behind = name.strip_prefix(stem);
    behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        || BEGINNINGS.iter().any(|each| name.starts_with(each))
        || name.ends_with(b".sock")
        || name.windows(6).any(|part| part == b".sock.")
}

fn owner(user: &User) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(user.uid())),
        Some(Gid::from_raw(user.gid())),
    )
}
