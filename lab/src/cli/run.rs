//! `run`: from the arguments and the study to the cases that are measured.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;

use super::guest;
use super::measure::{Machines, conclude, measure};
use crate::absence::Absence;
use crate::case::Case;
use crate::host::program;
use crate::outdir::{self, ORDER, RunRequest};
use crate::plan::Plan;
use crate::progress::length;
use crate::report::paper::{Claim, MachineClass, Paper};
use crate::spec::{Preset, Programs, Spec};
use crate::stop::INTERRUPTED_EXIT;
use crate::testbed::{Quotas, isolate};
use crate::{report, spec, study};

#[derive(clap::Args)]
pub(super) struct Run {
    /// A study's name (see `list`) or a TOML file
    #[arg(
        required_unless_present = "resume",
        default_value = "",
        hide_default_value = true
    )]
    study: String,
    /// Resume an interrupted run; trials on record are not repeated
    #[arg(long, value_name = "DIR", exclusive = true)]
    resume: Option<PathBuf>,
    /// As many rounds as fit into this time, as 90s, 60m or 2h
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "rounds")]
    budget: Option<Duration>,
    /// Folder for the results; an earlier result there is renamed [default: STUDY-out]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seconds of load in each trial
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    duration: Option<u32>,
    /// At most 30 seconds: a smoke test
    #[arg(long, group = "preset")]
    smoke: bool,
    /// About two minutes
    #[arg(long, group = "preset")]
    quick: bool,
    /// At most 100 minutes
    #[arg(long, group = "preset")]
    standard: bool,
    /// With the durations of the study
    #[arg(long, group = "preset")]
    faithful: bool,
    /// Number of rounds; each measures every contender once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Seed of the order of trials, to repeat a run exactly
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Measure only contenders whose id contains this word; may be given several times
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Measure only what this class of machines can answer of the paper: many-processors, kernel-ipsec or two-hosts
    #[arg(long = "for", value_name = "CLASS", value_parser = machine_class)]
    machine: Option<MachineClass>,
    /// The program `esplanade` to measure [default: the one beside esplanade-lab, else from PATH]
    #[arg(long, value_name = "FILE")]
    esplanade: Option<PathBuf>,
    /// Run on the machines of this file, which has [testbed.hosts], and leave out what only namespaces can do
    #[arg(long, value_name = "FILE", conflicts_with = "guest")]
    hosts: Option<PathBuf>,
    /// ssh configuration for the hosts of the spec [default: the user's]
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// Run in a QEMU guest whose kernel has IPsec and WireGuard; results are marked as emulated
    #[arg(long, conflicts_with = "ssh_config")]
    guest: bool,
    /// Set by the lab when it starts itself in the guest
    #[arg(long, hide = true)]
    inside_guest: bool,
}

impl Run {
    pub(super) fn go(self) -> Result<ExitCode, String> {
        if let Some(dir) = &self.resume {
            let order = RunRequest::read(dir)?;
            return Run::again(&order)?.carry_out(&order.spec, Some(dir));
        }
        let text = self.text()?;
        self.carry_out(&text, None)
    }

    /// The run that was ordered in a folder.
    fn again(order: &RunRequest) -> Result<Run, String> {
        #[derive(Parser)]
        struct Again {
            #[command(flatten)]
            run: Run,
        }
        let line = std::iter::once("run").chain(order.arguments.iter().map(String::as_str));
        let again = Again::try_parse_from(line);
        again.map(|again| again.run).map_err(|error| {
            format!("{ORDER} in this folder was written by another version of the lab: {error}")
        })
    }

