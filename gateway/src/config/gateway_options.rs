//! `[gateway]`: the options of `esplanade run` by their names, with `_` for `-`. The command line's own parser reads
//! them, so a key means what its option means.

use super::files::Files;
use super::findings::Findings;
use super::hooks::{self, ConfiguredHooks};
use super::keys;
use super::table::Table;
use crate::run::{RunOptions, key_log_warning};
use clap::{ArgAction, Args, Command, error::ErrorKind};
use ipsec::setkey::{Problem, Span};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Keys whose value is a path, which begins at the folder of the file.
const PATHS: [&str; 5] = ["setkey", "control", "state", KEY_LOG, FOLDERS];
/// The key for included files, which may be several.
const INCLUDED: &str = "setkey";
/// The key for folders that stay readable: the file's own, as there is no such option.
const FOLDERS: &str = "files";
/// The key for a folder that keys are written to.
const KEY_LOG: &str = "key_log";

/// What the table says.
#[derive(Default)]
pub(crate) struct GatewayOptions {
    /// Files in setkey's language that belong to the configuration.
    pub(crate) setkey: Vec<PathBuf>,
    /// Folders that stay readable for a reload: those of `files`, and those of all files that the configuration names.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// The hooks of peers that have none of their own.
    pub(crate) hooks: ConfiguredHooks,
    /// The other options, as they would stand on the command line of `esplanade run`.
    pub(crate) arguments: Vec<String>,
}

/// Reads the table; what it has wrong is a problem.
pub(super) fn read(table: Table<'_>, files: &Files<'_>) -> GatewayOptions {
    table.only(&keys::GATEWAY, "[gateway]");
    let findings = table.findings();
    let command = command();
    let mut options = GatewayOptions {
        hooks: hooks::read(table, files, &ConfiguredHooks::default()),
        ..GatewayOptions::default()
    };
    let is_option = |key: &&str| table.has(key) && !hooks::KEYS.contains(key);
    for key in keys::GATEWAY.into_iter().filter(is_option) {
        let Some((at, mut words)) = table.words(key) else {
            continue;
        };
        if PATHS.contains(&key) {
            words = words
                .iter()
                .map(|word| files.path(word).display().to_string())
                .collect();
        }
        if key == INCLUDED {
            options.setkey = words.iter().map(PathBuf::from).collect();
            continue;
        }
        if key == FOLDERS {
            options.folders = words.iter().map(PathBuf::from).collect();
            check_folders(&options, at, findings);
            continue;
        }
        if key == KEY_LOG {
            let folder = words.first().map(Path::new).unwrap_or(Path::new(""));
            findings.warn(at, key_log_warning(folder));
        }
        let arguments = findings.keep(arguments(&command, key, &words, at));
        options.arguments.extend(arguments.unwrap_or_default());
    }
    check_together(&command, &options, table, findings);
    options
}

/// A folder that is not there when the gateway starts cannot be kept readable.
fn check_folders(options: &GatewayOptions, at: Span, findings: &Findings) {
    for folder in options.folders.iter().filter(|folder| !folder.is_dir()) {
        let problem = Problem::new(
            at,
            format!("`{FOLDERS}`: {} is no folder", folder.display()),
        );
        findings.problem(problem.advise("make it, or remove it from the list"));
    }
}

/// The options of `run`, none of which is needed.
pub(super) fn command() -> Command {
    let command = RunOptions::augment_args(Command::new("run").no_binary_name(true));
    command.mut_args(|argument| argument.required(false))
}

/// One option with its value, checked.
fn arguments(
    command: &Command,
    key: &str,
    words: &[String],
    at: Span,
) -> Result<Vec<String>, Problem> {
    let name = key.replace('_', "-");
    let option = command
        .get_arguments()
        .find(|argument| argument.get_long() == Some(&name));
    let is_flag = option.is_some_and(|option| matches!(option.get_action(), ArgAction::SetTrue));
    let arguments = match (is_flag, words) {
        (true, [word]) if word == "true" => vec![format!("--{name}")],
        (true, [word]) if word == "false" => return Ok(Vec::new()),
        (true, _) => {
            let problem = Problem::new(at, format!("`{key}` is true or false"));
            return Err(problem.advise("without quotes"));
        }
        (false, [word]) => vec![format!("--{name}={word}")],
        (false, _) => return Err(Problem::new(at, format!("`{key}` has one value"))),
    };
    let checked = command.clone().try_get_matches_from(&arguments);
    checked.map_err(|error| {
        let value = words.join(", ");
        let problem = Problem::new(at, format!("`{key}` cannot be \"{value}\""));
        let reason = error.source().map(ToString::to_string);
        let help = option
            .and_then(|option| option.get_help())
            .map(ToString::to_string);
        match reason.or(help) {
            Some(advice) => problem.advise(advice),
            None => problem,
        }
    })?;
    Ok(arguments)
}

/// Options that exclude each other.
fn check_together(
    command: &Command,
    options: &GatewayOptions,
    table: Table<'_>,
    findings: &Findings,
) {
    let checked = command.clone().try_get_matches_from(&options.arguments);
    if let Err(error) = checked.map_err(|error| (error.kind(), error.to_string()))
        && error.0 == ErrorKind::ArgumentConflict
    {
        let first = error.1.lines().next().unwrap_or_default();
        let message = first.trim_start_matches("error: ").to_owned();
        findings.problem(Problem::new(table.at, message).advise("remove one of the two keys"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_run_is_a_key_and_the_other_way_round() {
        let command = command();
        let shown = command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set());
        let mut options: Vec<_> = shown
            .filter_map(|argument| argument.get_long())
            .filter(|name| !["help", "config"].contains(name))
            .map(|name| name.replace('-', "_"))
            .collect();
        let mut keys = keys::GATEWAY.to_vec();
        keys.retain(|key| *key != FOLDERS && !hooks::KEYS.contains(key));
        options.sort_unstable();
        keys.sort_unstable();
        assert_eq!(options, keys);
    }
}
