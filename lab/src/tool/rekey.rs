//! Renews the keys of a tunnel again and again, make-before-break, by two gateways' own `setkey`:
//!
//! ```text
//!   receiver: add new ─► sender: add new (the newest is used) ─► packets in flight arrive ─► both: delete old
//! ```
//!
//! No packet can meet a gateway that lacks its association, so none may be lost. Gateways that negotiate their keys are
//! asked to do it again (`esplanade rekey`), the left one and the right one in turn.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Options.
#[derive(Debug, clap::Args)]
pub struct Rekey {
    /// The program `esplanade`
    #[arg(long)]
    esplanade: PathBuf,
    /// The setkey file whose associations are renewed
    #[arg(long, required_unless_present = "peer", conflicts_with = "peer")]
    file: Option<PathBuf>,
    /// The peer, by its name on both gateways, with which keys are negotiated again
    #[arg(long)]
    peer: Option<String>,
    /// The control socket of the left gateway, whose address comes first in the file
    #[arg(long)]
    left: PathBuf,
    /// The control socket of the other gateway
    #[arg(long)]
    right: PathBuf,
    /// Milliseconds from one renewal to the next
    #[arg(long, default_value_t = 1000)]
    every: u64,
}

/// How long packets under the old keys may still be under way.
const IN_FLIGHT_TIME: Duration = Duration::from_millis(200);
/// How far the SPIs of two generations are apart; no file of the lab uses so large ones.
const SPI_STEP: u32 = 0x1_0000;

impl Rekey {
    /// Renews until it is ended, and prints a line for each renewal.
    pub(super) fn run(self) -> io::Result<()> {
        match (&self.file, &self.peer) {
            (Some(file), _) => self.renew_by_hand(file),
            (None, Some(peer)) => self.repeat(|number| self.negotiate(peer, number)),
            (None, None) => Err(io::Error::other("--file or --peer is missing")),
        }
    }

    fn renew_by_hand(&self, file: &Path) -> io::Result<()> {
        let text = fs::read_to_string(file)?;
        let first: Vec<Association> = text.lines().filter_map(Association::read).collect();
        if first.is_empty() {
            return Err(io::Error::other("the file has no `add` statement"));
        }
        let mut old = first.clone();
        self.repeat(|number| {
            let new: Vec<Association> = first
                .iter()
                .map(|one| one.renewed(number, random_hex))
                .collect::<io::Result<_>>()?;
            self.renew(&old, &new)?;
            old = new;
            Ok(())
        })
    }

    /// Renews whenever it is due, from number 1 on.
    fn repeat(&self, mut renew: impl FnMut(u32) -> io::Result<()>) -> io::Result<()> {
        let started = Instant::now();
        for number in 1u32.. {
            let due = Duration::from_millis(self.every) * number;
            std::thread::sleep(due.saturating_sub(started.elapsed()));
            renew(number)?;
            println!("renewed");
            io::stdout().flush()?;
        }
        Ok(())
    }

    /// Each gateway in turn begins; the command ends when the new keys are in use.
    fn negotiate(&self, peer: &str, number: u32) -> io::Result<()> {
        let control = if number % 2 == 1 {
            &self.left
        } else {
            &self.right
        };
        let mut command = Command::new(&self.esplanade);
        command.args(["rekey", peer, "--control"]).arg(control);
        let finished = command.stdin(Stdio::null()).output()?;
        if finished.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&finished.stderr)
            .trim()
            .replace('\n', "; ");
        Err(io::Error::other(format!(
            "esplanade rekey: {}: {said}",
            finished.status
        )))
    }

    fn renew(&self, old: &[Association], new: &[Association]) -> io::Result<()> {
        let left = new[0].source().to_owned();
        let text = |all: &[Association], from_left: bool, say: fn(&Association) -> String| {
            let chosen = all.iter().filter(|one| (one.source() == left) == from_left);
            chosen.map(say).collect::<String>()
        };
        let (add, delete) = (Association::add, Association::delete);
        // Receivers first, then senders; and the other way round when the old ones go.
        self.setkey(&self.right, text(new, true, add))?;
        self.setkey(&self.left, text(new, false, add))?;
        self.setkey(&self.left, text(new, true, add))?;
        self.setkey(&self.right, text(new, false, add))?;
        std::thread::sleep(IN_FLIGHT_TIME);
        let all = text(old, true, delete) + &text(old, false, delete);
        self.setkey(&self.left, all.clone())?;
        self.setkey(&self.right, all)
    }

    fn setkey(&self, control: &PathBuf, statements: String) -> io::Result<()> {
        let mut child = Command::new(&self.esplanade)
            .args(["setkey", "-c", "--control"])
            .arg(control)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(statements.as_bytes())?;
        }
        let finished = child.wait_with_output()?;
        if finished.status.success() {
            return Ok(());
        }
        // The statements hold keys and are not repeated.
        Err(io::Error::other(format!(
            "setkey ended with {}: {}",
            finished.status,
            String::from_utf8_lossy(&finished.stderr).trim()
        )))
    }
}

