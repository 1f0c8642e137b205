//! Why a folder, or a file in it, is not used, with advice.

use crate::privileges::User;
use rustix::fs::Stat;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Group and others may write.
pub(super) const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a folder, or a file in it, is not used.
#[derive(Debug)]
pub(crate) enum BadFolder {
    /// There is none.
    Absent(PathBuf),
    /// Another user may change its content, or has created it.
    NotOurs {
        /// The folder or file.
        place: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
        /// The option that chooses another folder.
        option: &'static str,
    },
    /// The folder also holds other files, which would be given to this user too. The option selects another folder.
    Shared {
        /// The folder.
        place: PathBuf,
        /// One of the other things.
        other: OsString,
        /// The user it would be given to.
        user: User,
        /// The option that chooses another folder.
        option: &'static str,
    },
    /// Something else exists where a plain file is expected. The option selects another folder.
    NoFile(PathBuf, &'static str),
    /// A gateway holds the lock.
    Locked(PathBuf),
    /// The control path names no file.
    NoName(PathBuf),
    /// The system refused.
    Io(PathBuf, io::Error),
}

impl fmt::Display for BadFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(place) => write!(f, "there is no folder {}", place.display()),
            Self::NotOurs {
                place,
                owner,
                mode,
                option,
            } => write!(
                f,
                "{0} belongs to user {owner} and has mode {mode:04o}, so others could change what the gateway keeps there: \
                 give it to user {1} alone (chown {1} {0} && chmod {2} {0}), choose another folder with {option}, or \
                  set ESPLANADE_USER={owner} if that is the gateway's user",
                place.display(),
                rustix::process::geteuid().as_raw(),
                // A lock must not even be opened by others.
                if mode & WRITABLE_BY_OTHERS == 0 {
                    "go-rwx"
                } else {
                    "go-w"
                },
            ),
            Self::Shared {
                place,
                other,
                user,
                option,
            } => write!(
                f,
                "{0} would be given to the gateway's user {user}, but holds other files ({1}): choose a folder of \
                 its own with {option}, run `chown {2} {0}` yourself, or use --user root",
                place.display(),
                other.display(),
                user.uid(),
            ),
            Self::NoFile(place, option) => write!(
                f,
                "{} is not a regular file: remove it, or choose another folder with {option}",
                place.display()
            ),
            Self::Locked(place) => {
                write!(f, "{} is locked by a running gateway", place.display())
            }
            Self::NoName(place) => write!(
                f,
                "{} is not a path of a socket: give a file in a folder, such as /run/esplanade/control.sock",
                place.display()
            ),
            Self::Io(place, error) => write!(f, "cannot use {}: {error}", place.display()),
        }
    }
}

impl std::error::Error for BadFolder {}

/// Others own the file or may write to it.
pub(super) fn not_ours(found: &Stat, place: &Path, option: &'static str) -> BadFolder {
    BadFolder::NotOurs {
        place: place.to_owned(),
        owner: found.st_uid,
        mode: found.st_mode & 0o7777,
        option,
    }
}
