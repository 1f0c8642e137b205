use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A folder of its own, removed at the end.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("esplanade-folder-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        mode(&path, 0o755);
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.0.join(format!("control.sock.{kind}"))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path, bits: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).unwrap();
}

#[test]
fn a_folder_that_others_may_write_is_refused_with_its_owner_and_mode() {
    let temp = TempFolder::new("open");
    assert!(Folder::make(&temp.socket()).is_ok());
    for bits in [0o777, 0o1777, 0o775, 0o757] {
        mode(&temp.0, bits);
        let words = Folder::make(&temp.socket()).err().unwrap().to_string();
        assert!(words.contains(&format!("mode {bits:04o}")), "{words}");
        assert!(
            words.contains("belongs to user") && words.contains("chmod go-w"),
            "{words}"
        );
    }
}

#[test]
fn a_folder_that_is_made_is_for_its_owner_alone_and_can_be_unmade() {
    let temp = TempFolder::new("made");
    let socket = temp.0.join("a/b/control.sock");
    let folder = Folder::make(&socket).unwrap();
    let bits = std::fs::metadata(temp.0.join("a/b"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(bits & 0o777, 0o700);
    let lock = folder.lock().unwrap();
    folder.undo();
    drop(lock);
    assert!(!temp.0.join("a").exists());
    // One that was there before stays, with its lock.
    let folder = Folder::make(&temp.socket()).unwrap();
    let _lock = folder.lock().unwrap();
    folder.undo();
    assert!(temp.file("lock").exists());
}

#[test]
fn a_link_in_place_of_a_file_is_not_followed() {
    let temp = TempFolder::new("link");
    let folder = Folder::make(&temp.socket()).unwrap();
    let precious = temp.0.join("precious");
    for kind in ["state.new", "state", "lock"] {
        std::fs::write(&precious, "precious").unwrap();
        symlink(&precious, temp.file(kind)).unwrap();
    }
    assert!(matches!(folder.read("state"), Err(BadFolder::NoFile(..))));
    assert!(matches!(folder.lock(), Err(BadFolder::NoFile(..))));
    // The draft replaces the link, and then the record.
    folder.write("state", b"ours").unwrap();
    assert_eq!(folder.read("state").unwrap().unwrap(), b"ours");
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    assert!(!temp.file("state.new").exists());
}

#[test]
fn a_pipe_in_place_of_a_file_blocks_nothing() {
    let temp = TempFolder::new("pipe");
    let folder = Folder::make(&temp.socket()).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, temp.file("state"), Mode::RUSR).unwrap();
    assert!(matches!(folder.read("state"), Err(BadFolder::NoFile(..))));
}

#[test]
fn one_lock_has_one_holder_and_others_cannot_open_it() {
    let temp = TempFolder::new("lock");
    let folder = Folder::make(&temp.socket()).unwrap();
    let first = folder.lock().unwrap();
    let bits = first.metadata().unwrap().permissions().mode();
    assert_eq!(bits & 0o777, 0o600);
    assert!(matches!(folder.lock(), Err(BadFolder::Locked(_))));
    drop(first);
    drop(folder.lock().unwrap());
    mode(&temp.file("lock"), 0o644);
    assert!(matches!(folder.lock(), Err(BadFolder::NotOurs { .. })));
}