/// One `add` statement, in words.
#[derive(Clone, PartialEq, Eq)]
struct Association(Vec<String>);

impl Association {
    fn read(line: &str) -> Option<Association> {
        let words: Vec<String> = line
            .trim()
            .strip_suffix(';')?
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let spi = words.get(4)?.starts_with("0x");
        (words[0] == "add" && spi).then_some(Association(words))
    }

    fn source(&self) -> &str {
        &self.0[1]
    }

    fn add(&self) -> String {
        self.0.join(" ") + ";\n"
    }

    fn delete(&self) -> String {
        format!("delete {};\n", self.0[1..5].join(" "))
    }

    /// The same with another SPI and other keys: every hexadecimal number behind the SPI is a key.
    fn renewed(
        &self,
        generation: u32,
        random: impl Fn(usize) -> io::Result<String>,
    ) -> io::Result<Association> {
        let mut words = self.0.clone();
        let spi = u32::from_str_radix(&words[4][2..], 16)
            .map_err(|_| io::Error::other(format!("`{}` is not an SPI", words[4])))?;
        let moved = spi.wrapping_add(SPI_STEP.wrapping_mul(generation));
        words[4] = format!("{moved:#x}");
        for word in words.iter_mut().skip(5) {
            if let Some(digits) = word.strip_prefix("0x") {
                *word = format!("0x{}", random(digits.len() / 2)?);
            }
        }
        Ok(Association(words))
    }
}

fn random_hex(length: usize) -> io::Result<String> {
    let mut key = vec![0; length];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 1024 -E aes-cbc 0x00010203 -A hmac-sha1 0x0a0b;";

    #[test]
    fn a_renewed_association_differs_in_spi_and_keys_alone() {
        let old = Association::read(LINE).unwrap();
        let new = old.renewed(3, |length| Ok("ff".repeat(length))).unwrap();
        assert_eq!(
            new.add(),
            "add 192.0.2.1 192.0.2.2 esp-udp 0x31001 -m tunnel -r 1024 -E aes-cbc 0xffffffff -A hmac-sha1 0xffff;\n"
        );
        assert_eq!(
            new.delete(),
            "delete 192.0.2.1 192.0.2.2 esp-udp 0x31001;\n"
        );
        assert_eq!(old.add().trim_end(), LINE);
    }

    #[test]
    fn other_lines_are_no_associations() {
        for line in [
            "",
            "# add a b c 0x1;",
            "spdadd a b any -P out ipsec x;",
            "add a b;",
        ] {
            assert!(Association::read(line).is_none(), "{line}");
        }
    }

    #[test]
    fn fresh_keys_have_the_length_of_the_old_ones_and_differ() {
        let old = Association::read(LINE).unwrap();
        let (one, other) = (
            old.renewed(1, random_hex).unwrap(),
            old.renewed(1, random_hex).unwrap(),
        );
        assert_eq!(one.add().len(), old.add().len() + 1);
        assert!(one != other);
    }
}
