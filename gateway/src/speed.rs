//! `esplanade speed`: how fast this machine is, suite by suite, as `openssl speed` tells it: the ciphers, or the whole
//! engine around them.
//!
//! Everything is in memory: no device is touched. What is compared takes turns, so that a change of the machine's mood
//! meets both, and a ratio is printed with the interval that its turns leave open.
//!
//! ```text
//!   suites × directions × sizes ──► case ──┬─► keys, byte ranges ──► turns: kernels │ library │ … ──► row
//!                                          └─► hub: databases, packets ──► turns: engine │ kernels │ … ──► row
//! ```

mod case;
mod engine;
mod hub;
mod machine;
mod report;
pub(crate) mod statistics;
mod suite;
mod turn;

use crate::cli::Failure;
use case::{Case, Direction};
use clap::{Args, ValueEnum};
use machine::Machine;
use report::{Report, Row};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Duration;
use suite::NamedSuite;

/// What `esplanade speed` takes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Suites, or parts of their names [default: one of each algorithm; `--list` names them]
    #[arg(value_name = "SUITE")]
    suites: Vec<String>,
    /// Name every suite that can be measured, and stop
    #[arg(long)]
    list: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// Bytes of plaintext in a packet, with commas between; for the engine those of the packet inside, headers included
    #[arg(long, value_delimiter = ',', default_value = "64,494,1408", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=65_000))]
    size: Vec<u32>,
    /// Only one direction
    #[arg(long, value_enum, default_value_t = Directions::Both)]
    direction: Directions,
    /// Threads, each on a CPU of its own; of the engine's the first keeps all packets in order
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Security associations that the packets take turns with
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sas: u32,
    /// Packets that are handed over together
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    batch: u16,
    /// Seconds for each row
    #[arg(long, default_value_t = 0.1, value_name = "S", value_parser = seconds)]
    seconds: f64,
    /// How much of the gateway takes part
    #[arg(long, value_enum, default_value_t = Layer::Kernel)]
    layer: Layer,
}

const EXAMPLES: &str = "\
Examples:
  esplanade speed                                     one of each algorithm
  esplanade speed aes-128-gcm chacha20 --size 1408    those whose names say so
  esplanade speed aes-128-gcm --workers 2 --sas 60000
  esplanade speed aes-128-gcm --layer engine          whole packets through prepare, transform and commit
  esplanade speed --json | jq '.rows[] | {suite, direction, bytes, gbit_per_second}'";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Directions {
    Both,
    Seal,
    Open,
}

/// How much of the gateway takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Layer {
    /// The ciphers alone: keys and byte ranges
    #[value(alias = "cipher")]
    Kernel,
    /// Whole packets through an ESP tunnel in UDP: policies, headers and counting too
    Engine,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.list {
        let names: Vec<String> = suite::all().map(|suite| suite.name + "\n").collect();
        return crate::cli::print(&names.concat());
    }
    let suites = suite::chosen(&options.suites).map_err(Failure::new)?;
    check_sizes(options).map_err(Failure::new)?;
    let machine = Machine::look();
    let workers = machine::cpus_for(options.workers.into()).map_err(Failure::new)?;
    let mut report = Report::new(machine, options, &suites);
    if !options.json {
        crate::cli::print(&report.head())?;
    }
    for suite in &suites {
        for row in rows(options, suite, &workers) {
            let row = row.map_err(Failure::new)?;
            if !options.json {
                crate::cli::print(&report.line(&row))?;
            }
            report.rows.push(row);
        }
    }
    if options.json {
        return crate::cli::print(&report.json());
    }
    crate::cli::print(&report.foot(std::io::stdout().is_terminal()))
}

fn check_sizes(options: &Options) -> Result<(), String> {
    let least = match options.layer {
        Layer::Kernel => return Ok(()),
        Layer::Engine => hub::HEADERS as u32,
    };
    match options.size.iter().find(|&&size| size < least) {
        Some(size) => Err(format!(
            "--size {size}: the packets of the engine begin with headers of {least} bytes, so say {least} or more"
        )),
        None => Ok(()),
    }
}

fn rows(
    options: &Options,
    suite: &NamedSuite,
    workers: &[usize],
) -> impl Iterator<Item = Result<Row, String>> {
    let directions = match options.direction {
        Directions::Both => &[Direction::Seal, Direction::Open][..],
        Directions::Seal => &[Direction::Seal],
        Directions::Open => &[Direction::Open],
    };
    let cases = options
        .size
        .iter()
        .flat_map(|&size| directions.iter().map(move |&direction| (size, direction)));
    let time = Duration::from_secs_f64(options.seconds);
    cases.map(move |(size, direction)| {
        let case = Case {
            suite: suite.clone(),
            direction,
            size: size as usize,
            batch: options.batch.into(),
            sas: options.sas as usize,
        };
        match options.layer {
            Layer::Kernel => Ok(Row::Kernel(case.measure_kernel(workers, time))),
            Layer::Engine => case.measure_engine(workers, time).map(Row::Engine),
        }
    })
}

fn seconds(word: &str) -> Result<f64, String> {
    match word.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds between 0.001 and 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests;