    fn carry_out(self, text: &str, resumed: Option<&PathBuf>) -> Result<ExitCode, String> {
        let mut spec = self.spec(text)?;
        let out = self
            .out
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("{}-out", spec.study)));
        let programs = self.programs()?;
        if self.inside_guest {
            return self.inside(&spec, programs, resumed);
        }
        for skipped in &spec.skipped {
            eprintln!("skipped: {skipped}");
        }
        if let Some(less) = &spec.leaves_out {
            eprintln!("this preset omits: {less}");
        }
        let cases = spec.cases(&programs).map_err(|fault| fault.to_string())?;
        if let Some(budget) = self.budget {
            spec.rounds = fitting(budget, &cases)?;
        }
        let typed = std::env::args().skip_while(|word| word != "run").skip(1);
        let order = match resumed {
            Some(dir) => RunRequest::read(dir)?,
            None => RunRequest::new(typed, text, spec.rounds, spec.seed.unwrap_or_default()),
        };
        // Remote hosts are reached from the user's network namespace; a guest creates its own namespaces.
        let mut quotas = None;
        if spec.hosts.is_none() && !spec.guest {
            quotas = quotas_for(&cases);
            isolate::enter()?;
        }
        let out = match resumed {
            Some(dir) => outdir::reopen(dir)?,
            None => outdir::prepare(&out)?,
        };
        if let Some(moved) = &out.moved {
            eprintln!("the earlier result was renamed to {}", moved.display());
        }
        if resumed.is_none() {
            order.keep(&out.path)?;
        }
        let repeat = self.repeat(&spec);
        let summary = if spec.guest {
            guest::measure(&order, &out, &programs, &repeat)?
        } else {
            let machines = Machines {
                ssh_config: self.ssh_config,
                programs,
                emulated: false,
                quotas,
            };
            measure(&spec, &cases, &out, machines, repeat)?
        };
        let table = report::text(&summary.records, &out.path);
        conclude(&summary, &table, &out)
    }

    /// The run of a lab in the guest: the lab outside reads the records and reports.
    fn inside(
        &self,
        spec: &Spec,
        programs: Programs,
        folder: Option<&PathBuf>,
    ) -> Result<ExitCode, String> {
        let folder = folder.ok_or("--inside-guest needs --resume")?;
        let cases = spec.cases(&programs).map_err(|fault| fault.to_string())?;
        let quotas = quotas_for(&cases);
        isolate::enter()?;
        let machines = Machines {
            ssh_config: None,
            programs,
            emulated: true,
            quotas,
        };
        let out = outdir::reopen(folder)?;
        let summary = measure(spec, &cases, &out, machines, self.repeat(spec))?;
        Ok(if summary.interrupted {
            ExitCode::from(INTERRUPTED_EXIT as u8)
        } else {
            ExitCode::SUCCESS
        })
    }

    fn text(&self) -> Result<String, String> {
        let text = match study::find(&self.study) {
            Some(study) => study.text.to_owned(),
            None => self.own_spec()?,
        };
        let Some(file) = &self.hosts else {
            return Ok(text);
        };
        let name = file.display().to_string();
        let hosts =
            fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
        spec::joined(&text, &hosts, &name).map_err(|error| error.to_string())
    }

    fn spec(&self, text: &str) -> Result<Spec, String> {
        let read = match self.hosts {
            Some(_) => Spec::read_for_hosts(text, &self.study, self.preset()),
            None => Spec::read_as(text, &self.study, self.preset()),
        };
        let mut spec = read.map_err(|error| error.to_string())?;
        spec.guest |= self.guest;
        if spec.guest && spec.hosts.is_some() {
            return Err("--guest and [testbed.hosts] exclude each other".into());
        }
        spec.rounds = self.rounds.map_or(spec.rounds, |rounds| rounds as usize);
        spec.duration = self
            .duration
            .map_or(spec.duration, |seconds| Duration::from_secs(seconds.into()));
        spec.seed = Some(self.seed.or(spec.seed).unwrap_or_else(drawn_seed));
        if !self.only.is_empty() {
            spec.cells
                .retain(|cell| self.only.iter().any(|word| cell.id.contains(word)));
        }
        if let Some(class) = self.machine {
            only_for(class, &mut spec)?;
        }
        if spec.cells.is_empty() {
            Err(format!(
                "no contender's id contains {}: see `esplanade lab list STUDY`",
                self.only.join(" or ")
            ))
        } else {
            Ok(spec)
        }
    }

    fn preset(&self) -> Option<Preset> {
        let asked = [
            (self.smoke, Preset::Smoke),
            (self.quick, Preset::Quick),
            (self.standard, Preset::Standard),
            (self.faithful, Preset::Faithful),
        ];
        let asked = asked.into_iter().find(|(asked, _)| *asked);
        asked.map(|(_, preset)| preset)
    }

    fn own_spec(&self) -> Result<String, String> {
        let names: Vec<&str> = study::STUDIES.iter().map(|study| study.name).collect();
        if !self.study.ends_with(".toml") {
            return Err(format!(
                "there is no study `{}`. Known: {}; or name a TOML file",
                self.study,
                names.join(", ")
            ));
        }
        fs::read_to_string(&self.study)
            .map_err(|error| format!("cannot read {}: {error}", self.study))
    }

    fn programs(&self) -> Result<Programs, String> {
        let lab = std::env::current_exe()
            .map_err(|error| format!("cannot find the lab's own program: {error}"))?;
        Ok(Programs {
            esplanade: self.esplanade()?,
            lab,
        })
    }

    /// Resolved before the lab enters its namespaces, where parts of the path may be hidden.
    fn esplanade(&self) -> Result<Option<PathBuf>, String> {
        if let Some(path) = self.esplanade.as_ref().filter(|_| !self.inside_guest) {
            let found = path.canonicalize();
            return found
                .map(Some)
                .map_err(|error| format!("--esplanade {}: {error}", path.display()));
        }
        let beside = std::env::current_exe()
            .ok()
            .and_then(|own| Some(own.parent()?.join("esplanade")));
        Ok(beside
            .filter(|path| path.is_file())
            .or_else(|| program("esplanade")))
    }

    fn repeat(&self, spec: &Spec) -> String {
        let only: String = self
            .only
            .iter()
            .map(|word| format!(" --only {word}"))
            .collect();
        let preset = self
            .preset()
            .map_or_else(String::new, |preset| format!(" --{}", preset.name()));
        let config = self.ssh_config.as_ref().map_or_else(String::new, |file| {
            format!(" --ssh-config {}", file.display())
        });
        let hosts = self
            .hosts
            .as_ref()
            .map_or_else(String::new, |file| format!(" --hosts {}", file.display()));
        let class = self
            .machine
            .map_or_else(String::new, |class| format!(" --for {}", class.name()));
        let guest = if self.guest { " --guest" } else { "" };
        let (seconds, seed) = (spec.duration.as_secs(), spec.seed.unwrap_or_default());
        format!(
            "esplanade lab run {}{preset} --rounds {} --duration {seconds} --seed {seed}{only}{class}{hosts}{config}{guest}",
            self.study, spec.rounds
        )
    }
}

