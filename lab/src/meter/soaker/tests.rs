//! Windows against sums computed by hand; outputs and failures of a soaker against the texts of the record.

use std::cell::RefCell;

use super::*;
use crate::tool::Class;

const SECOND: u64 = 1_000_000_000;

fn spinning(class: Class) -> Vec<Spinning> {
    let each = [(0, 1000.0), (2, 500.0)];
    each.map(|(cpu, units_per_s)| Spinning {
        cpu,
        units_per_s,
        class,
    })
    .into()
}

/// So many seconds later, with these shares of them counted and charged on both processors.
fn later(seconds: u64, counted: [f64; 2], charged: [f64; 2], own: f64) -> SoakCounts {
    let ns = |share: f64| (share * (seconds * SECOND) as f64) as u64;
    let rates = spinning(Class::Idle);
    let places = [0, 1];
    SoakCounts {
        at_ns: 7 * SECOND + seconds * SECOND,
        units: places
            .map(|place| (counted[place] * rates[place].units_per_s * seconds as f64) as u64)
            .into(),
        cpu_ns: charged.map(ns).into(),
        own_ns: ns(own),
    }
}

fn began() -> SoakCounts {
    later(0, [0.0; 2], [0.0; 2], 0.0)
}

fn read(ended: &SoakCounts) -> Readings {
    window::readings("", &spinning(Class::Idle), &began(), ended).unwrap()
}

#[test]
fn what_a_soaker_did_not_count_is_load_and_what_it_was_charged_for_meanwhile_is_hidden() {
    // counted, charged, own; load, hidden, busiest, faster
    type Case = ([f64; 2], [f64; 2], f64, [f64; 4]);
    let cases: [Case; 7] = [
        // No other program did anything.
        ([1.0, 1.0], [1.0, 1.0], 0.0, [0.0, 0.0, 0.0, 0.0]),
        // Half of one processor was others', and the kernel knows it.
        ([0.5, 1.0], [0.5, 1.0], 0.0, [0.25, 0.0, 0.5, 0.0]),
        // The same in interrupts that the kernel charges to the soaker.
        ([0.5, 1.0], [1.0, 1.0], 0.0, [0.25, 0.25, 0.5, 0.0]),
        // Some of each.
        ([0.2, 0.6], [0.5, 0.7], 0.0, [0.6, 0.2, 0.8, 0.0]),
        // The soaker's own time is not load.
        ([0.5, 0.98], [0.5, 0.98], 0.02, [0.25, 0.0, 0.5, 0.0]),
        // Others had all there was.
        ([0.0, 0.0], [0.0, 0.0], 0.0, [1.0, 0.0, 1.0, 0.0]),
        // The clock rose by a tenth: the load is not negative, and the rise is reported.
        ([1.1, 1.1], [1.0, 1.0], 0.0, [0.0, 0.0, 0.0, 0.1]),
    ];
    for (counted, charged, own, wanted) in cases {
        let readings = read(&later(10, counted, charged, own));
        let names = ["load", "hidden", "busiest", "faster"];
        for (name, wanted) in names.iter().zip(wanted) {
            let found = readings[&format!("soaker.{name}_ratio")];
            assert!(
                (found - wanted).abs() < 2e-3,
                "{name} of {counted:?}, {charged:?}: {found}, not {wanted}"
            );
        }
    }
}

#[test]
fn no_share_is_ever_below_nothing_or_above_all() {
    for counted in [0.0, 0.3, 0.999, 1.0, 1.7] {
        for charged in [0.0, 0.3, 1.0, 1.3] {
            let readings = read(&later(3, [counted, 0.4], [charged, 0.2], 0.01));
            let shares = readings
                .iter()
                .filter(|(name, _)| name.ends_with("_ratio") && !name.ends_with("faster_ratio"));
            for (name, share) in shares {
                assert!((0.0..=1.0).contains(share), "{name} = {share}");
            }
        }
    }
}

#[test]
fn each_processor_has_its_own_share_under_its_number_and_its_machine() {
    let ended = later(2, [0.75, 0.5], [0.75, 0.5], 0.0);
    let readings = window::readings("right.", &spinning(Class::Nice), &began(), &ended).unwrap();
    assert_eq!(readings["right.soaker.cpu0.load_ratio"], 0.25);
    assert_eq!(readings["right.soaker.cpu2.load_ratio"], 0.5);
    assert_eq!(readings["right.soaker.processors_count"], 2.0);
    assert_eq!(readings["right.soaker.window_s"], 2.0);
    assert_eq!(readings["right.soaker.nice_count"], 2.0);
    assert!(!read(&ended).contains_key("soaker.nice_count"));
}

