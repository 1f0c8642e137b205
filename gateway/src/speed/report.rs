//! What was measured, for people and for programs.

use super::machine::Machine;
use super::{Direction, NamedSuite, Options};
use serde::{Serialize, Serializer};
use std::fmt::Write;

/// Everything that one run found.
#[derive(Serialize)]
pub(super) struct Report {
    machine: Machine,
    batch: u16,
    workers: u16,
    sas: u32,
    seconds: f64,
    pub(super) rows: Vec<Row>,
    #[serde(skip)]
    name_width: usize,
}

/// One suite, direction and size.
pub(super) struct Row {
    pub(super) suite: String,
    pub(super) direction: Direction,
    pub(super) bytes: usize,
    pub(super) packets_per_second: f64,
    pub(super) library: &'static str,
    pub(super) library_packets_per_second: f64,
    pub(super) ratio: f64,
    pub(super) ratio_interval: [f64; 2],
    pub(super) bytes_per_sa: Option<usize>,
}

impl Row {
    fn gbit(&self, packets_per_second: f64) -> f64 {
        packets_per_second * (8 * self.bytes) as f64 / 1e9
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            suite: &'a str,
            direction: Direction,
            bytes: usize,
            gbit_per_second: f64,
            packets_per_second: f64,
            library: &'a str,
            library_gbit_per_second: f64,
            library_packets_per_second: f64,
            ratio: f64,
            ratio_95: [f64; 2],
            bytes_per_sa: Option<usize>,
        }
        Flat {
            suite: &self.suite,
            direction: self.direction,
            bytes: self.bytes,
            gbit_per_second: self.gbit(self.packets_per_second),
            packets_per_second: self.packets_per_second,
            library: self.library,
            library_gbit_per_second: self.gbit(self.library_packets_per_second),
            library_packets_per_second: self.library_packets_per_second,
            ratio: self.ratio,
            ratio_95: self.ratio_interval,
            bytes_per_sa: self.bytes_per_sa,
        }
        .serialize(serializer)
    }
}

impl Report {
    pub(super) fn new(machine: Machine, options: &Options, suites: &[NamedSuite]) -> Self {
        Self {
            machine,
            batch: options.batch,
            workers: options.workers,
            sas: options.sas,
            seconds: options.seconds,
            rows: Vec::new(),
            name_width: suites
                .iter()
                .map(|suite| suite.name.len())
                .max()
                .unwrap_or(5)
                .max(5),
        }
    }

    pub(super) fn head(&self) -> String {
        let machine = &self.machine;
        let mut head = format!("processor  {}, {} CPUs", machine.processor, machine.cpus);
        let clock = match machine.tsc_hertz {
            Some(tsc) if machine.clocks_differ() => format!(
                "{:.2} GHz time stamp counter, by which cycles are counted; the core does about {:.2} GHz",
                tsc / 1e9,
                machine.core_hertz / 1e9
            ),
            Some(tsc) => format!(
                "{:.2} GHz time stamp counter, by which cycles are counted",
                tsc / 1e9
            ),
            None => "no time stamp counter, so no cycles are counted".to_owned(),
        };
        let _ = writeln!(head, "\nclock      {clock}");
        let _ = writeln!(head, "kernels    {}", words(&machine.used));
        for (what, names) in [
            ("not here", &machine.missing),
            ("switched off by MULTIBUFFER_WITHOUT", &machine.switched_off),
            ("wrong on this processor and not used", &machine.unproven),
        ] {
            if !names.is_empty() {
                let _ = writeln!(head, "           {what}: {}", words(names));
            }
        }
        let _ = writeln!(
            head,
            "run        ciphers in memory, by the threads' own CPU time; {} packets in a batch, {}, {}, {} s a row",
            self.batch,
            counted(self.workers.into(), "worker"),
            counted(self.sas, "association"),
            self.seconds
        );
        let _ = writeln!(
            head,
            "\n{:<width$}  {:<4}  {:>5}  {:>8}  {:>8}  {:>8}   {:>8}  {:<10}  {:>6}  {:<13}",
            "suite",
            "",
            "bytes",
            "Gbit/s",
            "Mpacket/s",
            "cycles/B",
            "Gbit/s",
            "library",
            "ratio",
            "95 %",
            width = self.name_width
        );
        head
    }

    pub(super) fn line(&self, row: &Row) -> String {
        let cycles = self.machine.tsc_hertz.map_or("-".to_owned(), |hertz| {
            let per_byte =
                hertz * f64::from(self.workers) / (row.packets_per_second * row.bytes as f64);
            format!("{per_byte:.2}")
        });
        let direction = match row.direction {
            Direction::Seal => "seal",
            Direction::Open => "open",
        };
        let [low, high] = row.ratio_interval;
        format!(
            "{:<width$}  {direction}  {:>5}  {:>8.2}  {:>9.3}  {cycles:>8}   {:>8.2}  {:<10}  {:>5.2}x  {low:.2} to {high:.2}\n",
            row.suite,
            row.bytes,
            row.gbit(row.packets_per_second),
            row.packets_per_second / 1e6,
            row.gbit(row.library_packets_per_second),
            row.library,
            row.ratio,
            width = self.name_width
        )
    }

    /// What is said once everything is measured.
    pub(super) fn foot(&self, to_person: bool) -> String {
        let mut foot = String::new();
        let sizes: Vec<usize> = self
            .rows
            .iter()
            .filter_map(|row| row.bytes_per_sa)
            .collect();
        if let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) {
            let _ = writeln!(
                foot,
                "\nmemory     {least} to {most} bytes for the keys of an association"
            );
        }
        if to_person {
            let _ = writeln!(
                foot,
                "\nThe library is given one packet after the other, with its keys expanded and its HMAC states cached."
            );
        }
        foot
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn words(names: &[&str]) -> String {
    match names {
        [] => "none: the libraries compute everything".to_owned(),
        names => names.join(" "),
    }
}

fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
