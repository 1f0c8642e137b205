//! The options of `esplanade speed`.

use crate::argument::InvalidWord;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// What `esplanade speed` takes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SpeedOptions {
    /// Suites, or parts of their names [default: one of each algorithm; see `--list`]
    #[arg(value_name = "SUITE")]
    pub(super) suites: Vec<String>,
    /// List all suites
    #[arg(long)]
    pub(super) list: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Plaintext bytes per packet, comma-separated; with --layer engine the inner packet including its headers
    #[arg(long, value_delimiter = ',', default_value = "64,494,1408", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=65_000))]
    pub(super) size: Vec<u32>,
    /// Directions to measure
    #[arg(long, value_enum, default_value_t = Directions::Both)]
    pub(super) direction: Directions,
    /// Threads, each on its own CPU; with --layer engine the first one does the serial work
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) workers: u16,
    /// Security associations, used in turn
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) sas: u32,
    /// Packets per batch
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) batch: u16,
    /// Seconds per row
    #[arg(long, default_value_t = 0.1, value_name = "S", value_parser = seconds)]
    pub(super) seconds: f64,
    /// What to measure
    #[arg(long, value_enum, default_value_t = Layer::Kernel)]
    pub(super) layer: Layer,
}

const EXAMPLES: &str = "\
Examples:
  esplanade speed                                     one of each algorithm
  esplanade speed aes-128-gcm chacha20 --size 1408    suites with these names
  esplanade speed aes-128-gcm --workers 2 --sas 60000
  esplanade speed aes-128-gcm --layer engine          whole packets through prepare, transform and commit
  esplanade speed --json | jq '.rows[] | {suite, direction, bytes, gbit_per_second}'";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Directions {
    Both,
    Seal,
    Open,
}

/// How much of the gateway takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Layer {
    /// The ciphers alone, on bytes in memory
    #[value(alias = "cipher")]
    Kernel,
    /// Whole packets through an ESP-in-UDP tunnel: policies, headers and counters included
    Engine,
}

/// Which way packets go: out of the gateway sealed, into it to be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    Seal,
    Open,
}

impl Direction {
    /// As a table has it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

fn seconds(word: &str) -> Result<f64, InvalidWord> {
    match word.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(InvalidWord("a number of seconds between 0.001 and 3600")),
    }
}
