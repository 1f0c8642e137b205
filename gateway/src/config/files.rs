//! The files that a configuration names. A relative path begins at the folder of the configuration.

use super::findings::Findings;
use super::table::Text;
use crate::file_path::folder_of;
use crate::key_access::{doubt, read_whole};
use crate::privileges::User;
use ipsec::setkey::Problem;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The largest file that is read, in bytes: revocation lists are the longest.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Where files are, and which user must be able to read them.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    /// The folder of the configuration.
    pub(super) folder: &'a Path,
    /// The gateway's user.
    pub(super) user: &'a User,
    /// Collects the folders of the files that are read.
    pub(super) folders: &'a RefCell<BTreeSet<PathBuf>>,
    /// Whether a running gateway reads, which can reach some folders alone.
    pub(super) is_reload: bool,
    /// The owner of the configuration.
    pub(super) owner: u32,
}

impl Files<'_> {
    /// The path of a file.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The content of a file that is no secret.
    pub(super) fn read(&self, text: Text<'_>) -> Result<Vec<u8>, Problem> {
        let (mut file, found) = self.open(text)?;
        let content = read_whole(&mut file, found.len());
        content
            .map(|content| content.to_vec())
            .map_err(|error| cannot_read(text, &self.path(text.text), &error))
    }

    /// The content of a file that holds a key, with a warning if others may read or change it.
    pub(super) fn secret(
        &self,
        text: Text<'_>,
        findings: &Findings,
    ) -> Result<Zeroizing<Vec<u8>>, Problem> {
        let (mut file, found) = self.open(text)?;
        let path = self.path(text.text);
        if let Some(doubt) = doubt(&found, self.user) {
            let (path, uid) = (path.display(), self.user.uid());
            findings.warn(
                text.at,
                format!("{path} holds a key and {doubt}: chown {uid} {path} && chmod 600 {path}"),
            );
        }
        read_whole(&mut file, found.len()).map_err(|error| cannot_read(text, &path, &error))
    }

    fn open(&self, text: Text<'_>) -> Result<(File, Metadata), Problem> {
        let path = self.path(text.text);
        let cannot = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied if self.is_reload => out_of_reach(text, &path, &error),
            _ => cannot_read(text, &path, &error),
        };
        // What is no regular file is not opened: a pipe would wait for its writer.
        let found = std::fs::metadata(&path).map_err(cannot)?;
        let wrong = match found.len() {
            _ if !found.is_file() => Some("it is no regular file"),
            len if len > MAX_FILE_BYTES => Some("it is larger than 16 MB"),
            _ => None,
        };
        if let Some(why) = wrong {
            return Err(Problem::new(
                text.at,
                format!("cannot read {}: {why}", path.display()),
            ));
        }
        let file = File::open(&path).map_err(cannot)?;
        let found = file.metadata().map_err(cannot)?;
        self.note_folders(&path);
        Ok((file, found))
    }

    /// The folder of the path, and where links lead the one of the file itself.
    fn note_folders(&self, path: &Path) {
        let real = std::fs::canonicalize(path);
        let mut folders = self.folders.borrow_mut();
        for path in real.iter().map(PathBuf::as_path).chain([path]) {
            folders.insert(folder_of(path).to_owned());
        }
    }
}

/// A running gateway has given up access to all but the folders that it needs.
fn out_of_reach(text: Text<'_>, path: &Path, error: &io::Error) -> Problem {
    let folder = folder_of(path).display();
    let problem = Problem::new(text.at, format!("cannot read {}: {error}", path.display()));
    problem.advise(format!(
        "a running gateway reads the folders of the files that it was started with, and those of `files` in [gateway]: \
         add \"{folder}\" there and start it again; or give its user access to the file"
    ))
}

fn cannot_read(text: Text<'_>, path: &Path, error: &io::Error) -> Problem {
    let problem = Problem::new(text.at, format!("cannot read {}: {error}", path.display()));
    problem.advise(match error.kind() {
        io::ErrorKind::NotFound => "a relative path begins at the folder of the configuration",
        io::ErrorKind::PermissionDenied => "run it as root, or give this user access",
        _ => "check the file",
    })
}
