//! Keys for Wireshark, written only when `--key-log` asks for them: the tables `ikev2_decryption_table` and `esp_sa` of
//! one of its profiles. The main process alone writes them; both files are opened before privileges are dropped.

mod table;

use crate::failure::Failure;
use crate::memory;
use crate::privileges::User;
use ikev2::endpoint::{ChildSa, LoggedKeys};
use rustix::fs::{Mode, OFlags, fstat, mkdir, open, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Wireshark's names of the files.
const IKE_TABLE: &str = "ikev2_decryption_table";
const ESP_TABLE: &str = "esp_sa";

/// Both tables, open.
pub(crate) struct KeyLog {
    folder: PathBuf,
    ike: File,
    esp: File,
}

impl KeyLog {
    /// Opens both in a folder, which is made if it is not there. What other users could read or replace is refused.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let folder = open_folder(path)?;
        Ok(Self {
            folder: path.to_owned(),
            ike: open_table(&folder, path, IKE_TABLE)?,
            esp: open_table(&folder, path, ESP_TABLE)?,
        })
    }

    /// Where they are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds the keys of an IKE SA.
    pub(crate) fn add_ike(&mut self, keys: &LoggedKeys) -> io::Result<()> {
        memory::with_keys(|| self.ike.write_all(table::ike_line(keys).as_bytes()))
    }

    /// Adds the keys of a pair of child SAs. AH has none to decrypt with.
    pub(crate) fn add_child(&mut self, child: &ChildSa) -> io::Result<()> {
        memory::with_keys(|| self.esp.write_all(table::esp_lines(child).as_bytes()))
    }
}

fn open_folder(path: &Path) -> Result<OwnedFd, Failure> {
    let shown = path.display();
    match mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => {
            return Err(Failure::new(format!(
                "--key-log: cannot make the folder {shown}: {error}"
            )));
        }
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty()).map_err(|error| {
        Failure::new(format!(
            "--key-log: cannot open the folder {shown}: {error}"
        ))
    })?;
    refuse_if_others_can(&folder, 0o022, path, "write to it", "chmod go-w")?;
    Ok(folder)
}

fn open_table(folder: &OwnedFd, path: &Path, name: &str) -> Result<File, Failure> {
    let path = path.join(name);
    let flags =
        OFlags::APPEND | OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(
        folder,
        name,
        flags | OFlags::NONBLOCK,
        Mode::RUSR | Mode::WUSR,
    );
    let file = file.map_err(|error| {
        Failure::new(format!(
            "--key-log: cannot open {}: {error}",
            path.display()
        ))
    })?;
    refuse_if_others_can(&file, 0o077, &path, "read or write it", "chmod 600")?;
    Ok(File::from(file))
}

/// Keys go only where the owner alone, whom the gateway trusts, can reach them.
fn refuse_if_others_can(
    file: impl AsFd,
    rights: u32,
    path: &Path,
    what: &str,
    command: &str,
) -> Result<(), Failure> {
    let path = path.display();
    let found = fstat(file).map_err(|error| Failure::new(format!("--key-log: {path}: {error}")))?;
    if !User::is_trusted(found.st_uid) {
        let owner = found.st_uid;
        return Err(Failure::new(format!(
            "--key-log: {path} belongs to user {owner}: choose a folder of your own"
        )));
    }
    if found.st_mode & rights != 0 {
        return Err(Failure::new(format!(
            "--key-log: others may {what}: `{command} {path}`, or choose another folder"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    /// A folder of a test, removed at its end.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = format!("esplanade-key-log-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refusal(folder: &Path) -> String {
        KeyLog::open(folder)
            .err()
            .map_or_else(String::new, |failure| failure.to_string())
    }

    #[test]
    fn tables_are_for_their_owner_alone_and_grow() {
        let place = Place::new("grows");
        let folder = place.0.join("log");
        for _ in 0..2 {
            let mut log = KeyLog::open(&folder).unwrap();
            log.esp.write_all(b"# one\n").unwrap();
        }
        assert_eq!(
            fs::read_to_string(folder.join(ESP_TABLE)).unwrap(),
            "# one\n# one\n"
        );
        for name in [IKE_TABLE, ESP_TABLE] {
            let mode = fs::metadata(folder.join(name))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn files_that_others_reach_and_links_are_refused_with_advice() {
        let place = Place::new("refused");
        let folder = place.0.join("log");
        KeyLog::open(&folder).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        set(&folder.join(ESP_TABLE), 0o640);
        assert!(refusal(&folder).contains("others may read or write it: `chmod 600"));
        set(&folder.join(ESP_TABLE), 0o600);
        set(&folder, 0o777);
        assert!(refusal(&folder).contains("others may write to it: `chmod go-w"));
        set(&folder, 0o700);
        fs::remove_file(folder.join(IKE_TABLE)).unwrap();
        symlink("/dev/null", folder.join(IKE_TABLE)).unwrap();
        assert!(refusal(&folder).contains(IKE_TABLE));
    }
}
