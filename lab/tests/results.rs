//! The long runs kept in the repository: later versions must compute the same figures from them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lab::outdir::{RECORDS, RunRequest};
use lab::record::{Outcome, read_all};
use lab::report;
use lab::report::findings::Findings;
use lab::report::paper::{ClaimCheck, Paper};

/// The four studies that the lab descends from: each has a paper, whose claims its page judges.
const STUDIES: [&str; 4] = ["iatrou-2009", "klassert-2010", "ronan-2004", "roy-2004"];

/// The comparison with other VPNs in user space: the lab's own, without a paper.
const PEERS: &str = "peers";

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
fn a_run_of_each_study_and_of_the_peers_is_kept() {
    let found: BTreeSet<String> = kept().into_iter().map(|(_, study)| study).collect();
    let expected = STUDIES.into_iter().chain([PEERS]).map(String::from);
    assert_eq!(found, expected.collect());
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
        assert_eq!(page.contains("Then and now"), study != PEERS, "{name}");
        let table = fs::read_to_string(folder.join("table.txt")).unwrap();
        assert_eq!(
            report::text(&records, &folder).trim(),
            table.trim(),
            "{name}"
        );
    }
}

#[test]
fn every_kept_run_has_the_command_that_repeats_it() {
    for (folder, _) in kept() {
        let order = RunRequest::read(&folder).unwrap();
        let name = folder.display();
        for word in ["--standard", "--seed"] {
            assert!(order.arguments.iter().any(|each| each == word), "{name}");
        }
    }
}

/// The rows of the document's table for one study: its claims, judged by the kept run of its name, and what is left
/// out.
fn rows(study: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let (records, _) = read_all(&folder.join(study).join(RECORDS)).unwrap();
    let findings = Findings::of(&records).unwrap();
    let paper = Paper::of(study).unwrap();
    let row = |cells: [&str; 6]| format!("| {} |", cells.join(" | "));
    let claims = paper.claim.iter().map(|claim| {
        let verdict = ClaimCheck::of(claim, &findings).verdict();
        let (held, judged) = (claim.held_in(), claim.judged_by());
        row([
            study,
            &claim.place,
            &claim.finding,
            &held,
            &judged,
            &verdict,
        ])
    });
    let tables = paper.table.iter().map(|table| {
        let says = format!("The table: {}", table.title);
        let shown = "beside today's figures";
        row([study, "table", &says, "the page", shown, "as printed"])
    });
    let out = paper.out.iter();
    let out = out.map(|out| row([study, &out.place, &out.says, "–", &out.reason, "out"]));
    claims.chain(tables).chain(out).collect()
}

#[test]
fn the_document_has_a_row_for_everything_that_the_papers_say() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lab.md");
    let document = fs::read_to_string(document).unwrap();
    let (_, section) = document
        .split_once("## The four studies, sentence by sentence\n")
        .unwrap();
    let (section, _) = section.split_once("\n## ").unwrap_or((section, ""));
    let is_row = |line: &&str| {
        STUDIES
            .iter()
            .any(|study| line.starts_with(&format!("| {study} ")))
    };
    let written: Vec<&str> = section.lines().filter(is_row).collect();
    let expected: Vec<String> = STUDIES.iter().flat_map(|study| rows(study)).collect();
    assert!(
        written == expected,
        "the table must be:\n{}",
        expected.join("\n")
    );
}
