//! A whole run of an experiment (plan, testbed, check, load, meters, record, report) with fakes: in milliseconds and
//! without root. It tests the decisions of the lab, not a network.

#[path = "experiment/fake.rs"]
mod fake;
#[path = "experiment/soaker.rs"]
mod soaker;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fake::{Behaviour, FakeContender, FakeLoad, FakeTestbed, Shared};
use lab::absence::Absence;
use lab::case::Case;
use lab::contender::Contender;
use lab::experiment::{Experiment, Summary, Watcher};
use lab::fault::Fault;
use lab::meter::{self, IntrusiveMeter, Meter, MeterContext, Readings};
use lab::plan::{Plan, Planned};
use lab::record::{self, Journal, Outcome, Provenance, Record};
use lab::report;
use lab::stage::Stage;
use lab::stop::Stop;
use lab::testbed::{Topology, TopologySpec};

#[derive(Default)]
struct Listener {
    said: Vec<String>,
}

impl Watcher for Listener {
    fn planned(&mut self, plan: &Plan, _estimate: Duration) {
        self.said.push(format!("{} trials", plan.trials.len()));
    }
    fn begins(&mut self, trial: &Planned, label: &str) {
        self.said.push(format!("{} {label}", trial.number));
    }
    fn ended(&mut self, _record: &Record) {}
    fn trouble(&mut self, what: &str) {
        self.said.push(what.into());
    }
}

struct Run {
    summary: Summary,
    said: Vec<String>,
    wire: Shared,
    file: PathBuf,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// The table; no folder holds an order with bars.
fn said(records: &[Record]) -> String {
    report::text(records, Path::new("/nowhere"))
}

fn records_file(name: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!(
        "lab-experiment-{}-{name}.jsonl",
        std::process::id()
    ));
    let _ = fs::remove_file(&file);
    file
}

fn run(name: &str, behaviours: &[Behaviour], rounds: usize) -> Run {
    let file = records_file(name);
    let mut journal = Journal::create(&file).unwrap();
    run_into(&mut journal, file, behaviours, rounds)
}

fn run_into(journal: &mut Journal, file: PathBuf, behaviours: &[Behaviour], rounds: usize) -> Run {
    run_rest(journal, file, behaviours, rounds, BTreeSet::new())
}

fn run_rest(
    journal: &mut Journal,
    file: PathBuf,
    behaviours: &[Behaviour],
    rounds: usize,
    done: BTreeSet<(usize, usize)>,
) -> Run {
    run_under(journal, file, behaviours, rounds, done, &mut [])
}

/// With intrusive meters for every case.
fn run_under(
    journal: &mut Journal,
    file: PathBuf,
    behaviours: &[Behaviour],
    rounds: usize,
    done: BTreeSet<(usize, usize)>,
    intrusive: &mut [(IntrusiveMeter, Box<dyn Meter>)],
) -> Run {
    let asked: Vec<IntrusiveMeter> = intrusive.iter().map(|(intrusive, _)| *intrusive).collect();
    let wire = Shared::default();
    let stop = Stop::never();
    let contender = |behaviour: &Behaviour| {
        Box::new(FakeContender {
            behaviour: *behaviour,
            id: format!("{behaviour:?}").to_lowercase(),
            wire: wire.clone(),
            stop,
        }) as Box<dyn Contender>
    };
    let load = FakeLoad {
        wire: wire.clone(),
        stop,
    };
    let case = |behaviour: &Behaviour| Case {
        id: format!("{behaviour:?}").to_lowercase(),
        label: format!("{behaviour:?}").to_lowercase(),
        ideal_bps: Some(2e8),
        contender: contender(behaviour),
        topology_spec: TopologySpec::default(),
        load: Box::new(load.clone()),
        duration: Duration::from_secs(1),
        factors: BTreeMap::from([("mtu".into(), "1500".into())]),
        intrusive: asked.clone(),
    };
    let cases: Vec<Case> = behaviours.iter().map(case).collect();
    let mut listener = Listener::default();
    let experiment = Experiment {
        study: "experiment".into(),
        title: "A whole experiment".into(),
        reference: cases[0].contender.id().into(),
        rounds,
        seed: 11,
        cases: &cases,
        done,
        testbed: &mut FakeTestbed { wire: wire.clone() },
        meters: &mut meter::usual(),
        intrusive,
        capture: None,
        provenance: Provenance::default(),
        stop,
    };
    let summary = experiment.run(journal, &mut listener).unwrap();
    Run {
        summary,
        said: listener.said,
        wire,
        file,
    }
}

fn failure(record: &Record) -> (Stage, &str) {
    match &record.outcome {
        Outcome::Failed { stage, why, .. } => (*stage, why),
        other => panic!("not a failure: {other:?}"),
    }
}

