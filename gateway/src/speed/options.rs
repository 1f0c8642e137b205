//! The options of `esplanade speed`.

use clap::{Args, ValueEnum};
use serde::Serialize;

/// What `esplanade speed` takes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Suites, or parts of their names [default: one of each algorithm; `--list` names them]
    #[arg(value_name = "SUITE")]
    pub(super) suites: Vec<String>,
    /// Name every suite that can be measured, and stop
    #[arg(long)]
    pub(super) list: bool,
    /// Answer in JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Bytes of plaintext in a packet, with commas between; for the engine those of the packet inside, headers included
    #[arg(long, value_delimiter = ',', default_value = "64,494,1408", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=65_000))]
    pub(super) size: Vec<u32>,
    /// Only one direction
    #[arg(long, value_enum, default_value_t = Directions::Both)]
    pub(super) direction: Directions,
    /// Threads, each on a CPU of its own; of the engine's the first keeps all packets in order
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) workers: u16,
    /// Security associations that the packets take turns with
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) sas: u32,
    /// Packets that are handed over together
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) batch: u16,
    /// Seconds for each row
    #[arg(long, default_value_t = 0.1, value_name = "S", value_parser = seconds)]
    pub(super) seconds: f64,
    /// How much of the gateway takes part
    #[arg(long, value_enum, default_value_t = Layer::Kernel)]
    pub(super) layer: Layer,
}

const EXAMPLES: &str = "\
Examples:
  esplanade speed                                     one of each algorithm
  esplanade speed aes-128-gcm chacha20 --size 1408    those whose names say so
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
    /// The ciphers alone: keys and byte ranges
    #[value(alias = "cipher")]
    Kernel,
    /// Whole packets through an ESP tunnel in UDP: policies, headers and counting too
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

fn seconds(word: &str) -> Result<f64, String> {
    match word.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds between 0.001 and 3600".to_owned()),
    }
}
