//! `on_up` and `on_down`: programs that run when a peer is up or down.
//!
//! A user who can change such a program decides what runs. So the program and every folder of its path must be owned by
//! root or by the owner of the configuration, and writable by the owner alone.

use super::files::Files;
use super::table::{Table, Text};
use ipsec::setkey::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The keys.
pub(super) const KEYS: [&str; 2] = ["on_up", "on_down"];

/// The word for none, where `[gateway]` has one.
const OFF: &str = "off";

/// Words of one hook, the program included.
const MAX_WORDS: usize = 64;

/// Bytes of all words.
const MAX_BYTES: usize = 8192;

/// A program and its arguments.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct HookCommand {
    /// Its absolute path.
    pub(crate) program: String,
    /// What it is started with.
    pub(crate) arguments: Vec<String>,
}

/// The hooks of a peer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ConfiguredHooks {
    /// Runs when its first child SA is up.
    pub(crate) up: Option<HookCommand>,
    /// Runs when its last one has gone.
    pub(crate) down: Option<HookCommand>,
}

impl ConfiguredHooks {
    /// Those that are there.
    pub(crate) fn each(&self) -> impl Iterator<Item = &HookCommand> {
        self.up.iter().chain(&self.down)
    }
}

impl fmt::Display for HookCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        let mut arguments = self.arguments.iter();
        arguments.try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// The hooks of a table; those that it does not have are those of `standard`.
pub(super) fn read(
    table: Table<'_>,
    files: &Files<'_>,
    standard: &ConfiguredHooks,
) -> ConfiguredHooks {
    let [up, down] = KEYS;
    ConfiguredHooks {
        up: one(table, up, files, standard.up.as_ref()),
        down: one(table, down, files, standard.down.as_ref()),
    }
}

fn one(
    table: Table<'_>,
    key: &str,
    files: &Files<'_>,
    standard: Option<&HookCommand>,
) -> Option<HookCommand> {
    if !table.has(key) {
        return standard.cloned();
    }
    let words = table.texts(key)?;
    let (program, arguments) = words.split_first()?;
    if program.text == OFF && arguments.is_empty() {
        return None;
    }
    let findings = table.findings();
    findings.keep(check_words(key, &words))?;
    findings.keep(check_program(key, *program, files))?;
    Some(HookCommand {
        program: program.text.to_owned(),
        arguments: arguments.iter().map(|word| word.text.to_owned()).collect(),
    })
}

fn check_words(key: &str, words: &[Text<'_>]) -> Result<(), Problem> {
    let bytes: usize = words.iter().map(|word| word.text.len()).sum();
    if let Some(word) = words.iter().find(|word| word.text.contains('\0')) {
        let problem = Problem::new(word.at, format!("`{key}`: a word has a zero byte in it"));
        return Err(problem.advise("no program can be given one: remove it"));
    }
    match words.last() {
        Some(last) if words.len() > MAX_WORDS || bytes > MAX_BYTES => {
            let problem = Problem::new(last.at, format!("`{key}` has too many words"));
            Err(problem.advise(format!(
                "at most {MAX_WORDS} words of {MAX_BYTES} bytes together: write the rest into the program"
            )))
        }
        _ => Ok(()),
    }
}

fn check_program(key: &str, program: Text<'_>, files: &Files<'_>) -> Result<(), Problem> {
    let path = Path::new(program.text);
    if !path.is_absolute() {
        let problem = Problem::new(
            program.at,
            format!("`{key}`: {} is no absolute path", program.text),
        );
        return Err(problem.advise(
            "write the program's whole path, and its arguments as further words of the list: no shell and no PATH \
             finds it",
        ));
    }
    let cannot = |error: std::io::Error| {
        let problem = Problem::new(
            program.at,
            format!("`{key}`: cannot look at {}: {error}", program.text),
        );
        problem.advise("it must be there, and the hooks' user must be able to reach it")
    };
    let real = std::fs::canonicalize(path).map_err(cannot)?;
    let found = std::fs::metadata(&real).map_err(cannot)?;
    let mode = found.permissions().mode();
    if !found.is_file() || mode & 0o111 == 0 {
        let problem = Problem::new(
            program.at,
            format!("`{key}`: {} is no program", program.text),
        );
        return Err(if found.is_file() {
            problem.advise(format!("chmod 755 {}", program.text))
        } else {
            problem.advise("name a file that may be executed")
        });
    }
    let on_the_way: BTreeSet<PathBuf> = path
        .ancestors()
        .chain(real.ancestors())
        .map(Path::to_owned)
        .collect();
    for place in on_the_way.iter().rev() {
        let found = std::fs::metadata(place).map_err(cannot)?;
        if let Some((why, remedy)) = who_else_writes(place, &found, files.owner) {
            let problem = Problem::new(
                program.at,
                format!("`{key}`: others can replace {}: {why}", program.text),
            );
            return Err(problem.advise(remedy));
        }
    }
    Ok(())
}

/// Who but root and `owner` can change a file or the entries of a folder, and what to do about it. In a folder with the
/// sticky bit each entry is its owner's.
fn who_else_writes(place: &Path, found: &Metadata, owner: u32) -> Option<(String, String)> {
    let (place, mode) = (place.display(), found.mode() & 0o7777);
    let is_sticky = found.is_dir() && mode & 0o1000 != 0;
    if found.uid() != 0 && found.uid() != owner {
        let why = format!("{place} belongs to user {}", found.uid());
        return Some((why, format!("chown root {place}")));
    }
    (mode & 0o022 != 0 && !is_sticky).then(|| {
        (
            format!("others may write {place} (mode {mode:04o})"),
            format!("chmod go-w {place}"),
        )
    })
}
