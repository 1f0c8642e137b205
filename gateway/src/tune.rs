//! `esplanade tune`: the settings of the host that matter to throughput and latency: their current and recommended
//! values, and the gain measured on this machine.
//!
//! ```text
//!   table (pure) ──► rows ◄── host: /proc/sys, /sys, ethtool          show: the rows
//!                     ▲  ◄── gain: records of `esplanade lab run tune`
//!                     │
//!   apply: rows ──► state file (old values, first of all) ──► host    revert: state file ──► host
//! ```
//!
//! Nothing is changed that cannot be restored, and no value that another program has set since is overwritten.

mod change;
mod gain;
mod host;
mod informational;
mod recommendation;
mod report;
mod state;
mod table;

use crate::failure::Failure;
use crate::output::print;
use crate::routes::DEFAULT_TUN;
use change::Outcome;
use clap::{Args, Subcommand};
use gain::{Gains, Here};
use host::{Host, Machine, Reading, Target, outer_devices};
use report::{Assessment, Report, Row, Scope};
use state::State;
use std::path::{Path, PathBuf};

/// What `esplanade tune` takes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TuneOptions {
    #[command(subcommand)]
    task: Task,
}

const EXAMPLES: &str = "\
Examples:
  esplanade tune show                           current and recommended values, with reasons
  esplanade tune show --from tune-out           also the gains measured by the lab
  esplanade tune apply                          apply all recommendations without drawbacks
  esplanade tune apply busy_poll rps_cpus --device eth1
  esplanade tune revert                         restore all old values";

#[derive(Subcommand)]
enum Task {
    /// Show each setting's current and recommended value, the reason, and the gain measured here
    #[command(
        after_help = "Example:\n  esplanade tune show --json | jq '.settings[] | select(.verdict == \"proposed\")'"
    )]
    Show(Show),
    /// Apply recommended values and save the old ones
    #[command(after_help = "Example:\n  esplanade tune apply rmem_max wmem_max")]
    Apply(Apply),
    /// Restore the old values
    #[command(after_help = "Example:\n  esplanade tune revert rmem_max")]
    Revert(Revert),
}

/// Which devices are meant.
#[derive(Args)]
struct Devices {
    /// Device to tune; may be repeated [default: devices of the default routes]
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// The gateway's TUN device
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TUN)]
    tun: String,
}

/// Where changes are remembered.
#[derive(Args)]
struct Memory {
    /// File with the old values
    #[arg(long, value_name = "PATH", default_value = state::DEFAULT_STATE_FILE)]
    state: PathBuf,
}

