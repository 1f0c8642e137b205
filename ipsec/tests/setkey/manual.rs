//! `docs/setkey.md` matches the program: its examples are accepted, its tables are complete.

use ipsec::algorithm::{Encryption, Integrity};
use ipsec::setkey::{Forwarding, NoNames, POLICY_OPTIONS, SA_OPTIONS, compile};

const MANUAL: &str = include_str!("../../../docs/setkey.md");

/// The cells of the table row that starts with `name` in code style.
fn row(name: &str) -> Vec<&'static str> {
    let start = format!("| `{name}` |");
    let line = MANUAL.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("no row for {name}"));
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn listed(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn every_example_is_obeyed() {
    let mut examples = 0;
    for part in MANUAL.split("```setkey\n").skip(1) {
        let (text, _) = part.split_once("```").unwrap();
        let compiled = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames);
        let lowered = compiled
            .unwrap_or_else(|problems| panic!("{}", problems[0].render("docs", text.as_bytes())));
        assert!(lowered.warnings.is_empty(), "{:?}", lowered.warnings);
        examples += 1;
    }
    assert_eq!(examples, 12);
}

#[test]
fn every_encryption_algorithm_has_its_row() {
    for algorithm in Encryption::all() {
        let cells = row(algorithm.name);
        assert_eq!(cells[1], listed(algorithm.aliases), "{}", algorithm.name);
        let lengths = match algorithm.key_lens {
            [first, .., last] if algorithm.key_lens.len() > 3 => format!("{first} to {last}"),
            few => few
                .iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        };
        assert_eq!(cells[2], lengths, "{}", algorithm.name);
    }
}

#[test]
fn every_integrity_algorithm_has_its_row() {
    for algorithm in Integrity::all() {
        let cells = row(algorithm.name);
        assert_eq!(cells[1], listed(algorithm.aliases), "{}", algorithm.name);
        assert_eq!(
            cells[2],
            algorithm.key_len.to_string(),
            "{}",
            algorithm.name
        );
        assert_eq!(
            cells[3],
            algorithm.icv_len.to_string(),
            "{}",
            algorithm.name
        );
    }
}

#[test]
fn every_named_option_is_described() {
    for (name, _) in SA_OPTIONS.into_iter().chain(POLICY_OPTIONS) {
        assert!(MANUAL.contains(&format!("`-o {name}=`")), "{name}");
    }
}
