//! Keys for Wireshark, written only when `--key-log` asks for them: the tables `ikev2_decryption_table` and `esp_sa` of
//! one of its profiles. The main process alone writes them; both files are opened before privileges are dropped.

mod table;

use crate::control::Folder;
use crate::failure::Failure;
use crate::memory;
use ikev2::endpoint::{ChildSa, LoggedKeys};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Wireshark's names of the files.
const IKE_TABLE: &str = "ikev2_decryption_table";
const ESP_TABLE: &str = "esp_sa";

/// The option that selects the folder.
const OPTION: &str = "--key-log";

/// Both tables, open.
pub(crate) struct KeyLog {
    folder: PathBuf,
    ike: File,
    esp: File,
}

impl KeyLog {
    /// Opens both in a folder, which is made if it is not there. What other users could read or replace is refused.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let folder = Folder::make_for(&path.join(IKE_TABLE), OPTION, None);
        let folder = folder.map_err(Failure::new)?;
        let table = |name| folder.append_secrets_to(name).map_err(Failure::new);
        Ok(Self {
            folder: path.to_owned(),
            ike: table(IKE_TABLE)?,
            esp: table(ESP_TABLE)?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    /// A folder of a test, removed at its end.
    struct TempFolder(PathBuf);

    impl TempFolder {
        fn new(name: &str) -> Self {
            let path = format!("esplanade-key-log-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for TempFolder {
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
        let temp = TempFolder::new("grows");
        let folder = temp.0.join("log");
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
        let temp = TempFolder::new("refused");
        let folder = temp.0.join("log");
        KeyLog::open(&folder).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        set(&folder.join(ESP_TABLE), 0o640);
        assert!(refusal(&folder).contains("chmod go-rwx "));
        set(&folder.join(ESP_TABLE), 0o600);
        set(&folder, 0o777);
        assert!(refusal(&folder).contains("chmod go-w "));
        set(&folder, 0o700);
        fs::remove_file(folder.join(IKE_TABLE)).unwrap();
        symlink("/dev/null", folder.join(IKE_TABLE)).unwrap();
        assert!(refusal(&folder).contains(IKE_TABLE));
    }
}