#[test]
fn a_right_contender_is_checked_warmed_loaded_measured_and_taken_down() {
    let run = run("right", &[Behaviour::Plain, Behaviour::Secret], 2);
    assert_eq!(run.summary.records.len(), 4);
    let diary = run.wire.borrow().diary.clone();
    assert_eq!(&diary[1..4], ["warm up", "load", "down"]);
    for record in &run.summary.records {
        let Outcome::Measured {
            check,
            carried,
            readings,
        } = &record.outcome
        else {
            panic!("{:?}", record.outcome)
        };
        assert_eq!((carried.goodput_bps, check.canaries.len()), (1e8, 2));
        assert_eq!(record.figures["rtt.p50_us"], 42.0);
        assert_eq!(record.figures["goodput_bps"], 1e8);
        assert_eq!(record.figures["ideal_ratio"], 0.5);
        assert_eq!(record.factors["mtu"], "1500");
        assert!(record.factors.contains_key("behaviour"));
        assert_eq!(readings["drops.replayed"], 2.0);
        assert_eq!(readings["left.if.wan.rx_packets"], 1.0);
        assert_eq!(readings["softnet.processed_count"], 1.0);
        assert_eq!(readings["softnet.dropped_count"], 0.0);
        assert_eq!(readings["client.kernel.TcpExt.TCPTimeouts_count"], 1.0);
        assert!(!readings.contains_key("client.kernel.TcpExt.Other_count"));
        let cost = readings.get("left.cpu.user_s");
        assert_eq!(cost.is_some(), record.contender == "secret");
    }
}

#[test]
fn the_records_on_the_disk_are_the_records_of_the_run() {
    let run = run(
        "disk",
        &[
            Behaviour::Plain,
            Behaviour::Secret,
            Behaviour::Leaking,
            Behaviour::Absent,
        ],
        3,
    );
    let (read, torn) = record::read_all(&run.file).unwrap();
    assert_eq!(torn, None);
    assert!(read == run.summary.records, "the file differs from the run");
    assert_eq!(said(&read), said(&run.summary.records));
}

#[test]
fn wrong_tunnels_are_caught_before_the_load_and_named() {
    let wrong = [
        Behaviour::Leaking,
        Behaviour::OneWay,
        Behaviour::Dead,
        Behaviour::Reordering,
        Behaviour::Lossy,
    ];
    let run = run("wrong", &wrong, 1);
    assert!(!run.wire.borrow().diary.contains(&"load".to_owned()));
    for record in &run.summary.records {
        let (stage, why) = failure(record);
        let expected = match record.contender.as_str() {
            "leaking" => "plaintext on the wire",
            "oneway" => "one-way: the client reaches the server",
            "reordering" => "reordering: 15 of 96 datagrams were overtaken",
            "lossy" => "loss: 1 of 32 datagrams did not arrive",
            _ => "no packet passes",
        };
        assert_eq!(stage, Stage::Check);
        assert!(why.starts_with(expected), "{why}");
    }
    assert_eq!(
        run.wire
            .borrow()
            .diary
            .iter()
            .filter(|entry| *entry == "down")
            .count(),
        wrong.len()
    );
}

#[test]
fn a_datagram_that_is_overtaken_once_is_noted_and_counted_and_the_trial_goes_on() {
    let run = run("once", &[Behaviour::ReorderingOnce], 1);
    let record = &run.summary.records[0];
    let Outcome::Measured { check, .. } = &record.outcome else {
        panic!("{:?}", record.outcome);
    };
    let seen = check.row.unwrap();
    assert_eq!((seen.sent, seen.arrived, seen.overtaken), (64, 64, 5));
    let why =
        "the check before the load: reordering: 5 of 64 datagrams were overtaken by later ones";
    assert_eq!(record.notes, [why]);
}

#[test]
fn whatever_breaks_is_recorded_and_the_rest_goes_on() {
    let run = run(
        "rest",
        &[
            Behaviour::Plain,
            Behaviour::Refusing,
            Behaviour::Hanging,
            Behaviour::Stubborn,
        ],
        2,
    );
    assert_eq!(run.summary.records.len(), 8);
    for record in &run.summary.records {
        match record.contender.as_str() {
            "refusing" => assert_eq!(failure(record), (Stage::Up, "it does not want to")),
            "hanging" => assert_eq!(
                failure(record),
                (Stage::Load, "the load took longer than 1 s")
            ),
            "stubborn" => assert_eq!(record.notes, ["stopping: it holds on to a route"]),
            _ => assert!(matches!(record.outcome, Outcome::Measured { .. })),
        }
    }
}

