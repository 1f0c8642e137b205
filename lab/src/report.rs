//! A report is made from records alone: a text table for the terminal, a page for everybody else, a comparison of two runs,
//! and an export. [`findings`] holds what they say; the rest is how they say it.

pub mod chart;
pub mod compare;
pub mod export;
pub mod findings;
#[cfg(test)]
pub(crate) mod fixture;
pub mod html;
pub mod page;
pub mod profile;
pub mod quantity;
pub mod soaker;
mod table;
pub mod then;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::bars::Bar;
use crate::contender::Protection;
use crate::outdir::RunRequest;
use crate::record::{Outcome, Record};
use crate::spec::Spec;
use crate::stats;

/// What is known of one contender after all its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its place in the spec.
    pub order: usize,
    /// Its id.
    pub contender: String,
    /// Its name for readers.
    pub label: String,
    /// Goodput of each measured trial, bits per second.
    pub goodput_bps: Vec<f64>,
    /// Processor time of the left and the right gateway per second of load, one pair per trial; empty where the kernel
    /// does the work.
    pub cpu: Vec<[f64; 2]>,
    /// The most memory either gateway held in any trial.
    pub peak_rss_bytes: Option<f64>,
    /// Packets lost at the gateways in all trials: by the contender's own count, at interfaces, at sockets.
    pub drops: f64,
    /// Segments TCP sent again in all trials.
    pub retransmits: Option<u64>,
    /// Why trials are missing: absent, failed or interrupted, each reason once.
    pub trouble: Vec<String>,
}

/// Where the canary was seen, over all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sightings {
    /// Frames on the client's side per canary (the fewest of any trial).
    pub client_side: Option<usize>,
    /// Frames on a plain wire per canary (the fewest of any trial).
    pub plain_wire: Option<usize>,
    /// Frames on protected wires, all trials together: anything but 0 is a leak.
    pub protected_wire: Option<usize>,
}

/// The table and the canary line as text, and what became of the bars of the study in this folder.
pub fn text(records: &[Record], folder: &Path) -> String {
    let table = table::text(records);
    match &bars(folder, records)[..] {
        [] => table,
        bars => format!("{table}\n{}", crate::bars::text(bars, records)),
    }
}

/// The bars of the study that was ordered in a folder. They are no part of a record, because they are no measurement.
fn bars(folder: &Path, records: &[Record]) -> Vec<Bar> {
    let ordered = RunRequest::read(folder).ok().filter(|_| !emulated(records));
    let spec = ordered.and_then(|order| Spec::read(&order.spec, "the order").ok());
    spec.map_or_else(Vec::new, |spec| spec.bars)
}

/// What is emulated is held against nothing that real machines did or shall do.
fn emulated(records: &[Record]) -> bool {
    records.iter().any(|record| record.provenance.emulated)
}

/// The page of a run: its records, and from its folder the files that the contenders were started with.
pub fn html(records: &[Record], torn: Option<String>, folder: &Path) -> Option<String> {
    let findings = findings::Findings::of(records)?;
    Some(page::page(&findings, &beside(&findings, torn, folder)))
}

/// The charts of that page as SVG files, by name.
pub fn drawings(records: &[Record], folder: &Path) -> Vec<(String, String)> {
    let findings = findings::Findings::of(records);
    findings.map_or_else(Vec::new, |findings| {
        page::drawings(&findings, &beside(&findings, None, folder))
    })
}

fn beside(findings: &findings::Findings, torn: Option<String>, folder: &Path) -> page::Beside {
    let records = findings.records;
    page::Beside {
        configurations: configurations(&folder.join(CONFIGURATIONS)),
        then: then::Then::of(&findings.any.study).filter(|_| !emulated(records)),
        bars: bars(folder, records),
        torn,
    }
}

/// Where a run keeps what its contenders were started with.
const CONFIGURATIONS: &str = "config";

/// Files below a folder, by name; of a study with hundreds of cells the first few tell all.
fn configurations(folder: &Path) -> Vec<(String, String)> {
    const MOST: usize = 24;
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
    files.truncate(MOST);
    files
}