#[test]
fn looks_that_do_not_belong_together_give_nothing() {
    let spinning = spinning(Class::Idle);
    let good = later(2, [0.5; 2], [0.5; 2], 0.0);
    let none = |began: &SoakCounts, ended: &SoakCounts| {
        window::readings("", &spinning, began, ended).is_none()
    };
    assert!(!none(&began(), &good));
    assert!(none(&good, &good) && none(&good, &began()));
    let mut fewer = good.clone();
    fewer.units.pop();
    assert!(none(&began(), &fewer));
    let dead = [Spinning {
        units_per_s: 0.0,
        ..spinning[0]
    }];
    assert!(window::readings("", &dead, &began(), &good).is_none());
    assert!(window::readings("", &[], &began(), &good).is_none());
}

/// Returns the given texts one by one, then the last again.
struct Fake {
    texts: RefCell<Vec<String>>,
    ended: Option<i32>,
}

impl Process for Fake {
    fn pid(&self) -> u32 {
        1
    }

    fn ended(&mut self) -> Option<i32> {
        self.ended
    }

    fn output(&mut self) -> String {
        let mut texts = self.texts.borrow_mut();
        match texts.len() {
            1 => texts[0].clone(),
            _ => texts.remove(0),
        }
    }

    fn stop(&mut self, _grace: Duration) -> Result<(), Fault> {
        Ok(())
    }
}

fn soaking(texts: &[&str], ended: Option<i32>) -> Soaking {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    let texts = RefCell::new(texts);
    Soaking::of("left.".into(), Box::new(Fake { texts, ended }))
}

fn line(said: &SoakLine) -> String {
    serde_json::to_string(said).unwrap() + "\n"
}

fn opening() -> String {
    line(&SoakLine::Ready(spinning(Class::Idle))) + &line(&SoakLine::Counts(began()))
}

#[test]
fn a_window_lies_between_the_last_lines_that_were_whole_when_the_load_began_and_ended() {
    let first = format!("a word of warning\n{}", opening());
    let second = first.clone() + &line(&SoakLine::Counts(later(2, [0.5; 2], [0.5; 2], 0.0)));
    let torn = second.clone() + "{\"counts\":{\"at_ns\":99";
    let mut soaking = soaking(&["", &opening()[..40], &first, &first, &torn], None);
    soaking.wait(CALIBRATION_TIMEOUT).unwrap();
    soaking.mark().unwrap();
    soaking.mark().unwrap();
    let readings = soaking.readings().unwrap();
    assert_eq!(readings["left.soaker.load_ratio"], 0.5);
}

#[test]
fn a_soaker_that_ends_or_prints_nothing_or_stops_printing_is_a_fault_with_its_reason() {
    let short = Duration::from_millis(20);
    let gone = soaking(&["error: no threads here\n"], Some(1)).wait(short);
    assert_eq!(
        gone.unwrap_err().to_string(),
        "the soaker on the machine of left ended with 1: error: no threads here"
    );
    let mut lost = soaking(&[&(opening() + "the connection is lost\n")], Some(255));
    let lost = lost.mark().unwrap_err().to_string();
    assert!(
        lost.ends_with("ended with 255: the connection is lost"),
        "{lost}"
    );
    let mute = soaking(&["hello\n"], None).wait(short).unwrap_err();
    assert!(matches!(mute, Fault::TimedOut { .. }), "{mute}");
    let mute = soaking(&["hello\n"], None).mark().unwrap_err();
    assert!(mute.to_string().ends_with("is silent"), "{mute}");

    let mut silent = soaking(&[&opening()], None);
    silent.wait(short).unwrap();
    silent.mark().unwrap();
    silent.mark().unwrap();
    let silent = silent.readings().unwrap_err().to_string();
    assert!(silent.contains("fell silent: it saw "), "{silent}");
    let unmarked = soaking(&[&opening()], None).readings().unwrap_err();
    assert_eq!(
        unmarked.to_string(),
        "the beginning and end of the load were not marked"
    );
}
