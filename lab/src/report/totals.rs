//! The totals of each case over all its trials, as the table and the page's section on cost show them.

use std::collections::BTreeMap;

use super::findings::superseded;
use crate::record::{Outcome, Record};
use crate::stats;

/// What all trials of one case add up to.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals {
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

/// The totals of each case, in the order of the spec.
pub fn totals(records: &[Record]) -> Vec<Totals> {
    let mut by_order: BTreeMap<usize, Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| !superseded(record, records)) {
        by_order.entry(record.order).or_default().push(record);
    }
    by_order
        .values()
        .filter_map(|records| of_case(records))
        .collect()
}

fn of_case(records: &[&Record]) -> Option<Totals> {
    let first = records.first()?;
    let mut totals = Totals {
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
    records.iter().for_each(|record| totals.add(record));
    Some(totals)
}

impl Totals {
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
            Outcome::Absent { why, remedy } => self.add_trouble(format!("absent: {why}; {remedy}")),
            Outcome::Failed { stage, why, .. } => {
                self.add_trouble(format!("failed at {stage}: {why}"))
            }
            Outcome::Interrupted { .. } => self.add_trouble("interrupted".into()),
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

    fn add_trouble(&mut self, trouble: String) {
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
