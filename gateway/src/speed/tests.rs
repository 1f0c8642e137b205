//! Tests of measurements that need no clock: the options select what is measured, and everything can be selected.

use super::case::Case;
use super::suite::{self, NamedSuite};
use super::{Direction, Failure, Layer, SpeedOptions, check_sizes};
use std::collections::HashSet;
use std::time::Duration;

fn chosen(words: &[&str]) -> Result<Vec<NamedSuite>, Failure> {
    suite::chosen(
        &words
            .iter()
            .map(|word| word.to_string())
            .collect::<Vec<_>>(),
    )
}

#[test]
fn every_suite_has_a_name_of_its_own_and_can_be_chosen_by_it() {
    let mut names = HashSet::new();
    for suite in suite::all() {
        assert!(
            names.insert(suite.name.clone()),
            "two are called {}",
            suite.name
        );
        let found = chosen(&[&suite.name]).expect("its own name");
        assert_eq!(found.len(), 1, "{}", suite.name);
    }
    for name in [
        "aes-128-gcm",
        "aes-256-cbc+hmac-sha2-256",
        "3des-cbc+hmac-sha1",
        "null+aes-cmac",
    ] {
        assert!(names.contains(name), "{name} is missing");
    }
}

#[test]
fn a_part_of_a_name_means_all_that_have_it() {
    let found = chosen(&["128-gcm"]).expect("there are some");
    assert!(found.len() > 1 && found.iter().all(|suite| suite.name.contains("128-gcm")));
}

#[test]
fn a_name_that_is_nearly_right_is_answered_with_the_right_one() {
    let error = chosen(&["aes-128-gmc"])
        .err()
        .expect("there is none")
        .to_string();
    assert!(
        error.contains("`aes-128-gmc`") && error.contains("did you mean `aes-128-g"),
        "{error}"
    );
    let error = chosen(&["rot13"]).err().expect("there is none").to_string();
    assert!(error.contains("--list"), "{error}");
}

#[test]
fn the_typical_suites_have_every_algorithm_among_them() {
    let typical = chosen(&[]).expect("the default");
    let ciphers: HashSet<_> = typical.iter().map(|suite| suite.cipher()).collect();
    let all: HashSet<_> = suite::all()
        .filter(|suite| suite.encryption.is_none_or(|row| row.icv_len % 16 == 0))
        .map(|suite| suite.cipher())
        .collect();
    assert_eq!(ciphers, all);
    let macs: HashSet<_> = typical
        .iter()
        .filter_map(|suite| Some(suite.integrity?.name))
        .collect();
    assert_eq!(macs.len(), ipsec::algorithm::Integrity::all().count());
}

#[test]
fn the_typical_suites_are_measured_in_both_directions_with_keys_that_take_turns() {
    for suite in chosen(&[]).expect("the default") {
        for direction in [Direction::Seal, Direction::Open] {
            let case = Case {
                suite: suite.clone(),
                direction,
                size: 40,
                batch: 5,
                sas: 3,
            };
            let row = case.measure_kernel(&[0], Duration::from_micros(18));
            assert!(
                row.packets_per_second > 0.0 && row.ratio > 0.0,
                "{}",
                suite.name
            );
            assert!(row.bytes >= 40 && row.bytes < 56, "{}", suite.name);
        }
    }
}

fn engine_case(suite: &NamedSuite, direction: Direction, sas: usize) -> Case {
    Case {
        suite: suite.clone(),
        direction,
        size: 40,
        batch: 5,
        sas,
    }
}

#[test]
fn the_engine_carries_every_typical_suite_in_both_directions_and_drops_nothing() {
    for suite in chosen(&[]).expect("the default") {
        for direction in [Direction::Seal, Direction::Open] {
            let case = engine_case(&suite, direction, 3);
            let row = case.measure_engine(&[0], Duration::from_micros(18));
            let row = row.unwrap_or_else(|reason| panic!("{}: {reason}", suite.name));
            assert!(row.packets_per_second > 0.0 && row.of_kernel.ratio > 0.0);
            assert!(row.step_times.serial() > 0.0 && row.step_times.transform > 0.0);
            assert!(row.of_one_sa.is_some() && row.speed_up.is_none());
            assert_eq!(row.footprint.is_some(), cfg!(target_env = "gnu"));
        }
    }
}

#[test]
fn what_was_asked_for_is_what_the_engine_is_compared_with() {
    let suite = &chosen(&["aes-128-gcm"]).expect("it is in the table")[0];
    let case = engine_case(suite, Direction::Open, 1);
    let row = case.measure_engine(&[0, 0], Duration::from_micros(27));
    let row = row.expect("a row");
    assert!(row.speed_up.is_some() && row.of_one_sa.is_none());
    let json = serde_json::to_value(&row).expect("plain numbers");
    for key in ["gbit_per_second", "packets_per_second", "ratio", "speed_up"] {
        assert!(
            json[key].as_f64().is_some_and(|number| number > 0.0),
            "{key}: {json}"
        );
    }
    let spans = &json["nanoseconds_per_packet"];
    let of = |key: &str| spans[key].as_f64().expect("a number");
    assert_eq!(of("serial"), of("prepare") + of("commit"));
    assert_eq!(
        (&json["direction"], &json["bytes"]),
        (&"open".into(), &40.into())
    );
    assert!(json["of_one_sa"].is_null());
}

#[derive(clap::Parser)]
struct Typed {
    #[command(flatten)]
    options: SpeedOptions,
}

fn typed(words: &[&str]) -> Result<SpeedOptions, clap::Error> {
    let words = ["speed"].iter().chain(words);
    <Typed as clap::Parser>::try_parse_from(words).map(|typed| typed.options)
}

#[test]
fn layers_are_called_by_name_and_a_wrong_one_is_answered_with_the_right_one() {
    let layer = |words: &[&str]| typed(words).map(|options| options.layer);
    assert!(matches!(layer(&[]), Ok(Layer::Kernel)));
    assert!(matches!(layer(&["--layer", "engine"]), Ok(Layer::Engine)));
    assert!(matches!(layer(&["--layer", "kernel"]), Ok(Layer::Kernel)));
    let error = layer(&["--layer", "engin"])
        .expect_err("there is none")
        .to_string();
    assert!(error.contains("'engine'"), "{error}");
}

#[test]
fn a_packet_that_cannot_hold_its_headers_is_refused_for_the_engine_alone() {
    let check = |words: &[&str]| check_sizes(&typed(words).expect("options"));
    assert!(check(&["--size", "16"]).is_ok());
    let refusal = check(&["--size", "64,27", "--layer", "engine"])
        .expect_err("too small")
        .to_string();
    assert!(
        refusal.contains("--size 27") && refusal.contains("minimum is 28"),
        "{refusal}"
    );
    assert!(check(&["--size", "28", "--layer", "engine"]).is_ok());
}
