use super::*;
use std::sync::{Arc, Mutex};

/// A folder of a test, removed at its end.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("esplanade-numbers-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state/numbers.state")
    }

    fn open(&self, fresh_keys: bool) -> (Result<Numbers, Failure>, String) {
        let said = Arc::default();
        let opened = self.open_saying(fresh_keys, &said);
        let said = said.lock().unwrap().clone();
        (opened, said)
    }

    fn open_saying(&self, fresh_keys: bool, said: &Arc<Mutex<String>>) -> Result<Numbers, Failure> {
        let seen = Arc::clone(said);
        let warn: Warn = Arc::new(move |text: &str| *seen.lock().unwrap() += text);
        let folder = self.0.join("state");
        let beside = Folder::make(&self.0.join("run/control.sock")).unwrap();
        let wanted = Wanted {
            folder: Some(&folder),
            none: false,
            fresh_keys,
            new_owner: None,
            control: Path::new("/nowhere/control.sock"),
            beside: &beside,
        };
        open(&wanted, &warn)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn each_control_socket_has_a_folder_of_its_own() {
    let of = |path: &str| default_folder(Path::new(path)).display().to_string();
    assert_eq!(
        of("/run/esplanade/control.sock"),
        "/var/lib/esplanade/run-esplanade-control.sock"
    );
    assert_ne!(of("/run/a/control.sock"), of("/run/b/control.sock"));
}

#[test]
fn a_state_is_opened_again_and_by_one_gateway_at_a_time() {
    let temp = TempFolder::new("again");
    let (first, said) = temp.open(false);
    assert!(first.is_ok() && said.is_empty(), "{said}");
    let why = temp.open(false).0.err().unwrap().to_string();
    assert!(
        why.contains("is in use by another gateway")
            && why.contains(&format!("process {}", std::process::id())),
        "{why}"
    );
    drop(first);
    assert!(temp.open(false).0.is_ok());
}

#[test]
fn a_copy_is_refused_until_keys_are_fresh() {
    let temp = TempFolder::new("copy");
    drop(temp.open(false));
    let (file, other) = (temp.file(), temp.0.join("other"));
    fs::copy(&file, &other).unwrap();
    fs::rename(&other, &file).unwrap();
    let why = temp.open(false).0.err().unwrap().to_string();
    assert!(
        why.contains("is a copy") && why.contains("--fresh-keys"),
        "{why}"
    );
    let (opened, said) = temp.open(true);
    assert!(
        opened.is_ok() && said.contains("is replaced by a new one"),
        "{said}"
    );
    drop(opened);
    let (opened, said) = temp.open(true);
    assert!(
        opened.is_ok() && said.is_empty(),
        "a sound state was thrown away: {said}"
    );
}

#[test]
fn one_that_is_older_than_the_last_one_used_is_refused() {
    let temp = TempFolder::new("older");
    let beside = Folder::make(&temp.0.join("run/control.sock")).unwrap();
    drop(temp.open(false));
    let used = LastUsed::load(&beside).unwrap().unwrap();
    let later = LastUsed {
        generation: used.generation + 1,
        ..used
    };
    later.save(&beside).unwrap();
    let why = temp.open(false).0.err().unwrap().to_string();
    assert!(why.contains("is older than"), "{why}");
    LastUsed { file: 0, ..later }.save(&beside).unwrap();
    assert!(temp.open(false).0.is_ok());
}

#[test]
fn a_damaged_note_of_the_last_one_used_is_refused_until_keys_are_fresh() {
    let temp = TempFolder::new("note");
    drop(temp.open(false));
    fs::write(temp.0.join("run/control.sock.numbers"), b"{").unwrap();
    let why = temp.open(false).0.err().unwrap().to_string();
    assert!(why.contains("control.sock.numbers is damaged"), "{why}");
    assert!(temp.open(true).0.is_ok());
    assert!(temp.open(false).0.is_ok());
}

#[test]
fn a_damaged_file_is_refused_until_keys_are_fresh() {
    let temp = TempFolder::new("damaged");
    drop(temp.open(false));
    fs::write(temp.file(), b"nonsense").unwrap();
    let why = temp.open(false).0.err().unwrap().to_string();
    assert!(why.contains("damaged"), "{why}");
    assert!(temp.open(true).0.is_ok());
}

#[test]
fn a_file_of_recent_numbers_that_another_program_removes_is_reported_once() {
    let (temp, said) = (TempFolder::new("removed"), Arc::default());
    let Ok(Numbers::Kept(keeping)) = temp.open_saying(false, &said) else {
        panic!("no state");
    };
    keeping.shared.write_recent();
    assert_eq!(*said.lock().unwrap(), "");
    fs::remove_file(temp.0.join("run/control.sock.recent")).unwrap();
    for _ in 0..3 {
        keeping.shared.write_recent();
    }
    let said = said.lock().unwrap();
    let reports = said.matches("another program has removed the file").count();
    assert_eq!(reports, 1, "{said}");
}
