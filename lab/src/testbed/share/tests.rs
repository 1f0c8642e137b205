//! Folders and files as the kernel would have them, in an ordinary folder: the kernel itself is tested by the tests
//! of namespaces.

use super::folder::{FOLDER_PREFIX, leads_to};
use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("lab-share-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn folders_of_dead_labs_are_swept_and_those_of_living_ones_and_strangers_stay() {
    let place = Scratch::new("swept");
    let (living, lock) = locked_folder(&place.0).unwrap();
    let dead = place.0.join(format!("{FOLDER_PREFIX}4711"));
    let stranger = place.0.join("another-program");
    for folder in [&dead, &stranger, &living] {
        fs::create_dir_all(folder.join("left")).unwrap();
    }
    sweep(&place.0);
    let there = [&living, &dead, &stranger].map(|folder| folder.exists());
    assert_eq!(there, [true, false, true]);
    drop(lock);
    sweep(&place.0);
    assert!(!living.exists());
}

#[test]
fn labs_of_the_same_number_have_a_folder_each() {
    let place = Scratch::new("numbers");
    let (first, _one) = locked_folder(&place.0).unwrap();
    let (second, _other) = locked_folder(&place.0).unwrap();
    assert_ne!(first, second);
    let own = format!("{FOLDER_PREFIX}{}", std::process::id());
    assert!(first.ends_with(&own) && second.ends_with(format!("{own}-1")));
}

#[test]
fn a_folder_that_vanished_before_it_was_locked_is_not_taken_for_ones_own() {
    let place = Scratch::new("vanished");
    let folder = place.0.join("a");
    fs::create_dir(&folder).unwrap();
    let open = File::open(&folder).unwrap();
    assert!(leads_to(&folder, &open));
    fs::remove_dir(&folder).unwrap();
    assert!(!leads_to(&folder, &open));
    // One more folder in between, so that the same number is not given again at once.
    fs::create_dir(place.0.join("b")).unwrap();
    fs::create_dir(&folder).unwrap();
    assert!(!leads_to(&folder, &open));
}

#[test]
fn each_gateway_gets_a_group_with_the_quota_its_processes_and_its_own_counters() {
    let place = Scratch::new("groups");
    let (folder, lock) = locked_folder(&place.0).unwrap();
    let quotas = Quotas {
        folder: folder.clone(),
        version: Version::Two,
        switch: None,
        _lock: lock,
    };
    let throttle = quotas.throttle(0.25).unwrap();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("left/cpu.max"), read("right/cpu.max"));
    assert_eq!(read("left/cpu.max"), "2500 10000");
    assert_eq!(
        (read("cpu.weight"), read("left/cpu.weight")),
        ("200".into(), "100".into())
    );
    let gateway = Gateway {
        side: Side::Right,
        pid: std::process::id(),
    };
    throttle.limit(&gateway).unwrap();
    assert_eq!(read("right/cgroup.procs"), gateway.pid.to_string());
    fs::write(
        folder.join("left/cpu.stat"),
        "nr_periods 3\nnr_throttled 2\n",
    )
    .unwrap();
    assert_eq!(throttle.counts(Side::Left).unwrap().stopped, 2.0);
    let blind = throttle.counts(Side::Right).unwrap_err().to_string();
    assert!(blind.contains("right/cpu.stat"), "{blind}");
    throttle.remove_quotas().unwrap();
    assert_eq!(read("left/cpu.max"), "max");
    let again = quotas.throttle(0.25).map(drop).unwrap_err().to_string();
    assert!(
        again.starts_with("cannot create a control group with 0.25 processors in "),
        "{again}"
    );
}

#[test]
fn no_program_runs_in_real_time_by_chance() {
    let policy = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = policy.rsplit_once(')').unwrap();
    // proc(5): field 41; 1, 2 and 6 are those of real time.
    let policy = fields.split_whitespace().nth(38).unwrap();
    assert_eq!(in_real_time(0), ["1", "2", "6"].contains(&policy));
    // No process has this number.
    assert!(!in_real_time(i32::MAX as u32));
}
