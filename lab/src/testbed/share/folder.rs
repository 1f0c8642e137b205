//! The folder of control groups that a lab makes: locked as long as the lab lives, and removed by the process that gets
//! the lock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// What every folder of a lab is called, before a number.
pub(super) const FOLDER_PREFIX: &str = "esplanade-lab-";

/// A new folder that this process has locked. The process id in its name is for readers only: other namespaces use the
/// same ids.
pub(super) fn locked_folder(group: &Path) -> io::Result<(PathBuf, File)> {
    let own = std::process::id();
    let names = (0..100).map(|count| match count {
        0 => format!("{FOLDER_PREFIX}{own}"),
        _ => format!("{FOLDER_PREFIX}{own}-{count}"),
    });
    for folder in names.map(|name| group.join(name)) {
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        // Another lab that cleans up may have locked or removed it meanwhile: then the next name is tried.
        let lock = File::open(&folder).ok().filter(|lock| {
            flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() && leads_to(&folder, lock)
        });
        if let Some(lock) = lock {
            return Ok((folder, lock));
        }
    }
    Err(io::Error::other("every folder name is taken"))
}

pub(super) fn leads_to(path: &Path, file: &File) -> bool {
    let found = fs::metadata(path).and_then(|there| Ok((there, file.metadata()?)));
    found.is_ok_and(|(there, open)| there.ino() == open.ino())
}

/// A member that was killed a moment ago may still be on its way out, and a quota holds it back there, too.
pub(super) const REMOVE_ATTEMPTS: usize = 200;
pub(super) const REMOVE_INTERVAL: Duration = Duration::from_millis(10);

/// Removes folders that are not locked.
pub(super) fn sweep(group: &Path) {
    let folders = fs::read_dir(group).into_iter().flatten().flatten();
    let named = folders.filter(|entry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(FOLDER_PREFIX.as_bytes())
    });
    for folder in named.map(|entry| entry.path()) {
        let lock = File::open(&folder).ok();
        if lock.is_some_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()) {
            let mut attempts = 0..REMOVE_ATTEMPTS;
            while !clear(&folder) && attempts.next().is_some() {
                std::thread::sleep(REMOVE_INTERVAL);
            }
        }
    }
}

/// Removes a folder and the groups in it; whether it is gone. One with living members stays.
pub(super) fn clear(folder: &Path) -> bool {
    let inside = fs::read_dir(folder).into_iter().flatten().flatten();
    for group in inside
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
    {
        // What cannot go yet is in the way of the folder, and is found there.
        let _ = fs::remove_dir(group);
    }
    match fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
