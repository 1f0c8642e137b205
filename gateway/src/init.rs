//! `esplanade init`: writes a configuration with one tunnel, commented, and a pre-shared key of 32 random bytes. On a
//! terminal it asks for what the options do not say. It never overwrites a file.

mod options;
mod questions;
mod text;

pub(crate) use options::InitOptions;

use crate::config;
use crate::failure::Failure;
use crate::memory;
use crate::output::print;
use crate::random::system_random;
use questions::Questions;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use text::Tunnel;
use zeroize::Zeroizing;

pub(crate) const EXAMPLES: &str = "\
Examples:
  esplanade init
  esplanade init --local 192.0.2.1 --remote 198.51.100.7 --local-network 10.1.0.0/16 --remote-network 10.2.0.0/16
  esplanade init office.toml --name office --remote 198.51.100.7 --local-id a.example.org --remote-id b.example.org \\
      --local-network 10.1.0.0/16 --remote-network 10.2.0.0/16 --psk-file office.psk";

/// Bytes of a pre-shared key.
const PSK_BYTES: usize = 32;

/// Asks, writes, and reads back what was written.
pub(crate) fn run(options: &InitOptions) -> Result<(), Failure> {
    if options.file.exists() {
        return Err(exists(&options.file));
    }
    let asks = !options.no_questions && io::stdin().is_terminal();
    let (mut input, mut output) = (io::stdin().lock(), io::stderr());
    let mut questions = Questions::new(asks.then_some((&mut input, &mut output)));
    let tunnel = questions::tunnel(options, &mut questions)?;
    print(&memory::with_keys(|| write(options, &tunnel))?)
}

/// Writes both files; what to do next.
fn write(options: &InitOptions, tunnel: &Tunnel) -> Result<String, Failure> {
    let folder = options.file.parent().unwrap_or(Path::new(""));
    // A file name alone is one of the present folder, which is there.
    if !folder.as_os_str().is_empty() {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder);
        made.map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
    }
    let mut written = Written::default();
    let key = match &options.psk_file {
        Some(key) => std::path::absolute(key).map_err(|error| cannot_write(key, &error))?,
        None => {
            let key = folder.join(format!("{}.psk", tunnel.name));
            written.create(&key, 0o600, pre_shared_key().as_bytes())?;
            key
        }
    };
    let inside = key.strip_prefix(folder).unwrap_or(&key);
    written.create(&options.file, 0o644, tunnel.text(inside).as_bytes())?;
    // What was written is read as a gateway reads it, so that it is right or not there at all.
    let config = config::load(&options.file, &[])?;
    written.keep();
    config
        .warnings
        .iter()
        .for_each(|warning| eprintln!("{warning}"));
    Ok(tunnel.what_next(&options.file, &key))
}

/// 64 hexadecimal digits and the end of the line. The first digit is not 0, because AWS takes no key that begins so.
fn pre_shared_key() -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(2 * PSK_BYTES + 1));
    while text.is_empty() {
        for _ in 0..PSK_BYTES / size_of::<u64>() {
            let _ = write!(text, "{:016x}", system_random());
        }
        if text.starts_with('0') {
            text.clear();
        }
    }
    text.push('\n');
    text
}

/// Files that are removed again unless all of them are right.
#[derive(Default)]
struct Written(Vec<PathBuf>);

impl Written {
    fn create(&mut self, path: &Path, mode: u32, content: &[u8]) -> Result<(), Failure> {
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path);
        let mut file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(path),
            _ => cannot_write(path, &error),
        })?;
        self.0.push(path.to_owned());
        let written = file.write_all(content).and_then(|()| file.sync_all());
        written.map_err(|error| cannot_write(path, &error))
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        for path in &self.0 {
            // It was made a moment ago, and holds nothing that is not made again.
            let _ = fs::remove_file(path);
        }
    }
}

fn exists(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(format!(
        "{path} exists, and is not overwritten: name another file, or move this one away"
    ))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
