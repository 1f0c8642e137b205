//! The program `esplanade-lab`, reached as `esplanade lab …`: the command line, and nothing else.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};

use lab::capture::{Album, CAPTURE, PROFILE};
use lab::experiment::{Case, Experiment, Summary};
use lab::host::program;
use lab::outdir::{self, ORDER, Order, OutDir, PAGE, README, RECORDS, TABLE};
use lab::plan::Plan;
use lab::progress::{Progress, length};
use lab::record::{self, Journal, Outcome, Provenance, Record};
use lab::report::findings::Findings;
use lab::spec::{Preset, Programs, Spec};
use lab::stop::{INTERRUPTED_EXIT, Stop};
use lab::testbed::{Namespaces, Testbed, isolate};
use lab::tool::Tool;
use lab::{doctor, meter, report, study};

/// Measure plain IP, Esplanade and its rivals under one method, and say how sure we are.
#[derive(Parser)]
#[command(
    name = "esplanade lab",
    bin_name = "esplanade lab",
    version,
    after_help = "Example: esplanade lab run demo --out demo-out"
)]
struct Line {
    #[command(subcommand)]
    act: Act,
}

#[derive(Subcommand)]
enum Act {
    /// List the studies and their contenders
    List,
    /// Run a study, or an experiment of your own
    #[command(
        after_help = "Example: esplanade lab run demo --rounds 5 --duration 10 --out results/monday"
    )]
    Run(Run),
    /// Write the page of a run from its records, and print its table
    #[command(after_help = "Example: esplanade lab report demo-out")]
    Report {
        /// The folder of the run
        dir: PathBuf,
        /// Where the page goes [default: DIR/report.html]
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Say what changed between two runs beyond the noise
    #[command(after_help = "Example: esplanade lab compare before-out after-out")]
    Compare {
        /// The folder of the earlier run
        a: PathBuf,
        /// The folder of the later run
        b: PathBuf,
    },
    /// Print the records of a run for other programs
    #[command(after_help = "Example: esplanade lab export demo-out --csv > demo.csv")]
    Export {
        /// The folder of the run
        dir: PathBuf,
        /// One line for each trial, columns by name (the default)
        #[arg(long, conflicts_with = "json")]
        csv: bool,
        /// One array of flat objects
        #[arg(long)]
        json: bool,
    },
    /// The lab's own small programs, which it starts on the hosts of a testbed
    #[command(hide = true)]
    Tool {
        #[command(subcommand)]
        tool: Tool,
    },
    /// Say what this machine can and cannot measure, and how to mend it
    Doctor {
        /// One array of findings
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
struct Run {
    /// A study's name (see `list`) or a TOML file
    #[arg(
        required_unless_present = "resume",
        default_value = "",
        hide_default_value = true
    )]
    study: String,
    /// Go on with a run that was cut short: what is recorded there is not run again
    #[arg(long, value_name = "DIR", exclusive = true)]
    resume: Option<PathBuf>,
    /// As many rounds as fit into this time, as 90s, 60m or 2h
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "rounds")]
    budget: Option<Duration>,
    /// Folder for the results; an earlier result there is moved aside [default: STUDY-out]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seconds of load in each trial
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    duration: Option<u32>,
    /// At most half a minute: does it run at all
    #[arg(long, group = "preset")]
    smoke: bool,
    /// About two minutes
    #[arg(long, group = "preset")]
    quick: bool,
    /// At most 100 minutes
    #[arg(long, group = "preset")]
    standard: bool,
    /// With the study's own durations
    #[arg(long, group = "preset")]
    faithful: bool,
    /// How often each contender is measured
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Seed of the order of trials, to repeat a run exactly
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Measure only contenders whose id contains this word; may be given several times
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// The program `esplanade` to measure [default: the one beside esplanade-lab, else from PATH]
    #[arg(long, value_name = "FILE")]
    esplanade: Option<PathBuf>,
}

/// Exit code when some trial failed although its contender was there, or nothing could be measured at all.
const SOME_FAILED: u8 = 3;
/// Packets of the protected wire kept for a packet analyser.
const ALBUM: usize = 2000;