fn machine_class(text: &str) -> Result<MachineClass, String> {
    let names = MachineClass::NAMES.map(|(name, _)| name);
    MachineClass::named(text).ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// Keeps the cells that the paper's claims for this class of machines need.
fn only_for(class: MachineClass, spec: &mut Spec) -> Result<(), String> {
    let paper = Paper::of(&spec.study);
    let claims = paper.map(|paper| paper.claim).unwrap_or_default();
    let of_class: Vec<&Claim> = claims
        .iter()
        .filter(|claim| claim.machine == class)
        .collect();
    spec.cells.retain(|cell| {
        let factors = cell.factors();
        of_class.iter().any(|claim| claim.needs(&cell.id, &factors))
    });
    if spec.cells.is_empty() {
        return Err(format!(
            "no claim of {} needs {}; leave out --for, or choose a preset that keeps the parts in question",
            spec.study,
            class.has()
        ));
    }
    Ok(())
}

/// The cleanup daemon of the control groups must outlive the lab, so it starts before the lab enters its namespaces.
fn quotas_for(cases: &[Case]) -> Option<Result<Quotas, Absence>> {
    let asked = cases.iter().any(|case| case.topology_spec.share.is_some());
    asked.then(Quotas::open)
}

/// How many rounds of these cases fit into the time.
fn fitting(budget: Duration, cases: &[Case]) -> Result<usize, String> {
    let all: Vec<usize> = (0..cases.len()).collect();
    let round = Plan::new(&all, 1, 0).estimate(|case| cases[case].load.takes(cases[case].duration));
    match budget.as_secs_f64() / round.as_secs_f64().max(f64::MIN_POSITIVE) {
        rounds if rounds < 1.0 => Err(format!(
            "one round takes about {}, more than the budget: select contenders with --only, or shorten each trial with --duration",
            length(round)
        )),
        rounds => Ok((rounds as usize).min(10_000)),
    }
}

/// Reads `90s`, `60m`, `2h`.
fn time(text: &str) -> Result<Duration, String> {
    let units = [('s', 1.0), ('m', 60.0), ('h', 3600.0)];
    let found = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, seconds)));
    let seconds = found.and_then(|(number, seconds)| Some(number.parse::<f64>().ok()? * seconds));
    seconds
        .filter(|seconds| (1.0..=1e7).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a number with its unit, as 90s, 60m or 2h".to_owned())
}

/// Any number is fine if it is recorded; short enough to type.
fn drawn_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |since| u64::from(since.subsec_nanos()) ^ since.as_secs()) % 1_000_000
}
