//! `esplanade.toml`: the gateway's options and its peers.
//!
//! ```text
//!   text ──► table (places) ──┬─► gateway_options ──► options of `esplanade run`, setkey files
//!                             └─► peer ──► connection, credential, trust ──► numbers
//!                                   ▲
//!                      files, profile, units
//!
//!   findings     every problem and warning with its place
//!   summary      what a file means
//!   difference   what a reload changes
//! ```

mod checked;
mod difference;
mod files;
mod findings;
mod fingerprint;
mod gateway_options;
mod hooks;
mod keys;
mod network;
mod numbers;
mod peer;
mod profile;
mod secrets;
mod summary;
mod surroundings;
mod table;
mod together;
mod units;

pub(crate) use checked::{Config, ConfiguredPeer, Credential, Mode};
pub(crate) use difference::difference;
use gateway_options::GatewayOptions;
pub(crate) use hooks::{ConfiguredHooks, HookCommand};
pub(crate) use network::network;
pub(crate) use summary::{network_text as traffic_text, summary};

use crate::failure::Failure;
use crate::file_path::folder_of;
use crate::key_access::{doubt, read_whole};
use crate::privileges::User;
use crate::setkey_cli::SystemNames;
use files::Files;
use findings::Findings;
use ipsec::setkey::{Names, Problem, Span};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;
use surroundings::Surroundings;
use table::Table;
use toml::de::DeTable;

/// The path of a configuration where none is given.
pub(crate) const DEFAULT_PATH: &str = "/etc/esplanade/esplanade.toml";

/// Reads a file and the files that it names. The error has every mistake, with its place. `previous` are the peers that
/// are in force: one whose secrets are the same keeps its number.
pub(crate) fn load(path: &Path, previous: &[ConfiguredPeer]) -> Result<Config, Failure> {
    load_for(path, previous, false, &resolve)
}

/// The same for a running gateway, which can reach some folders alone.
pub(crate) fn load_again(path: &Path, previous: &[ConfiguredPeer]) -> Result<Config, Failure> {
    load_for(path, previous, true, &resolve)
}

/// The same where no name service is there yet: the address of a name is unspecified.
pub(crate) fn load_without_lookup(path: &Path) -> Result<Config, Failure> {
    let unspecified = |_: &str| -> Result<Vec<std::net::IpAddr>, Failure> {
        Ok(vec![std::net::IpAddr::from([0; 4])])
    };
    load_for(path, &[], false, &unspecified)
}

fn load_for(
    path: &Path,
    previous: &[ConfiguredPeer],
    is_reload: bool,
    resolve: &dyn Fn(&str) -> Result<Vec<std::net::IpAddr>, Failure>,
) -> Result<Config, Failure> {
    let name = path.display().to_string();
    let cannot =
        |error: &dyn std::fmt::Display| Failure::new(format!("cannot read {name}: {error}"));
    let mut file = File::open(path).map_err(|error| cannot(&error))?;
    let found = file.metadata().map_err(|error| cannot(&error))?;
    if !found.is_file() {
        return Err(cannot(&"not a regular file"));
    }
    let octets = read_whole(&mut file, found.len()).map_err(|error| cannot(&error))?;
    let text = std::str::from_utf8(&octets).map_err(|error| cannot(&error))?;
    let user = User::of_gateways()
        .ok()
        .flatten()
        .unwrap_or_else(User::current);
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let folders = RefCell::default();
    let around = Surroundings {
        files: Files {
            folder: folder_of(path),
            user: &user,
            folders: &folders,
            is_reload,
            owner: found.uid(),
        },
        resolve,
        aes_is_fast: aes_is_fast(),
        now: seconds.map_or(0, |passed| passed.as_secs()),
    };
    let mut config =
        read(&name, text, &around).map_err(|problems| Failure::new(problems.join("\n")))?;
    let has_secret = !secrets::places(text).is_empty();
    if let Some(doubt) = doubt(&found, &user).filter(|_| has_secret) {
        config.warnings.push(format!(
            "{name} holds a pre-shared key and {doubt}: chown {} {name} && chmod 600 {name}, or use psk_file\n",
            user.uid()
        ));
    }
    numbers::keep(&mut config.peers, previous);
    config.gateway.folders.extend(folders.take());
    Ok(config)
}

/// Reads a text. Errors are rendered, in the order of the text.
fn read(name: &str, text: &str, around: &Surroundings<'_>) -> Result<Config, Vec<String>> {
    let findings = Findings::default();
    let (file, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error
            .span()
            .map_or(Span::default(), |span| Span::new(span.start, span.end));
        findings.problem(Problem::new(at, error.message().trim().replace('\n', ", ")));
    }
    // Of a file that is no TOML only this is reported: what was recovered may be something else than what was meant.
    if !findings.is_clean() {
        return Err(findings.problems(name, text));
    }
    let table = Table::of_file(&file, text, &findings);
    table.only(&keys::TOP, "the file");
    let gateway = match table.table("gateway") {
        Some(gateway) => gateway_options::read(gateway, &around.files),
        None => GatewayOptions::default(),
    };
    let tables = table.tables("peer");
    let places: Vec<_> = tables.iter().map(|(title, _)| title.at).collect();
    let peers: Vec<_> = (1..)
        .zip(tables)
        .map(|(number, named)| peer::read(named, number, around, &gateway.hooks))
        .collect();
    together::check(&peers, &places, &gateway, &findings);
    if peers.is_empty() && gateway.setkey.is_empty() && findings.is_clean() {
        let problem = Problem::new(table.at, "the file names no peer and no setkey file");
        findings.problem(problem.advise(
            "add [peer.office], or `setkey = [\"FILE\"]` in [gateway]; `esplanade init` writes one",
        ));
    }
    if findings.is_clean() {
        Ok(Config {
            gateway,
            peers: peers.into_iter().flatten().collect(),
            warnings: findings.warnings(name, text),
        })
    } else {
        Err(findings.problems(name, text))
    }
}

fn resolve(name: &str) -> Result<Vec<std::net::IpAddr>, Failure> {
    SystemNames.host(name).map_err(Failure::new)
}

/// Whether this processor has instructions for AES: without them ChaCha20 is several times faster.
fn aes_is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

#[cfg(test)]
mod tests;
