//! The real soaker in a whole run; the output of its tool is made up.

use std::collections::BTreeSet;
use std::path::Path;

use lab::meter::{IntrusiveMeter, Meter, Soaker};
use lab::record::{self, Journal, Outcome};
use lab::report;
use lab::stage::Stage;

use super::fake::Behaviour;
use super::{Run, failure, records_file, run_under, said};

/// Runs under the real soaker, whose tool is started from `program`.
fn under_a_soaker(name: &str, program: &str, behaviours: &[Behaviour]) -> Run {
    let file = records_file(name);
    let mut journal = Journal::create(&file).unwrap();
    let meter: Box<dyn Meter> = Box::new(Soaker::new(Path::new(program)));
    let mut intrusive = [(IntrusiveMeter::Soaker, meter)];
    run_under(
        &mut journal,
        file,
        behaviours,
        1,
        BTreeSet::new(),
        &mut intrusive,
    )
}

#[test]
fn a_soaker_reports_the_load_and_what_the_kernel_hides_of_it_and_judges_no_limit() {
    let run = under_a_soaker("soaker", "lab", &[Behaviour::Plain, Behaviour::Secret]);
    let records = &run.summary.records;
    assert_eq!(records.len(), 4);
    for record in &records[2..] {
        let Outcome::Examined { by, readings, .. } = &record.outcome else {
            panic!("{:?}", record.outcome)
        };
        assert_eq!((*by, record.round), (IntrusiveMeter::Soaker, 3));
        let named = ["load", "hidden", "busiest", "cpu0.load", "cpu1.load"];
        let found = named.map(|name| readings[&format!("soaker.{name}_ratio")]);
        assert_eq!(found, [0.25, 0.125, 0.5, 0.5, 0.0]);
        assert_eq!(record.verdict, None);
    }
    let table = said(records);
    let line = "load of secret: 25.0 % of both processors, 50.0 % of the busiest; not in the kernel's accounting: 12.5 %\nload: by a soaker, ";
    assert!(table.contains(line), "{table}");
    let page = report::html(records, None, Path::new("/nowhere")).unwrap();
    assert!(page.contains("Load of the processors, by a soaker"));
    let (read, _) = record::read_all(&run.file).unwrap();
    assert!(read == *records, "the file differs from the run");
}

#[test]
fn a_soaker_that_dies_or_falls_silent_ends_its_own_trial_and_no_other() {
    let behaviours = [
        Behaviour::Plain,
        Behaviour::Drowning,
        Behaviour::Hushing,
        Behaviour::Secret,
    ];
    let run = under_a_soaker("drowned", "lab", &behaviours);
    let records = &run.summary.records;
    assert_eq!(records.len(), 8);
    for record in &records[..4] {
        assert!(matches!(record.outcome, Outcome::Measured { .. }));
    }
    for record in &records[4..] {
        let wanted = match record.contender.as_str() {
            "drowning" => "soaker: the soaker ended with 137: error: it became too much",
            "hushing" => "soaker: the soaker fell silent: ",
            _ => {
                assert!(matches!(record.outcome, Outcome::Examined { .. }));
                continue;
            }
        };
        let (stage, why) = failure(record);
        assert_eq!(stage, Stage::Meters);
        assert!(why.starts_with(wanted), "{why}");
    }
    let downs = run.wire.borrow();
    let downs = downs.diary.iter().filter(|entry| *entry == "down");
    assert_eq!(downs.count(), 8, "every contender was taken down");
}

#[test]
fn a_soaker_that_cannot_run_here_is_named_and_the_rest_is_measured() {
    let run = under_a_soaker("dry", "another", &[Behaviour::Plain]);
    assert_eq!(run.said[0], "1 trials");
    let table = said(&run.summary.records);
    let line =
        "cycle soaker: absent: nothing can be started here; run `esplanade-lab tool soak` there";
    assert!(table.contains(line), "{table}");
}