/// One row per contender, in the order of the spec.
pub fn rows(records: &[Record]) -> Vec<Row> {
    let mut by_order: BTreeMap<usize, Vec<&Record>> = BTreeMap::new();
    for record in records
        .iter()
        .filter(|record| !findings::made_good(record, records))
    {
        by_order.entry(record.order).or_default().push(record);
    }
    by_order
        .values()
        .filter_map(|records| row(records))
        .collect()
}

fn row(records: &[&Record]) -> Option<Row> {
    let first = records.first()?;
    let mut row = Row {
        order: first.order,
        contender: first.contender.clone(),
        label: first.label.clone(),
        goodput_bps: Vec::new(),
        cpu: Vec::new(),
        peak_rss_bytes: None,
        drops: 0.0,
        retransmits: None,
        trouble: Vec::new(),
    };
    records.iter().for_each(|record| row.add(record));
    Some(row)
}

impl Row {
    fn add(&mut self, record: &Record) {
        match &record.outcome {
            Outcome::Measured {
                carried, readings, ..
            } => {
                self.goodput_bps.push(carried.goodput_bps);
                if let Some(again) = carried.retransmits {
                    *self.retransmits.get_or_insert(0) += again;
                }
                self.add_cost(readings);
            }
            Outcome::Examined { .. } => {}
            Outcome::Absent { why, remedy } => self.note(format!("absent: {why}; {remedy}")),
            Outcome::Failed { stage, why, .. } => self.note(format!("failed at {stage}: {why}")),
            Outcome::Interrupted { .. } => self.note("interrupted".into()),
        }
    }

    fn add_cost(&mut self, readings: &BTreeMap<String, f64>) {
        let reading = |name: &str| readings.get(name).copied();
        let window = reading("window_s")
            .filter(|window| *window > 0.0)
            .unwrap_or(f64::NAN);
        let cpu = |side: &str| {
            Some(
                (reading(&format!("{side}.cpu.user_s"))?
                    + reading(&format!("{side}.cpu.system_s"))?)
                    / window,
            )
        };
        if let (Some(left), Some(right)) = (cpu("left"), cpu("right")) {
            self.cpu.push([left, right]);
        }
        let peaks = ["left.rss.peak_bytes", "right.rss.peak_bytes"]
            .into_iter()
            .filter_map(reading);
        self.peak_rss_bytes = peaks.chain(self.peak_rss_bytes).reduce(f64::max);
        self.drops += readings
            .iter()
            .filter(|(name, _)| is_loss(name))
            .map(|(_, count)| count)
            .sum::<f64>();
    }

    fn note(&mut self, trouble: String) {
        if !self.trouble.contains(&trouble) {
            self.trouble.push(trouble);
        }
    }

    /// Mean goodput, if there is any.
    pub fn mean_goodput(&self) -> Option<f64> {
        stats::mean(&self.goodput_bps)
    }
}

fn is_loss(reading: &str) -> bool {
    reading.starts_with("drops.")
        || reading.ends_with("_dropped")
        || reading.ends_with("_buffer_errors")
}

/// Collects the canaries of all trials.
pub fn sightings(records: &[Record]) -> Sightings {
    let mut all = Sightings::default();
    for record in records {
        let check = match &record.outcome {
            Outcome::Measured { check, .. } | Outcome::Examined { check, .. } => Some(check),
            Outcome::Failed { check, .. } => check.as_ref(),
            _ => None,
        };
        for canary in check.iter().flat_map(|check| &check.canaries) {
            fewest(&mut all.client_side, canary.client_side);
            match record.protection {
                Protection::Clear => fewest(&mut all.plain_wire, canary.wire),
                Protection::Secret => *all.protected_wire.get_or_insert(0) += canary.wire,
                Protection::Readable => {}
            }
        }
    }
    all
}

fn fewest(so_far: &mut Option<usize>, seen: usize) {
    *so_far = Some(so_far.map_or(seen, |fewest| fewest.min(seen)));
}
