//! A sampled profile, as the study of 2009 took one with oprofile: `perf` looks at every processor some hundred times a
//! second by a software clock, which needs no counters of the hardware, and [`attribute`] assigns each sample to an
//! owner.
//!
//! ```text
//! perf record (switched on and off by its control pipe, so that the window is that of the load)
//!      └─► perf script ─► samples ─► who × place, as shares of all processors' time ─► readings
//!                                └─► folded stacks beside the records, for flame graphs
//! ```
//!
//! Sampling takes a percent or two itself, so a trial under it is an extra one and never among the measured.

mod attribute;
mod samples;
mod work_kind;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::machines::machines;
use super::readings::{Meter, MeterContext, Readings};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::gateway::Side;
use crate::host::{Command, Host, Process};
use crate::testbed::Topology;

pub(crate) use attribute::OWNERS;
use attribute::ProcessRoles;
pub use work_kind::WORK_KINDS;

/// `profile.<who>.<place>_ratio`, `profile.idle_ratio`, `profile.samples_count`, and the busiest processor's
/// `profile.busiest.<who>_ratio`: shares of all processors of all machines.
#[derive(Default)]
pub struct Profile {
    running: Vec<Recording>,
}

/// One `perf record`.
struct Recording {
    process: Box<dyn Process>,
    folder: PathBuf,
    /// Which of the hosts it runs on.
    machine: usize,
}

/// To start, and to be switched on or off.
const PERF_TIMEOUT: Duration = Duration::from_secs(20);
/// To write down what was sampled.
const PERF_STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// To find the names of all addresses.
const PERF_SCRIPT_TIMEOUT: Duration = Duration::from_secs(300);

impl Meter for Profile {
    fn id(&self) -> &'static str {
        "profile"
    }

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        machines(topology)
            .into_iter()
            .try_for_each(|(_, host)| possible(host))
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        self.running.clear();
        for (machine, (_, host)) in machines(context.topology).into_iter().enumerate() {
            self.running.push(start(host, machine)?);
        }
        let hosts = machines(context.topology);
        let mut running = self.running.iter_mut();
        running.try_for_each(|recording| recording.switch("enable", hosts[recording.machine].1))
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        let hosts = machines(context.topology);
        for recording in &mut self.running {
            recording.switch("disable", hosts[recording.machine].1)?;
        }
        let mut all = attribute::SampleCounts::default();
        for recording in std::mem::take(&mut self.running) {
            let host = hosts[recording.machine].1;
            let roles = roles(context, host, hosts.len() > 1);
            let machine = recording.machine;
            all.add(&recording.script(host)?, &roles, machine);
        }
        let name = format!("stacks/{}.folded", context.case);
        context.topology.left.write_file(&name, &all.folded())?;
        Ok(all.readings())
    }
}

/// Tries it, for a fraction of a second.
fn possible(host: &dyn Host) -> Result<(), Absence> {
    const REMEDY: &str = "apt-get install linux-perf";
    let absent = |why: String, remedy: &str| Absence::new(why, remedy);
    if !host.has("perf").unwrap_or(false) {
        return Err(absent("perf is not installed".into(), REMEDY));
    }
    let place = host.scratch().map(|folder| folder.join("probe.data"));
    let place = place.map_err(|fault| absent(fault.to_string(), REMEDY))?;
    let probe = recorder(&place, 49).arg("--").arg("true");
    let tried = host.must(&probe, PERF_TIMEOUT);
    tried.map(drop).map_err(|fault| {
        absent(
            format!("perf may not look at all processors ({fault})"),
            "run the lab as root, or: sysctl kernel.perf_event_paranoid=-1 kernel.kptr_restrict=0",
        )
    })
}

/// Neither build ids nor a cache of programs: nothing may stay in the user's home.
fn recorder(place: &Path, hertz: usize) -> Command {
    Command::line(&format!(
        "perf record -q -B -N -e cpu-clock -F {hertz} -a -g -o"
    ))
    .arg(place)
}

fn start(host: &dyn Host, machine: usize) -> Result<Recording, Fault> {
    let folder = host.scratch()?;
    let pipes = [folder.join("perf.control"), folder.join("perf.answer")];
    let made = Command::line("mkfifo").arg(&pipes[0]).arg(&pipes[1]);
    host.must(&made, PERF_TIMEOUT)?;
    let control = format!("fifo:{},{}", pipes[0].display(), pipes[1].display());
    let hertz = hertz(&host.read(Path::new("/proc/stat"))?);
    let command = recorder(&folder.join("perf.data"), hertz)
        .arg("--delay=-1")
        .arg(format!("--control={control}"));
    Ok(Recording {
        process: host.start(&command)?,
        folder,
        machine,
    })
}

/// Two processors or ten: samples for a few seconds must stay few enough to be named in as long.
fn hertz(stat: &str) -> usize {
    let processor = |line: &&str| {
        let number = line.strip_prefix("cpu").unwrap_or_default();
        number.starts_with(|letter: char| letter.is_ascii_digit())
    };
    let processors = stat.lines().filter(processor).count().max(1);
    (4000 / processors).clamp(19, 499)
}

impl Recording {
    /// Returns when sampling was switched.
    fn switch(&mut self, word: &str, host: &dyn Host) -> Result<(), Fault> {
        let both = format!(
            "printf '{word}\\n' > {0}/perf.control && head -c 4 {0}/perf.answer > /dev/null",
            self.folder.display()
        );
        let switched = host.must(&Command::line("sh -c").arg(both), PERF_TIMEOUT);
        switched.map(drop).map_err(|fault| {
            let said = self.process.output();
            let last = said.lines().last().unwrap_or("it said nothing");
            Fault::failed(format!("perf record did not {word} ({fault}): {last}"))
        })
    }

    /// Ends it and gives its samples as text.
    fn script(mut self, host: &dyn Host) -> Result<String, Fault> {
        self.process.stop(PERF_STOP_TIMEOUT)?;
        let fields = "perf script --no-inline -F comm,pid,tid,cpu,ip,sym,dso -i";
        let data = self.folder.join("perf.data");
        let text = host.must(&Command::line(fields).arg(&data), PERF_SCRIPT_TIMEOUT)?;
        host.must(&Command::line("rm -f").arg(&data), PERF_TIMEOUT)?;
        Ok(text)
    }
}

/// Who is who on the machine of a host.
fn roles(context: &MeterContext<'_>, host: &dyn Host, apart: bool) -> ProcessRoles {
    let there = |side: Side| !apart || context.topology.gateway(side).name() == host.name();
    let gateways = context.tunnel.gateways().into_iter();
    ProcessRoles {
        gateways: gateways
            .filter(|gateway| there(gateway.side))
            .map(|gateway| (i64::from(gateway.pid), gateway.side))
            .collect(),
        machinery: context
            .topology
            .machinery
            .iter()
            .map(|process| i64::from(process.pid()))
            .collect(),
        carried_by_processes: !context.tunnel.gateways().is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_processors_are_looked_at_less_often() {
        let machine = |processors: usize| {
            let lines = (0..processors).map(|number| format!("cpu{number} 1 2 3\n"));
            hertz(&format!(
                "cpu  1 2 3\n{}intr 5\n",
                lines.collect::<String>()
            ))
        };
        assert_eq!([2, 16, 400].map(machine), [499, 250, 19]);
    }

    #[test]
    fn nothing_is_left_in_the_users_home() {
        let command = recorder(Path::new("/run/x/perf.data"), 499).to_string();
        assert!(command.contains(" -B -N "), "{command}");
    }
}