#[derive(Args)]
struct Show {
    #[command(flatten)]
    devices: Devices,
    #[command(flatten)]
    memory: Memory,
    /// Folder with records of `esplanade lab run tune` [default: ./tune-out, if it exists]
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Apply {
    /// Settings to apply [default: all recommendations without drawbacks]
    names: Vec<String>,
    #[command(flatten)]
    devices: Devices,
    #[command(flatten)]
    memory: Memory,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Revert {
    /// Settings to restore [default: all that were changed]
    names: Vec<String>,
    #[command(flatten)]
    memory: Memory,
    /// Restore even values that were changed by others since
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(options: &TuneOptions) -> Result<(), Failure> {
    let host = Machine::this();
    match &options.task {
        Task::Show(show) => print(&shown(&host, show)?),
        Task::Apply(apply) => print_outcomes(&applied(&host, apply)?, apply.json),
        Task::Revert(revert) => print_outcomes(&reverted(&host, revert)?, revert.json),
    }
}

fn shown(host: &Machine, show: &Show) -> Result<String, Failure> {
    let devices = show.devices.chosen(host)?;
    let gains = Gains::find(show.from.as_deref(), &here(host))?;
    // Without permission to read the state file, the earlier values are left out; everything else is still shown.
    let mut state = State::load(&show.memory.state, &boot(host)).unwrap_or_default();
    let scope = show.devices.scope(host, &devices);
    let report = Report {
        settings: scope.rows(&mut state, gains.as_ref()),
        gains_from: gains
            .as_ref()
            .map(|gains| gains.folder.display().to_string()),
        gains_elsewhere: gains.and_then(|gains| gains.elsewhere),
        devices: devices.clone(),
    };
    if show.json {
        report.json().map_err(Failure::new)
    } else {
        Ok(report.text())
    }
}

fn applied(host: &Machine, apply: &Apply) -> Result<Vec<Outcome>, Failure> {
    let devices = apply.devices.chosen(host)?;
    let path = &apply.memory.state;
    let names = known(&apply.names)?;
    let _lock = state::lock(path).map_err(|error| unwritable(path, &error))?;
    let mut state = State::load(path, &boot(host)).map_err(|error| unreadable(path, &error))?;
    let rows = apply.devices.scope(host, &devices).rows(&mut state, None);
    let rows = if names.is_empty() {
        of_verdict(rows, Assessment::Proposed)
    } else {
        of_names(rows, &names)?
    };
    change::apply(host, path, &mut state, &rows).map_err(|error| unwritable(path, &error))
}

fn reverted(host: &Machine, revert: &Revert) -> Result<Vec<Outcome>, Failure> {
    let path = &revert.memory.state;
    let names = known(&revert.names)?;
    let exists = path.try_exists();
    if !exists.map_err(|error| unreadable(path, &error))? {
        return Ok(Vec::new());
    }
    let _lock = state::lock(path).map_err(|error| unwritable(path, &error))?;
    let mut state = State::load(path, &boot(host)).map_err(|error| unreadable(path, &error))?;
    let outcomes = change::revert(host, &mut state, &names, revert.force);
    state.save(path).map_err(|error| unwritable(path, &error))?;
    Ok(outcomes)
}

/// Prints each outcome; fails if any of them failed.
fn print_outcomes(outcomes: &[Outcome], json: bool) -> Result<(), Failure> {
    if json {
        print(&(serde_json::to_string_pretty(outcomes).map_err(Failure::new)? + "\n"))?;
    } else if outcomes.is_empty() {
        print("nothing to change\n")?;
    } else {
        let lines = outcomes.iter().map(|one| format!("{one}\n"));
        print(&lines.collect::<String>())?;
    }
    match outcomes.iter().filter(|one| one.failed()).count() {
        0 => Ok(()),
        count => Err(Failure::new(format!(
            "{count} of {} were not changed",
            outcomes.len()
        ))),
    }
}

impl Devices {
    fn chosen(&self, host: &Machine) -> Result<Vec<String>, Failure> {
        if self.devices.is_empty() {
            return Ok(outer_devices(host));
        }
        let there = host.list("/sys/class/net");
        match self.devices.iter().find(|device| !there.contains(device)) {
            Some(device) => Err(Failure::new(format!("there is no device `{device}` here"))),
            None => Ok(self.devices.clone()),
        }
    }

    fn scope<'a>(&'a self, host: &'a Machine, devices: &'a [String]) -> Scope<'a> {
        Scope {
            host,
            devices,
            tun: &self.tun,
        }
    }
}

/// Checks that all names are those of settings.
fn known(names: &[String]) -> Result<Vec<&'static str>, Failure> {
    let find = |name: &String| match table::find(name) {
        Some(setting) => Ok(setting.name),
        None => Err(Failure::new(no_such(name))),
    };
    names.iter().map(find).collect()
}

fn no_such(name: &str) -> String {
    match ipsec::setkey::nearest(name, table::SETTINGS.iter().map(|one| one.name)) {
        Some(near) => format!("there is no setting `{name}`; did you mean `{near}`?"),
        None => format!("there is no setting `{name}`: `esplanade tune show` lists them"),
    }
}

fn of_verdict(rows: Vec<Row>, verdict: Assessment) -> Vec<Row> {
    let mut rows = rows;
    rows.retain(|row| row.verdict == verdict);
    rows
}

fn of_names(mut rows: Vec<Row>, names: &[&str]) -> Result<Vec<Row>, Failure> {
    rows.retain(|row| names.contains(&row.name));
    let refusal = rows.iter().find_map(|row| match row.verdict {
        Assessment::Absent => Some(format!(
            "`{}` does not exist on this kernel or these devices",
            row.name
        )),
        Assessment::Informational => Some(format!(
            "`{}` is shown only, never changed: {}",
            row.name, row.reason
        )),
        _ => None,
    });
    refusal.map_or(Ok(rows), |refusal| Err(Failure::new(refusal)))
}

/// Identifies the boot.
fn boot(host: &dyn Host) -> String {
    value(host, "/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

fn here(host: &dyn Host) -> Here {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    Here {
        // The lab writes the same word where the kernel does not name the processor.
        processor: name.unwrap_or_else(|| "unknown".to_owned()),
        kernel: value(host, "/proc/sys/kernel/osrelease").unwrap_or_default(),
    }
}

fn value(host: &dyn Host, path: &str) -> Option<String> {
    match host.read(&Target::file(path.to_owned())) {
        Reading::Value(text) => Some(text),
        _ => None,
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!(
        "cannot write {}: {error}. Nothing was changed; run as root (`sudo esplanade tune …`), or choose another \
         file with --state",
        path.display()
    ))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!(
        "cannot read {}: {error}; it is root's",
        path.display()
    ))
}

#[cfg(test)]
mod tests;
