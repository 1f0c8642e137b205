//! `esplanade speed`: how fast this machine is, suite by suite, in the manner of `openssl speed`: the ciphers alone, or
//! the whole data plane.
//!
//! Everything is in memory: no device is touched. The candidates compared take turns, so that a change of the machine's
//! speed affects all of them, and a ratio is printed with the confidence interval of its turns.
//!
//! ```text
//!   suites × directions × sizes ──► case ──┬─► keys, byte ranges ──► turns: kernels │ library │ … ──► row
//!                                          └─► hub: databases, packets ──► turns: engine │ kernels │ … ──► row
//! ```

mod case;
mod engine;
mod hub;
mod machine;
mod options;
mod report;
pub(crate) mod statistics;
mod suite;
mod turn;

use crate::failure::Failure;
use case::Case;
use machine::Machine;
pub(crate) use options::SpeedOptions;
use options::{Direction, Directions, Layer};
use report::{Report, Row};
use std::io::IsTerminal;
use std::time::Duration;
use suite::NamedSuite;

/// Measures and prints.
pub(crate) fn run(options: &SpeedOptions) -> Result<(), Failure> {
    if options.list {
        let names: Vec<String> = suite::all().map(|suite| suite.name + "\n").collect();
        return crate::output::print(&names.concat());
    }
    let suites = suite::chosen(&options.suites)?;
    check_sizes(options)?;
    let machine = Machine::read();
    let workers = machine::cpus_for(options.workers.into())?;
    let mut report = Report::new(machine, options, &suites);
    if !options.json {
        crate::output::print(&report.head())?;
    }
    for suite in &suites {
        for row in rows(options, suite, &workers) {
            let row = row?;
            if !options.json {
                crate::output::print(&report.line(&row))?;
            }
            report.rows.push(row);
        }
    }
    if options.json {
        return crate::output::print(&report.json());
    }
    crate::output::print(&report.foot(std::io::stdout().is_terminal()))
}

fn check_sizes(options: &SpeedOptions) -> Result<(), Failure> {
    let least = match options.layer {
        Layer::Kernel => return Ok(()),
        Layer::Engine => hub::HEADER_BYTES as u32,
    };
    match options.size.iter().find(|&&size| size < least) {
        Some(size) => Err(Failure::new(format!(
            "--size {size}: packets of the engine include {least} bytes of headers, so the minimum is {least}"
        ))),
        None => Ok(()),
    }
}

fn rows(
    options: &SpeedOptions,
    suite: &NamedSuite,
    workers: &[usize],
) -> impl Iterator<Item = Result<Row, Failure>> {
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

#[cfg(test)]
mod tests;
