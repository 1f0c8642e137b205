//! A report is made from records alone: a text table for the terminal, a page for the browser, a comparison of two
//! runs, and an export. [`findings`] computes the figures; the other modules show them.

mod canary;
pub mod chart;
pub mod compare;
pub mod export;
pub mod findings;
#[cfg(test)]
pub(crate) mod fixture;
mod footnotes;
pub mod html;
mod limits;
pub mod page;
pub mod paper;
pub mod profile;
pub mod quantity;
mod section;
pub mod soaker;
mod table;
mod totals;
mod two_clocks;

use std::fs;
use std::path::Path;

use crate::bars::Bar;
use crate::outdir::RunRequest;
use crate::record::Record;
use crate::spec::Spec;

pub use totals::{Totals, totals};

/// The table and the canary line as text, and what became of the bars of the study in this folder.
pub fn text(records: &[Record], folder: &Path) -> String {
    let table = table::text(records);
    match &bars(folder, records)[..] {
        [] => table,
        bars => format!("{table}\n{}", crate::bars::text(bars, records)),
    }
}

/// The bars of the study that was ordered in a folder. They are not part of a record: they are not measured.
fn bars(folder: &Path, records: &[Record]) -> Vec<Bar> {
    let ordered = RunRequest::read(folder).ok().filter(|_| !emulated(records));
    let spec = ordered.and_then(|order| {
        let read = if order.names_hosts() {
            Spec::read_for_hosts(&order.spec, "the order", None)
        } else {
            Spec::read(&order.spec, "the order")
        };
        read.ok()
    });
    spec.map_or_else(Vec::new, |spec| spec.bars)
}

/// Figures of emulated processors are compared with no target and with no paper.
fn emulated(records: &[Record]) -> bool {
    records.iter().any(|record| record.provenance.emulated)
}

/// The page of a run: its records, and from its folder the files that the contenders were started with.
pub fn html(records: &[Record], torn: Option<String>, folder: &Path) -> Option<String> {
    let findings = findings::Findings::of(records)?;
    Some(page::page(&findings, &inputs(&findings, torn, folder)))
}

/// The charts of that page as SVG files, by name.
pub fn drawings(records: &[Record], folder: &Path) -> Vec<(String, String)> {
    let findings = findings::Findings::of(records);
    findings.map_or_else(Vec::new, |findings| {
        page::drawings(&findings, &inputs(&findings, None, folder))
    })
}

fn inputs(findings: &findings::Findings, torn: Option<String>, folder: &Path) -> page::Inputs {
    let records = findings.records;
    page::Inputs {
        configurations: configurations(&folder.join(CONFIGURATIONS)),
        paper: paper::Paper::of(&findings.any.study).filter(|_| !emulated(records)),
        bars: bars(folder, records),
        torn,
    }
}

/// Where a run keeps what its contenders were started with.
const CONFIGURATIONS: &str = "config";

/// Files below a folder, by name; of a study with hundreds of cells the first few are enough.
fn configurations(folder: &Path) -> Vec<(String, String)> {
    const MAX_FILES: usize = 24;
    let mut open = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(place) = open.pop() {
        let entries = fs::read_dir(&place).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.is_dir() {
                open.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let name = path.strip_prefix(folder).unwrap_or(&path);
                files.push((name.display().to_string(), text));
            }
        }
    }
    files.sort();
    files.truncate(MAX_FILES);
    files
}
