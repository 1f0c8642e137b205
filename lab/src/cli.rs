//! The command line of `esplanade-lab`, reached as `esplanade lab …`: its subcommands and the modules that run them.

mod guest;
mod list;
mod measure;
mod output;
mod recorded;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::doctor;
use crate::tool::Tool;
use output::print_text;

/// Measure plain IP, Esplanade and other VPNs by one method, with confidence intervals.
#[derive(Parser)]
#[command(
    name = "esplanade lab",
    bin_name = "esplanade lab",
    version,
    after_help = "Example: esplanade lab run demo --out demo-out"
)]
struct CommandLine {
    #[command(subcommand)]
    act: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// List the studies and how long they take, or the contenders of one study
    #[command(after_help = "Example: esplanade lab list peers")]
    List {
        /// Name of a study
        study: Option<String>,
    },
    /// Run a study, or an experiment from a TOML file
    #[command(
        after_help = "Example: esplanade lab run demo --rounds 5 --duration 10 --out results/monday"
    )]
    Run(run::Run),
    /// Write the HTML page of a run from its records, and print its table
    #[command(after_help = "Example: esplanade lab report demo-out")]
    Report {
        /// The folder of the run
        dir: PathBuf,
        /// File of the page [default: DIR/report.html]
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Also write each chart as an SVG file into this folder
        #[arg(long, value_name = "FOLDER")]
        charts: Option<PathBuf>,
    },
    /// Show the significant differences between two runs
    #[command(after_help = "Example: esplanade lab compare before-out after-out")]
    Compare {
        /// The folder of the earlier run
        a: PathBuf,
        /// The folder of the later run
        b: PathBuf,
    },
    /// Print the records of a run as CSV or JSON
    #[command(after_help = "Example: esplanade lab export demo-out --csv > demo.csv")]
    Export {
        /// The folder of the run
        dir: PathBuf,
        /// CSV: one line for each trial (the default)
        #[arg(long, conflicts_with = "json")]
        csv: bool,
        /// JSON: one array of flat objects
        #[arg(long)]
        json: bool,
    },
    /// Programs of the lab that it starts on the hosts of a testbed
    #[command(hide = true)]
    Tool {
        #[command(subcommand)]
        tool: Tool,
    },
    /// Show what this machine can and cannot measure, and how to fix it
    Doctor {
        /// JSON: one array of findings
        #[arg(long)]
        json: bool,
    },
}

/// Runs the program on its command line.
pub fn main() -> ExitCode {
    let done = match CommandLine::parse().act {
        LabCommand::List { study } => list::list(study.as_deref()),
        LabCommand::Run(run) => run.go(),
        LabCommand::Report { dir, html, charts } => recorded::report(&dir, html, charts),
        LabCommand::Compare { a, b } => recorded::compare(&a, &b),
        LabCommand::Export { dir, json, .. } => recorded::export(&dir, json),
        LabCommand::Doctor { json } => examine(json),
        LabCommand::Tool { tool } => tool
            .run()
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
    };
    done.unwrap_or_else(|why| {
        eprintln!(
            "{}",
            if why.starts_with("error: ") {
                why
            } else {
                format!("error: {why}")
            }
        );
        ExitCode::FAILURE
    })
}

fn examine(json: bool) -> Result<ExitCode, String> {
    let findings = doctor::examine();
    let (text, can_run) = doctor::text(&findings);
    print_text(&if json { doctor::json(&findings) } else { text })?;
    Ok(if can_run {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
