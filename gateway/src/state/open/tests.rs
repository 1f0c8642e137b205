use super::*;
use std::sync::{Arc, Mutex};

struct Place(PathBuf);

impl Place {
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

    fn open(
        &self,
        fresh_keys: bool,
        noted: Option<BootRecord>,
    ) -> (Result<Numbers, Failure>, String) {
        let said = Arc::default();
        let opened = self.open_saying(fresh_keys, noted, &said);
        let said = said.lock().unwrap().clone();
        (opened, said)
    }

    fn open_saying(
        &self,
        fresh_keys: bool,
        noted: Option<BootRecord>,
        said: &Arc<Mutex<String>>,
    ) -> Result<Numbers, Failure> {
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
            noted,
        };
        open(&wanted, &warn)
    }
}

impl Drop for Place {
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
    let place = Place::new("again");
    let (first, said) = place.open(false, None);
    assert!(first.is_ok() && said.is_empty(), "{said}");
    let why = place.open(false, None).0.err().unwrap().to_string();
    assert!(
        why.contains("is in use by another gateway")
            && why.contains(&format!("process {}", std::process::id())),
        "{why}"
    );
    drop(first);
    assert!(place.open(false, None).0.is_ok());
}

#[test]
fn a_copy_is_refused_until_keys_are_fresh() {
    let place = Place::new("copy");
    drop(place.open(false, None));
    let (file, other) = (place.file(), place.0.join("other"));
    fs::copy(&file, &other).unwrap();
    fs::rename(&other, &file).unwrap();
    let why = place.open(false, None).0.err().unwrap().to_string();
    assert!(
        why.contains("is a copy") && why.contains("--fresh-keys"),
        "{why}"
    );
    let (opened, said) = place.open(true, None);
    assert!(
        opened.is_ok() && said.contains("is replaced by a new one"),
        "{said}"
    );
    drop(opened);
    let (opened, said) = place.open(true, None);
    assert!(
        opened.is_ok() && said.is_empty(),
        "a sound state was thrown away: {said}"
    );
}

#[test]
fn one_that_is_older_than_the_last_of_this_boot_is_refused() {
    let place = Place::new("older");
    let noted = place
        .open(false, None)
        .0
        .ok()
        .and_then(|numbers| numbers.boot_record());
    let later = noted.map(|noted| BootRecord {
        generation: noted.generation + 1,
        ..noted
    });
    let why = place
        .open(false, later.clone())
        .0
        .err()
        .unwrap()
        .to_string();
    assert!(why.contains("is older than"), "{why}");
    let of_another_file = later.map(|later| BootRecord { file: 0, ..later });
    assert!(place.open(false, of_another_file).0.is_ok());
}

#[test]
fn a_damaged_file_is_refused_until_keys_are_fresh() {
    let place = Place::new("damaged");
    drop(place.open(false, None));
    fs::write(place.file(), b"nonsense").unwrap();
    let why = place.open(false, None).0.err().unwrap().to_string();
    assert!(why.contains("damaged"), "{why}");
    assert!(place.open(true, None).0.is_ok());
}

#[test]
fn a_file_of_recent_numbers_that_another_program_removes_is_reported_once() {
    let (place, said) = (Place::new("removed"), Arc::default());
    let Ok(Numbers::Kept(keeping)) = place.open_saying(false, None, &said) else {
        panic!("no state");
    };
    keeping.shared.write_recent();
    assert_eq!(*said.lock().unwrap(), "");
    fs::remove_file(place.0.join("run/control.sock.recent")).unwrap();
    for _ in 0..3 {
        keeping.shared.write_recent();
    }
    let said = said.lock().unwrap();
    let reports = said.matches("another program has removed the file").count();
    assert_eq!(reports, 1, "{said}");
}
