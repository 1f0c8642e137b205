//! `esplanade config`: what a configuration means, and what a reload would change, without a gateway.

use crate::apply;
use crate::config::{self, Config, DEFAULT_PATH};
use crate::failure::Failure;
use crate::memory;
use crate::output::print;
use crate::setkey_cli::text_of;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

pub(super) const CONFIG_EXAMPLES: &str = "\
Examples:
  esplanade config check
  esplanade config check /etc/esplanade/esplanade.toml
  esplanade config diff running.toml new.toml";

/// What `esplanade config` takes.
#[derive(Args)]
pub(super) struct ConfigArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Explain every mistake of a file, or show what it means: peers, networks, suites, times
    #[command(after_help = "Example:\n  esplanade config check /etc/esplanade/esplanade.toml")]
    Check {
        /// The configuration
        #[arg(value_name = "FILE", default_value = DEFAULT_PATH)]
        file: PathBuf,
        /// Report mistakes and warnings only
        #[arg(short, long)]
        quiet: bool,
    },
    /// Show which peers a reload would add, renegotiate, take down, or leave alone
    #[command(after_help = "Example:\n  esplanade config diff running.toml new.toml")]
    Diff {
        /// The configuration in force
        #[arg(value_name = "OLD")]
        old: PathBuf,
        /// The new one
        #[arg(value_name = "NEW")]
        new: PathBuf,
    },
}

pub(super) fn config(arguments: &ConfigArguments) -> Result<(), Failure> {
    memory::with_keys(|| match &arguments.command {
        ConfigCommand::Check { file, quiet } => check(file, *quiet),
        ConfigCommand::Diff { old, new } => {
            let old = config::load(old, &[])?;
            let new = config::load(new, &old.peers)?;
            print(&config::difference(&old.peers, &new.peers).to_string())
        }
    })
}

fn check(file: &Path, quiet: bool) -> Result<(), Failure> {
    let config = config::load(file, &[])?;
    check_included(&config)?;
    config
        .warnings
        .iter()
        .for_each(|warning| eprintln!("{warning}"));
    if quiet {
        Ok(())
    } else {
        print(&config::summary(&config))
    }
}

/// Every mistake of the setkey files.
fn check_included(config: &Config) -> Result<(), Failure> {
    let mut mistakes = Vec::new();
    for path in &config.gateway.setkey {
        match text_of(path).and_then(|text| Ok((apply::parse(&text)?, text))) {
            Ok((lowered, text)) => {
                let warnings = apply::warnings(&lowered, &text);
                warnings.iter().for_each(|warning| eprintln!("{warning}"));
            }
            Err(why) => mistakes.push(why.to_string()),
        }
    }
    if mistakes.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(mistakes.join("\n")))
    }
}
