//! Folders that are made for a socket, and removed again if the start fails.

use super::error::BadFolder;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Makes a folder and its missing parents, with access for this user alone; returns those that it made, the outermost
/// first.
pub(super) fn make_missing(place: &Path) -> Result<Vec<PathBuf>, BadFolder> {
    let absent = |folder: &&Path| {
        *folder != OsStr::new("") && std::fs::symlink_metadata(folder).is_err_and(is_absent)
    };
    let mut made = Vec::new();
    let missing: Vec<_> = place.ancestors().take_while(absent).collect();
    for folder in missing.into_iter().rev() {
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => made.push(folder.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                remove_empty(&made);
                return Err(BadFolder::Io(folder.to_owned(), error));
            }
        }
    }
    Ok(made)
}

fn is_absent(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Removes folders; one that is no longer empty stays.
pub(super) fn remove_empty(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        let _ = std::fs::remove_dir(folder);
    }
}
