//! The file of a gateway: read at the start and at each SIGHUP.
//!
//! Its folder is opened before privileges are dropped, and the file is opened by its name from there each time: an
//! editor replaces the old file by a new one.

use crate::control::SetkeyText;
use crate::failure::Failure;
use crate::file_path::folder_of;
use crate::key_access::{doubt, read_whole};
use crate::privileges::{AllowedFiles, User};
use dataplane::io::Warn;
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where the file is.
pub(super) struct KeyFile {
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    /// The gateway's user.
    user: User,
}

impl KeyFile {
    /// The file of this path, which need not exist, for a gateway of this user.
    pub(super) fn new(path: &Path, user: &User) -> Result<Self, Failure> {
        let name = path.file_name().map(ToOwned::to_owned);
        let name = name.ok_or_else(|| {
            let path = path.display();
            Failure::new(format!("cannot read {path}: not a regular file"))
        })?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(folder_of(path), flags, Mode::empty());
        Ok(Self {
            folder: folder.map_err(|error| cannot(path, error))?,
            path: path.to_owned(),
            name,
            user: user.clone(),
        })
    }

    /// Keeps its folder accessible.
    pub(super) fn stay_readable(&self, places: &mut AllowedFiles) -> io::Result<()> {
        places.read_files_in(self.folder.as_fd())
    }

    /// Reads its present content.
    pub(super) fn read(&self, warn: &Warn) -> Result<SetkeyText, Failure> {
        let cannot = |error: io::Error| cannot(&self.path, error);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.folder, &self.name, flags, Mode::empty());
        let file = file.map_err(|error| match error {
            Errno::ACCESS => self.may_not(),
            error => cannot(error.into()),
        });
        let mut file = File::from(file?);
        let found = file.metadata().map_err(cannot)?;
        if let Some(doubt) = doubt(&found, &self.user) {
            warn(&format!(
                "{} holds keys and {doubt}: chown {} {0} && chmod 600 {0}",
                self.path.display(),
                self.user.uid(),
            ));
        }
        Ok(SetkeyText {
            name: self.path.display().to_string(),
            text: read_whole(&mut file, found.len()).map_err(cannot)?,
            pid: std::process::id(),
            ..SetkeyText::default()
        })
    }
}

impl KeyFile {
    /// The gateway may no longer read what only root may. The user who runs `reload FILE` reads the file instead.
    fn may_not(&self) -> Failure {
        let path = self.path.display();
        Failure::new(format!(
            "cannot read {path}: the gateway's user {} has no permission. `esplanade reload {path}` reads it with \
             your permissions instead; for SIGHUP give its group access: chgrp {} {path} && chmod 640 {path} (and to \
             its folder)",
            self.user,
            self.user.gid(),
        ))
    }
}

fn cannot(path: &Path, error: impl Into<io::Error>) -> Failure {
    Failure::new(format!("cannot read {}: {}", path.display(), error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_took_the_place_of_another_is_read_by_its_name() {
        let path = std::env::temp_dir().join(format!("esplanade-again-{}", std::process::id()));
        std::fs::write(&path, "flush;").unwrap();
        let file = KeyFile::new(&path, &User::current()).ok().unwrap();
        let warn: Warn = std::sync::Arc::new(|_: &str| {});
        assert_eq!(*file.read(&warn).ok().unwrap().text, b"flush;");
        let new = path.with_extension("new");
        std::fs::write(&new, "spdflush;").unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_eq!(*file.read(&warn).ok().unwrap().text, b"spdflush;");
        std::fs::remove_file(&path).unwrap();
        let why = file.read(&warn).err().unwrap().to_string();
        assert!(
            why.contains("cannot read") && why.contains("esplanade-again"),
            "{why}"
        );
    }
}
