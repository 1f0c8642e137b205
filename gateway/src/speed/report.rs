//! The results, as a table and as JSON.

mod engine;
mod kernel;
mod run;

pub(super) use engine::{Compared, EngineRow};
pub(super) use kernel::KernelRow;

use super::machine::Machine;
use super::options::{Layer, SpeedOptions};
use super::suite::NamedSuite;
use run::Run;
use serde::Serialize;
use std::fmt::Write;

/// The results of one run.
#[derive(Serialize)]
pub(super) struct Report {
    machine: Machine,
    layer: Layer,
    batch: u16,
    workers: u16,
    sas: u32,
    seconds: f64,
    pub(super) rows: Vec<Row>,
    #[serde(skip)]
    name_width: usize,
}

/// One suite, direction and size.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Row {
    Kernel(KernelRow),
    Engine(EngineRow),
}

impl Report {
    pub(super) fn new(machine: Machine, options: &SpeedOptions, suites: &[NamedSuite]) -> Self {
        let names = suites.iter().map(|suite| suite.name.len());
        Self {
            machine,
            layer: options.layer,
            batch: options.batch,
            workers: options.workers,
            sas: options.sas,
            seconds: options.seconds,
            rows: Vec::new(),
            name_width: names.max().unwrap_or(5).max(5),
        }
    }

    pub(super) fn head(&self) -> String {
        let machine = &self.machine;
        let mut head = format!("processor  {}, {} CPUs", machine.processor, machine.cpus);
        let clock = match machine.tsc_hertz {
            Some(tsc) if machine.clocks_differ() => format!(
                "{:.2} GHz time stamp counter, which counts the cycles; the core runs at about {:.2} GHz",
                tsc / 1e9,
                machine.core_hertz / 1e9
            ),
            Some(tsc) => format!(
                "{:.2} GHz time stamp counter, which counts the cycles",
                tsc / 1e9
            ),
            None => "no time stamp counter, so no cycles are counted".to_owned(),
        };
        let _ = writeln!(head, "\nclock      {clock}");
        let _ = writeln!(head, "kernels    {}", words(&machine.used));
        for (what, names) in [
            ("not supported", &machine.missing),
            ("disabled by MULTIBUFFER_WITHOUT", &machine.switched_off),
            ("failed the self-test and not used", &machine.unproven),
        ] {
            if !names.is_empty() {
                let _ = writeln!(head, "           {what}: {}", words(names));
            }
        }
        let _ = writeln!(
            head,
            "run        {}; {} packets per batch, {}, {}, {} s per row\n",
            match self.layer {
                Layer::Kernel => "ciphers in memory, by the threads' own CPU time",
                Layer::Engine => "UDP datagrams through an ESP tunnel in UDP, in memory",
            },
            self.batch,
            counted(self.workers.into(), "worker"),
            counted(self.sas, "association"),
            self.seconds
        );
        head + &match self.layer {
            Layer::Kernel => kernel::head(&self.run()),
            Layer::Engine => engine::head(&self.run(), self.workers > 1, self.sas > 1),
        }
    }

    pub(super) fn line(&self, row: &Row) -> String {
        match row {
            Row::Kernel(row) => row.line(&self.run()),
            Row::Engine(row) => row.line(&self.run()),
        }
    }

    fn run(&self) -> Run {
        Run {
            tsc_hertz: self.machine.tsc_hertz,
            workers: self.workers,
            name_width: self.name_width,
        }
    }

    /// The text below the table.
    pub(super) fn foot(&self, to_person: bool) -> String {
        let mut foot = String::new();
        let of = |size: fn(&Row) -> Option<usize>| span(self.rows.iter().filter_map(size));
        if let Some(keys) = of(Row::bytes_per_key) {
            let _ = writeln!(
                foot,
                "\nmemory     {keys} bytes per association for its keys"
            );
        }
        if let Some((sa, policy)) = of(Row::bytes_per_sa).zip(of(Row::bytes_per_policy)) {
            let _ = writeln!(
                foot,
                "\nmemory     {sa} bytes per association, {policy} per policy"
            );
        }
        if to_person {
            let note = match self.layer {
                Layer::Kernel => kernel::NOTE,
                Layer::Engine => engine::NOTE,
            };
            let _ = writeln!(foot, "\n{note}");
        }
        foot
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl Row {
    fn bytes_per_key(&self) -> Option<usize> {
        match self {
            Self::Kernel(row) => row.bytes_per_sa,
            Self::Engine(_) => None,
        }
    }

    fn bytes_per_sa(&self) -> Option<usize> {
        match self {
            Self::Kernel(_) => None,
            Self::Engine(row) => row.footprint.map(|bytes| bytes.sa),
        }
    }

    fn bytes_per_policy(&self) -> Option<usize> {
        match self {
            Self::Kernel(_) => None,
            Self::Engine(row) => row.footprint.map(|bytes| bytes.policy),
        }
    }
}

/// From the least to the most.
fn span(sizes: impl Iterator<Item = usize> + Clone) -> Option<String> {
    let (least, most) = (sizes.clone().min()?, sizes.max()?);
    Some(if least == most {
        least.to_string()
    } else {
        format!("{least} to {most}")
    })
}

fn words(names: &[&str]) -> String {
    match names {
        [] => "none: all ciphers use the library".to_owned(),
        names => names.join(" "),
    }
}

fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