#[test]
fn an_absent_contender_is_recorded_once_with_its_remedy() {
    let run = run("absent", &[Behaviour::Plain, Behaviour::Absent], 3);
    assert_eq!(run.said[0], "3 trials");
    let absent: Vec<_> = run
        .summary
        .records
        .iter()
        .filter(|record| record.contender == "absent")
        .collect();
    assert_eq!(absent.len(), 1);
    let versions = &absent[0].provenance.versions;
    assert_eq!(versions.get("plain").map(String::as_str), Some("1.2.3"));
    assert_eq!(versions.get("absent"), None);
    let table = said(&run.summary.records);
    assert!(
        table.contains("absent: absent: it was never written; write it"),
        "{table}"
    );
}

#[test]
fn no_contender_counts_as_absent_because_the_user_stopped_the_probe() {
    let run = run("abandoned", &[Behaviour::Plain, Behaviour::Abandoned], 3);
    assert!(run.summary.interrupted);
    assert_eq!(run.summary.records, []);
    assert_eq!(run.said, Vec::<String>::new());
}

#[test]
fn many_cases_of_one_absent_contender_are_one_line_and_one_row() {
    let behaviours = [
        Behaviour::Plain,
        Behaviour::Absent,
        Behaviour::Absent,
        Behaviour::Absent,
    ];
    let table = said(&run("often-absent", &behaviours, 1).summary.records);
    let lines = |start: &str| table.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((lines("absent:"), lines("absent ")), (1, 1), "{table}");
}

#[test]
fn a_request_to_stop_keeps_what_there_is() {
    let run = run("stop", &[Behaviour::Stopping], 50);
    assert!(run.summary.interrupted);
    assert_eq!(run.summary.records.len(), 1);
    assert_eq!(
        run.summary.records[0].outcome,
        Outcome::Interrupted { stage: Stage::Load }
    );
    assert_eq!(run.wire.borrow().diary.last().unwrap(), "down");
    let read = record::read_all(&run.file).unwrap().0;
    assert!(said(&read).contains("only 1 of 50 planned trials ran"));
}

#[test]
fn the_table_has_ratio_cost_and_canary() {
    let run = run("table", &[Behaviour::Plain, Behaviour::Secret], 3);
    let table = said(&run.summary.records);
    let secret = table
        .lines()
        .find(|line| line.starts_with("secret"))
        .unwrap();
    for cell in ["100.0 ± 0.0 Mbit/s", "1.000", "3.1 MB"] {
        assert!(secret.contains(cell), "{cell} is not in {secret}");
    }
    assert!(
        table.ends_with("\ncanary: client side 1, plain wire 1, protected wire 0\n"),
        "{table}"
    );
}

#[test]
fn a_leak_shows_in_the_canary_line() {
    let run = run("leak", &[Behaviour::Plain, Behaviour::Leaking], 1);
    let table = said(&run.summary.records);
    assert!(table.contains("protected wire 2"), "{table}");
}

#[test]
fn a_torn_last_line_is_left_out_and_named() {
    let run = run("torn", &[Behaviour::Plain], 3);
    let text = fs::read_to_string(&run.file).unwrap();
    let (records, torn) = record::read_text(&text[..text.len() - 10]).unwrap();
    assert_eq!(records.len(), 2);
    assert!(torn.unwrap().contains("cut short"));
}

#[test]
fn records_of_a_newer_layout_and_foreign_lines_are_refused_with_their_line() {
    let newer = "{\"schema\": 99}\n";
    let refused = record::read_text(newer).unwrap_err();
    assert!(refused.starts_with("1: a record of schema 99"), "{refused}");
    let foreign = record::read_text("hello\n").unwrap_err();
    assert!(
        foreign.starts_with("1: this is not a record of the lab"),
        "{foreign}"
    );
}

#[test]
fn a_full_disk_is_reported_and_the_experiment_goes_on() {
    // /dev/full answers every write with "no space left".
    let full = PathBuf::from("/dev/full");
    let file = fs::File::options().write(true).open(&full).unwrap();
    let mut journal = Journal::onto(file, &full);
    let run = run_into(&mut journal, records_file("full"), &[Behaviour::Plain], 2);
    assert_eq!(run.summary.records.len(), 2);
    assert!(
        run.summary
            .not_kept
            .as_ref()
            .unwrap()
            .contains("No space left")
    );
    assert!(
        run.said
            .iter()
            .any(|said| said.contains("the record is kept in memory"))
    );
}

#[test]
fn a_file_of_records_is_never_overwritten() {
    let run = run("never", &[Behaviour::Plain], 1);
    assert!(Journal::create(&run.file).is_err());
}

