//! The long runs kept in the repository: later versions must compute the same figures from them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lab::outdir::{RECORDS, RunRequest};
use lab::record::{Outcome, read_all};
use lab::report;

/// Studies of which a run is kept at least.
const STUDIES: [&str; 4] = ["iatrou-2009", "klassert-2010", "ronan-2004", "roy-2004"];

/// Every folder with records, and the study that it is a run of. Charts have a folder of their own.
fn kept() -> Vec<(PathBuf, String)> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let entries = fs::read_dir(results).unwrap().map(|entry| entry.unwrap());
    let runs = entries.filter(|entry| entry.path().is_dir() && entry.file_name() != "charts");
    runs.map(|entry| {
        let order = RunRequest::read(&entry.path()).unwrap();
        (entry.path(), order.arguments[0].clone())
    })
    .collect()
}

#[test]
fn a_run_of_each_study_is_kept() {
    let found: BTreeSet<String> = kept().into_iter().map(|(_, study)| study).collect();
    assert_eq!(found, STUDIES.map(String::from).into());
}

#[test]
fn every_kept_run_is_read_and_drawn_as_it_was() {
    for (folder, study) in kept() {
        let name = folder.display();
        let (records, torn) = read_all(&folder.join(RECORDS)).unwrap();
        assert_eq!(torn, None, "{name}");
        let whole = records.iter().all(|record| record.study == study);
        assert!(whole && !records.is_empty(), "{name}");
        let cut = |outcome: &Outcome| matches!(outcome, Outcome::Interrupted { .. });
        assert!(!records.iter().any(|record| cut(&record.outcome)), "{name}");
        let page = report::html(&records, None, &folder).unwrap();
        assert!(page.contains("Comparison with the paper"), "{name}");
        let table = fs::read_to_string(folder.join("table.txt")).unwrap();
        assert_eq!(
            report::text(&records, &folder).trim(),
            table.trim(),
            "{name}"
        );
    }
}

#[test]
fn every_kept_run_says_how_it_is_repeated() {
    for (folder, _) in kept() {
        let order = RunRequest::read(&folder).unwrap();
        let name = folder.display();
        for word in ["--standard", "--seed"] {
            assert!(order.arguments.iter().any(|each| each == word), "{name}");
        }
    }
}
