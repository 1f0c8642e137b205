//! A run in the guest: the lab there gets the same request, its output is passed on, and every record is copied back as
//! soon as its trial ends.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::measure::readme;
use super::recorded::read;
use crate::experiment::Summary;
use crate::fault::Fault;
use crate::host::Command;
use crate::outdir::{ORDER, OutDir, README, RECORDS, RunRequest};
use crate::spec::Programs;
use crate::stop::{INTERRUPTED_EXIT, Stop};
use crate::testbed::guest::{ESPLANADE, Guest, LAB};

/// The option that the lab in the guest gets in addition.
pub(super) const INSIDE_GUEST_OPTION: &str = "--inside-guest";
/// The folder of the run in there.
const GUEST_FOLDER: &str = "out";
/// Between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// For a run to end cleanly when the user interrupts it.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a request in the guest, with the records of an earlier run.
pub(super) fn measure(
    order: &RunRequest,
    out: &OutDir,
    programs: &Programs,
    repeat: &str,
) -> Result<Summary, String> {
    let stop = Stop::on_signals().map_err(|error| format!("cannot catch signals: {error}"))?;
    let cannot = |error: io::Error| format!("cannot write to {}: {error}", out.path.display());
    if !out.resumed {
        fs::write(out.path.join(README), readme(repeat)).map_err(cannot)?;
    }
    eprintln!("booting the guest (its kernel is downloaded once and cached)");
    let lab = Some((programs.lab.clone(), LAB));
    let esplanade = programs.esplanade.clone().map(|path| (path, ESPLANADE));
    let uploads: Vec<(PathBuf, &str)> = lab.into_iter().chain(esplanade).collect();
    let code = match Guest::boot(&uploads, stop) {
        Ok(guest) => carried_out(&guest, order, &out.path, stop).map_err(|why| why.to_string())?,
        Err(Fault::Interrupted) => INTERRUPTED_EXIT,
        Err(fault) => return Err(fault.to_string()),
    };
    let interrupted = code == INTERRUPTED_EXIT;
    if !interrupted && code != 0 {
        return Err(format!(
            "the lab in the guest ended with {code}; see its output above. Its records are saved"
        ));
    }
    let records = if out.path.join(RECORDS).exists() {
        read(&out.path)?.0
    } else if interrupted {
        Vec::new()
    } else {
        return Err("the lab in the guest recorded nothing".into());
    };
    Ok(Summary {
        records,
        interrupted,
        not_kept: None,
    })
}

fn carried_out(guest: &Guest, order: &RunRequest, here: &Path, stop: Stop) -> Result<i32, Fault> {
    let mut inside = order.clone();
    inside.arguments.push(INSIDE_GUEST_OPTION.to_owned());
    let text = serde_json::to_string(&inside)
        .map_err(|error| Fault::failed(format!("cannot write the request: {error}")))?;
    let place = guest.write_file(&format!("{GUEST_FOLDER}/{ORDER}"), text)?;
    let there = place.parent().unwrap_or(&place).to_owned();
    let mut home = ResultCopy::open(guest, &there, here)?;
    let run = Command::line("").program(LAB.as_ref());
    let run = run.arg("run").arg("--resume").arg(&there);
    // The lab searches the user's home for some programs; they have the same path in the guest.
    let run = match std::env::var_os("HOME") {
        Some(home) => with("HOME", &home.to_string_lossy(), run),
        None => run,
    };
    let process = guest.start(run)?;
    let mut heard = 0;
    let code = loop {
        let (code, said) = guest.state(process)?;
        eprint!("{}", said.get(heard..).unwrap_or_default());
        if heard != said.len() || code.is_some() {
            heard = said.len();
            home.records()?;
        }
        match code {
            Some(code) => break code,
            None if stop.asked() => guest.stop(process, STOP_TIMEOUT)?,
            None => std::thread::sleep(POLL_INTERVAL),
        }
    };
    home.all_else()?;
    Ok(code)
}

/// The same command with one variable more in its environment.
fn with(name: &str, value: &str, command: Command) -> Command {
    let mut with = Command::line("env").arg(format!("{name}={value}"));
    with.arguments.push(command.program);
    with.arguments.extend(command.arguments);
    with
}

/// Copies the results from the guest.
struct ResultCopy<'g> {
    guest: &'g Guest,
    there: PathBuf,
    here: PathBuf,
    /// Bytes of records copied so far.
    length: u64,
}

impl<'g> ResultCopy<'g> {
    /// Records of an earlier run are copied to the guest first, so that their trials are not repeated.
    fn open(guest: &'g Guest, there: &Path, here: &Path) -> Result<ResultCopy<'g>, Fault> {
        let earlier = fs::read_to_string(here.join(RECORDS)).unwrap_or_default();
        // A truncated last line is dropped; the journal in the guest continues after the last complete one.
        let whole = earlier.rfind('\n').map_or(0, |end| end + 1);
        if whole > 0 {
            guest.write_file(
                &format!("{GUEST_FOLDER}/{RECORDS}"),
                earlier[..whole].to_owned(),
            )?;
        }
        Ok(ResultCopy {
            guest,
            there: there.to_owned(),
            here: here.to_owned(),
            length: whole as u64,
        })
    }

    /// Copies new complete records.
    fn records(&mut self) -> Result<(), Fault> {
        let new = self.guest.fetch(self.there.join(RECORDS), self.length)?;
        let whole = new.iter().rposition(|byte| *byte == b'\n');
        let new = &new[..whole.map_or(0, |end| end + 1)];
        if new.is_empty() {
            return Ok(());
        }
        let place = self.here.join(RECORDS);
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(&place);
        let written = file.and_then(|mut file| {
            file.set_len(self.length)?;
            io::Seek::seek(&mut file, io::SeekFrom::Start(self.length))?;
            file.write_all(new)?;
            file.sync_data()
        });
        written.map_err(|error| cannot_write(&place, &error))?;
        self.length += new.len() as u64;
        Ok(())
    }

    /// Copies all other files, except those that exist here.
    fn all_else(&self) -> Result<(), Fault> {
        for path in self.guest.files(&self.there.to_string_lossy())? {
            let Ok(name) = path.strip_prefix(&self.there) else {
                continue;
            };
            let place = self.here.join(name);
            if place.exists() {
                continue;
            }
            let bytes = self.guest.fetch(path.clone(), 0)?;
            let folder = place.parent().unwrap_or(&self.here);
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&place, bytes))
                .map_err(|error| cannot_write(&place, &error))?;
        }
        Ok(())
    }
}

fn cannot_write(place: &Path, error: &io::Error) -> Fault {
    Fault::failed(format!("cannot write {}: {error}", place.display()))
}