#[test]
fn trials_of_an_earlier_run_keep_their_places_and_are_not_run_again() {
    let behaviours = [Behaviour::Plain, Behaviour::Secret, Behaviour::Absent];
    let whole = run("whole", &behaviours, 3);
    let file = records_file("rest-of-it");
    let mut journal = Journal::create(&file).unwrap();
    let earlier = &whole.summary.records[..4];
    let done = earlier.iter().map(|record| (record.round, record.order));
    let rest = run_rest(&mut journal, file, &behaviours, 3, done.collect());
    let places = |records: &[Record]| -> Vec<_> {
        let place = |record: &Record| (record.trial, record.round, record.order);
        records.iter().map(place).collect()
    };
    assert_eq!(
        places(&rest.summary.records),
        places(&whole.summary.records[4..])
    );
}

#[test]
fn records_of_before_there_were_figures_can_be_read() {
    let run = run("old", &[Behaviour::Plain], 1);
    let text = fs::read_to_string(&run.file).unwrap();
    let mut old: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    for newer in ["figures", "verdict"] {
        old.as_object_mut().unwrap().remove(newer).unwrap();
    }
    let (records, _) = record::read_text(&format!("{old}\n")).unwrap();
    assert!(records[0].figures.is_empty() && records[0].verdict.is_none());
}

/// Says that all time went into one thing, or that it cannot look.
struct FakeProfile {
    can_look: bool,
}

impl Meter for FakeProfile {
    fn id(&self) -> &'static str {
        "fake"
    }

    fn presence(&self, _topology: &Topology) -> Result<(), Absence> {
        if self.can_look {
            Ok(())
        } else {
            Err(Absence::new("perf is not installed", "install perf"))
        }
    }

    fn begin(&mut self, _scene: &MeterContext<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        assert!(context.case.starts_with("00"), "{}", context.case);
        let readings = [
            ("profile.samples_count", 4000.0),
            ("profile.idle_ratio", 0.25),
            ("profile.left.cipher_ratio", 0.5),
            ("profile.endpoints.copies_ratio", 0.25),
        ];
        Ok(readings
            .map(|(name, value)| (name.to_owned(), value))
            .into())
    }
}

fn under_a_profile(name: &str, can_look: bool, done: BTreeSet<(usize, usize)>) -> Run {
    let file = records_file(name);
    let mut journal = Journal::create(&file).unwrap();
    let behaviours = [Behaviour::Plain, Behaviour::Secret];
    let meter: Box<dyn Meter> = Box::new(FakeProfile { can_look });
    let mut intrusive = [(IntrusiveMeter::Profile, meter)];
    run_under(&mut journal, file, &behaviours, 2, done, &mut intrusive)
}

#[test]
fn a_intrusive_meter_gets_trials_of_its_own_which_count_for_no_mean() {
    let run = under_a_profile("profile", true, BTreeSet::new());
    let records = &run.summary.records;
    assert_eq!((run.said[0].as_str(), records.len()), ("6 trials", 6));
    for record in &records[..4] {
        assert!(matches!(record.outcome, Outcome::Measured { .. }));
    }
    for (place, record) in records[4..].iter().enumerate() {
        let Outcome::Examined { by, readings, .. } = &record.outcome else {
            panic!("{:?}", record.outcome)
        };
        assert_eq!(
            (*by, record.round, record.order),
            (IntrusiveMeter::Profile, 3, place)
        );
        assert_eq!(readings["profile.left.cipher_ratio"], 0.5);
        assert!(readings.contains_key("softnet.processed_count"));
    }
    assert_eq!(report::totals(records)[1].goodput_bps.len(), 2);
    let table = said(records);
    let line = "profile of secret: gateways: ciphers 50 %, endpoints 25 %\n";
    assert!(table.contains(line), "{table}");
    let page = report::html(records, None, Path::new("/nowhere")).unwrap();
    assert!(page.contains("Processor time by kind of work, sampled"));
    let (read, _) = record::read_all(&run.file).unwrap();
    assert!(read == *records, "the file differs from the run");
}

#[test]
fn a_intrusive_meter_that_cannot_look_is_named_and_the_rest_is_measured() {
    let run = under_a_profile("blind", false, BTreeSet::new());
    assert_eq!(run.said[0], "4 trials");
    let table = said(&run.summary.records);
    let line = "sampled profile: absent: perf is not installed; install perf";
    assert!(table.contains(line), "{table}");
    let again = under_a_profile("blind-again", false, record::done(&run.summary.records));
    assert!(again.summary.records.is_empty(), "it is told once");
}

#[test]
fn a_profile_that_was_cut_short_is_taken_when_the_run_goes_on() {
    let whole = under_a_profile("cut", true, BTreeSet::new());
    let done = record::done(&whole.summary.records[..5]);
    let rest = under_a_profile("cut-again", true, done);
    let places = rest.summary.records.iter();
    let places: Vec<_> = places
        .map(|one| (one.trial, one.round, one.order))
        .collect();
    assert_eq!(places, [(6, 3, 1)]);
}