fn main() -> ExitCode {
    let done = match Line::parse().act {
        Act::List => list(),
        Act::Run(run) => run.go(),
        Act::Report { dir, html } => print_report(&dir, html),
        Act::Compare { a, b } => compare(&a, &b),
        Act::Export { dir, json, .. } => export(&dir, json),
        Act::Doctor { json } => examine(json),
        Act::Tool { tool } => tool
            .run()
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
    };
    done.unwrap_or_else(|why| {
        eprintln!(
            "{}",
            if why.starts_with("error: ") {
                why
            } else {
                format!("error: {why}")
            }
        );
        ExitCode::FAILURE
    })
}

fn list() -> Result<ExitCode, String> {
    for study in &study::STUDIES {
        let spec = Spec::read(study.text, study.name).map_err(|error| error.to_string())?;
        println!("{}: {}", spec.study, spec.title);
        println!(
            "    {} rounds of {} s",
            spec.rounds,
            spec.duration.as_secs()
        );
        for id in spec.contenders() {
            println!("    {id}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_report(dir: &Path, html: Option<PathBuf>) -> Result<ExitCode, String> {
    let (records, torn) = read(dir)?;
    print!("{}", report::text(&records, dir));
    let place = html.unwrap_or_else(|| dir.join(PAGE));
    // A run that was killed at once has no page, and that is no error.
    let Some(page) = report::html(&records, torn, dir) else {
        return Ok(ExitCode::SUCCESS);
    };
    write_page(&place, &page)?;
    eprintln!("the page: {}", place.display());
    Ok(ExitCode::SUCCESS)
}

/// The page is made anew from the records at any time, so an earlier one is replaced, but never by half of a new one.
fn write_page(place: &Path, page: &str) -> Result<(), String> {
    let cannot = |error| format!("cannot write {}: {error}", place.display());
    let mut half = place.as_os_str().to_owned();
    half.push(".part");
    let half = PathBuf::from(half);
    let written = fs::write(&half, page).and_then(|()| fs::rename(&half, place));
    written.map_err(|error| {
        let _ = fs::remove_file(&half);
        format!(
            "{}. `esplanade lab report DIR --html FILE` writes it elsewhere",
            cannot(error)
        )
    })
}

fn read(dir: &Path) -> Result<(Vec<Record>, Option<String>), String> {
    let (records, torn) = record::read_all(&dir.join(RECORDS))?;
    if let Some(note) = &torn {
        eprintln!("note: {note}");
    }
    Ok((records, torn))
}

fn compare(a: &Path, b: &Path) -> Result<ExitCode, String> {
    let (before, after) = (read(a)?.0, read(b)?.0);
    let nothing = |dir: &Path| {
        format!(
            "{} holds no record: there is nothing to compare",
            dir.display()
        )
    };
    let before = Findings::of(&before).ok_or_else(|| nothing(a))?;
    let after = Findings::of(&after).ok_or_else(|| nothing(b))?;
    say(&report::compare::text(&before, &after))
}

fn export(dir: &Path, json: bool) -> Result<ExitCode, String> {
    let records = read(dir)?.0;
    say(&match json {
        true => report::export::json(&records),
        false => report::export::csv(&records),
    })
}

/// Prints to standard output. Whoever reads may have had enough (`| head`): that is no error.
fn say(text: &str) -> Result<ExitCode, String> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write the output: {error}"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn examine(json: bool) -> Result<ExitCode, String> {
    let findings = doctor::examine();
    let (text, can_run) = doctor::text(&findings);
    say(&if json { doctor::json(&findings) } else { text })?;
    Ok(if can_run {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Run {
    fn go(self) -> Result<ExitCode, String> {
        if let Some(dir) = &self.resume {
            let order = Order::read(dir)?;
            return Run::again(&order)?.carry_out(&order.spec, Some(dir));
        }
        let text = self.text()?;
        self.carry_out(&text, None)
    }

    /// The run that was ordered in a folder.
    fn again(order: &Order) -> Result<Run, String> {
        #[derive(Parser)]
        struct Again {
            #[command(flatten)]
            run: Run,
        }
        let line = std::iter::once("run").chain(order.arguments.iter().map(String::as_str));
        let again = Again::try_parse_from(line);
        again.map(|again| again.run).map_err(|error| {
            format!("the folder's {ORDER} is of another version of the lab: {error}")
        })
    }

    fn carry_out(self, text: &str, resumed: Option<&PathBuf>) -> Result<ExitCode, String> {
        let mut spec = self.spec(text)?;
        let out = self
            .out
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("{}-out", spec.study)));
        let programs = self.programs()?;
        for skipped in &spec.skipped {
            eprintln!("left out: {skipped}");
        }
        if let Some(less) = &spec.leaves_out {
            eprintln!("this preset leaves out: {less}");
        }
        let cases = spec.cases(&programs).map_err(|fault| fault.to_string())?;
        if let Some(budget) = self.budget {
            spec.rounds = fitting(budget, &cases)?;
        }
        let typed = std::env::args().skip_while(|word| word != "run").skip(1);
        let order = Order::new(typed, text, spec.rounds, spec.seed.unwrap_or_default());
        isolate::enter()?;
        let out = match resumed {
            Some(dir) => outdir::reopen(dir)?,
            None => outdir::prepare(&out)?,
        };
        if let Some(moved) = &out.moved {
            eprintln!("the earlier result is now {}", moved.display());
        }
        if resumed.is_none() {
            order.keep(&out.path)?;
        }
        let summary = measure(&spec, &cases, &out, self.repeat(&spec))?;
        let table = report::text(&summary.records, &out.path);
        conclude(&summary, &table, &out)
    }

    fn text(&self) -> Result<String, String> {
        match study::find(&self.study) {
            Some(study) => Ok(study.text.to_owned()),
            None => self.own_spec(),
        }
    }

    fn spec(&self, text: &str) -> Result<Spec, String> {
        let mut spec =
            Spec::read_as(text, &self.study, self.preset()).map_err(|error| error.to_string())?;
        spec.rounds = self.rounds.map_or(spec.rounds, |rounds| rounds as usize);
        spec.duration = self
            .duration
            .map_or(spec.duration, |seconds| Duration::from_secs(seconds.into()));
        spec.seed = Some(self.seed.or(spec.seed).unwrap_or_else(drawn_seed));
        if !self.only.is_empty() {
            spec.cells
                .retain(|cell| self.only.iter().any(|word| cell.id.contains(word)));
        }
        match spec.cells.is_empty() {
            true => Err(format!(
                "no contender's id contains {}: see `esplanade lab list`",
                self.only.join(" or ")
            )),
            false => Ok(spec),
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

    /// Looked for before the lab moves into its namespaces: a path may lead through what is hidden there.
    fn esplanade(&self) -> Result<Option<PathBuf>, String> {
        if let Some(path) = &self.esplanade {
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
        let (seconds, seed) = (spec.duration.as_secs(), spec.seed.unwrap_or_default());
        format!(
            "esplanade lab run {}{preset} --rounds {} --duration {seconds} --seed {seed}{only}",
            self.study, spec.rounds
        )
    }
}

/// How many rounds of these cases fit into the time.
fn fitting(budget: Duration, cases: &[Case]) -> Result<usize, String> {
    let all: Vec<usize> = (0..cases.len()).collect();
    let round = Plan::new(&all, 1, 0).estimate(|case| cases[case].duration);
    match budget.as_secs_f64() / round.as_secs_f64().max(f64::MIN_POSITIVE) {
        rounds if rounds < 1.0 => Err(format!(
            "one round takes about {}, more than the budget: leave contenders out with --only, or shorten each trial with --duration",
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

/// Any number will do, as long as it is recorded; short enough to type again.
fn drawn_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |since| u64::from(since.subsec_nanos()) ^ since.as_secs()) % 1_000_000
}

fn measure(spec: &Spec, cases: &[Case], out: &OutDir, repeat: String) -> Result<Summary, String> {
    let stop = Stop::on_signals().map_err(|error| format!("cannot catch signals: {error}"))?;
    let mut testbed = Namespaces::new(&out.path, stop);
    let cannot = |what: &str| {
        let what = out.path.join(what).display().to_string();
        move |error: std::io::Error| format!("cannot write {what}: {error}")
    };
    let earlier = earlier(out)?;
    let mut journal = open_journal(out).map_err(cannot(RECORDS))?;
    // The album of a resumed run is that of its beginning: it is not written twice.
    let mut album = match out.resumed {
        true => None,
        false => Some(Album::create(&out.path, ALBUM, cases.len()).map_err(cannot(CAPTURE))?),
    };
    if !out.resumed {
        fs::write(out.path.join(README), readme(&repeat)).map_err(cannot(README))?;
    }
    let provenance = Provenance {
        command: repeat,
        testbed: testbed.describe(),
        ..Provenance::of_this_machine()
    };
    if let Some(first) = earlier.first() {
        eprintln!("{} records are there already", earlier.len());
        for change in first.provenance.changes(&Provenance {
            versions: first.provenance.versions.clone(),
            ..provenance.clone()
        }) {
            eprintln!("warning: not as it was: {change}");
        }
    }
    let experiment = Experiment {
        study: spec.study.clone(),
        title: spec.title.clone(),
        reference: spec.reference.clone(),
        rounds: spec.rounds,
        seed: spec.seed.unwrap_or_default(),
        cases,
        done: record::done(&earlier),
        testbed: &mut testbed,
        meters: &mut meter::usual(),
        album: album.as_mut(),
        provenance,
        stop,
    };
    let summary = experiment.run(&mut journal, &mut Progress::default());
    let mut summary = summary.map_err(|fault| fault.to_string())?;
    summary.records.splice(0..0, earlier);
    Ok(summary)
}

/// What a resumed run has already.
fn earlier(out: &OutDir) -> Result<Vec<Record>, String> {
    match out.resumed && out.path.join(RECORDS).exists() {
        true => Ok(read(&out.path)?.0),
        false => Ok(Vec::new()),
    }
}

fn open_journal(out: &OutDir) -> io::Result<Journal> {
    let place = out.path.join(RECORDS);
    match out.resumed && place.exists() {
        true => Journal::reopen(&place),
        false => Journal::create(&place),
    }
}

fn conclude(summary: &Summary, table: &str, out: &OutDir) -> Result<ExitCode, String> {
    println!("{table}");
    let kept = fs::write(out.path.join(TABLE), table);
    let (place, count) = (out.path.display(), summary.records.len());
    eprintln!(
        "kept in {place}: {count} record{}",
        if count == 1 { "" } else { "s" }
    );
    if let Some(why) = &summary.not_kept {
        return Err(format!(
            "not all records are on the disk: {why}. The table above is complete"
        ));
    }
    let page = report::html(&summary.records, None, &out.path);
    let page = page.map_or(Ok(()), |page| write_page(&out.path.join(PAGE), &page));
    kept.map_err(|error| format!("cannot write {TABLE}: {error}. The records are complete"))?;
    page.map_err(|why| format!("{why}. The records are complete"))?;
    if summary.interrupted {
        let place = out.path.display();
        eprintln!(
            "interrupted: everything up to then is kept. Go on with: esplanade lab run --resume {place}"
        );
        return Ok(ExitCode::from(INTERRUPTED_EXIT as u8));
    }
    let any =
        |wanted: fn(&Outcome) -> bool| summary.records.iter().any(|record| wanted(&record.outcome));
    let failed = any(|outcome| matches!(outcome, Outcome::Failed { .. }));
    let measured = any(|outcome| matches!(outcome, Outcome::Measured { .. }));
    Ok(match measured && !failed {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(SOME_FAILED),
    })
}

fn readme(repeat: &str) -> String {
    format!(
        "{TABLE}        the table
{PAGE}      the page: charts, tables, what limited each run, where the numbers come from
{RECORDS}    one line of JSON for each trial: `esplanade lab report` needs nothing else
config/          the files each contender was started with
{CAPTURE}     up to {ALBUM} packets of the protected wire, of those suites that Wireshark 4.0 can read
{PROFILE}/       a Wireshark profile with the keys that open them

Look into the protected packets:
    WIRESHARK_CONFIG_DIR={PROFILE} wireshark {CAPTURE}
    WIRESHARK_CONFIG_DIR={PROFILE} tshark -r {CAPTURE} -T fields -e esp.spi -e esp.icv_good -e _ws.col.Info

Run it again:
    {repeat}
"
    )
}
