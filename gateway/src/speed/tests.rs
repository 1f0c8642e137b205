//! What can be said of a measurement without a clock: that it is of what was asked for, and that everything can be asked for.

use super::case::{Case, Direction};
use super::suite::{self, NamedSuite};
use std::collections::HashSet;
use std::time::Duration;

fn chosen(words: &[&str]) -> Result<Vec<NamedSuite>, String> {
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
    let error = chosen(&["aes-128-gmc"]).err().expect("there is none");
    assert!(
        error.contains("`aes-128-gmc`") && error.contains("did you mean `aes-128-g"),
        "{error}"
    );
    let error = chosen(&["rot13"]).err().expect("there is none");
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
            let row = case.measure(&[0], Duration::from_micros(18));
            assert!(
                row.packets_per_second > 0.0 && row.ratio > 0.0,
                "{}",
                suite.name
            );
            assert!(row.bytes >= 40 && row.bytes < 56, "{}", suite.name);
        }
    }
}
