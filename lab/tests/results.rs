//! The long runs that the repository keeps: whoever opens them years later must get the same figures out of them.

use std::fs;
use std::path::PathBuf;

use lab::outdir::{Order, RECORDS};
use lab::record::{Outcome, read_all};
use lab::report;

/// Studies of which a run is kept.
const KEPT: [&str; 4] = ["iatrou-2009", "ronan-2004", "roy-2004", "klassert-2010"];

fn folder(study: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../docs/results").join(study)
}

#[test]
fn every_kept_run_is_read_and_drawn_as_it_was() {
    for study in KEPT {
        let folder = folder(study);
        let (records, torn) = read_all(&folder.join(RECORDS)).unwrap();
        assert_eq!(torn, None, "{study}");
        let whole = records.iter().all(|record| record.study == study);
        assert!(whole && !records.is_empty(), "{study}");
        let cut = |outcome: &Outcome| matches!(outcome, Outcome::Interrupted { .. });
        assert!(
            !records.iter().any(|record| cut(&record.outcome)),
            "{study}"
        );
        let page = report::html(&records, None, &folder).unwrap();
        assert!(page.contains("Then and now"), "{study}");
        let table = fs::read_to_string(folder.join("table.txt")).unwrap();
        assert_eq!(
            report::text(&records, &folder).trim(),
            table.trim(),
            "{study}"
        );
    }
}

#[test]
fn every_kept_run_says_how_it_is_repeated() {
    for study in KEPT {
        let order = Order::read(&folder(study)).unwrap();
        assert_eq!(order.arguments[0], study);
        assert!(order.arguments.iter().any(|word| word == "--standard"));
        assert!(order.arguments.iter().any(|word| word == "--seed"));
    }
}
