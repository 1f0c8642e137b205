use super::super::super::direction::SaDirection;
use super::*;
use crate::routes::{DEFAULT_MARK, Site};
use ipsec::command::Command;
use ipsec::database::Database;
use ipsec::setkey::{Forwarding, NoNames, compile};
use std::sync::Arc;

const GCM: &str = "-E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;";
const OTHER_KEY: &str = "-E aes-gcm-16 0xff0102030405060708090a0b0c0d0e0f10111213;";
const OPTIONS: &str = "-m tunnel -u 77 -r 64 -lh 3600 -bs 10000";

fn sa(text: &str) -> Arc<Sa> {
    let text = format!("add 192.0.2.1 192.0.2.2 esp 0x1001 {text}");
    let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames);
    let commands: Vec<Command> = commands.unwrap().commands;
    let mut database = Database::default();
    database.apply(&commands, 0, &mut || 0).unwrap();
    let snapshot = database.snapshot();
    Arc::clone(snapshot.sas().next().unwrap())
}

fn owner(name: &str) -> Owner {
    Owner::of(&Site::new(name, None, DEFAULT_MARK).ok().unwrap())
}

/// What the kernel has of an association that has counted so far.
fn left(sa: &Sa, owner: Owner, start: &SavedCounters) -> ModifyMessage {
    counters::emit_from(&sa.config, start, owner.mark(true))
}

/// What differs between the association of `text` in the kernel, with these numbers, and the one that was passed on.
fn differs(text: &str, kernels: &SavedCounters) -> Option<&'static str> {
    let passed = sa(&format!("{OPTIONS} {GCM}"));
    passed.state.raise(&passed.config, 500, 900);
    let found = left(&sa(text), owner("esp0"), kernels);
    difference(&found, &passed, owner("esp0"), None)
}

fn numbers(sent: u64, edge: u64) -> SavedCounters {
    SavedCounters {
        sent,
        edge,
        ..SavedCounters::default()
    }
}

#[test]
fn the_same_association_with_the_same_or_higher_numbers_is_taken_over() {
    for kernels in [numbers(500, 900), numbers(501, 5000)] {
        assert_eq!(differs(&format!("{OPTIONS} {GCM}"), &kernels), None);
    }
    let used = SavedCounters {
        bytes: 4000,
        ..numbers(500, 900)
    };
    assert_eq!(
        differs(&format!("{OPTIONS} {GCM}"), &used),
        None,
        "less is left of its lifetime"
    );
}

#[test]
fn what_another_program_has_changed_is_named() {
    let same = format!("{OPTIONS} {GCM}");
    for (text, kernels, word) in [
        (same.clone(), numbers(499, 900), "numbers"),
        (same.clone(), numbers(500, 899), "numbers"),
        (format!("{OPTIONS} {OTHER_KEY}"), numbers(500, 900), "keys"),
        (same.replace("-u 77", "-u 78"), numbers(500, 900), "options"),
        (same.replace("-r 64", "-r 128"), numbers(500, 900), "window"),
        (
            same.replace("-lh 3600", "-lh 7200"),
            numbers(500, 900),
            "lifetimes",
        ),
        (
            same.replace("-bs 10000", "-bs 20000"),
            numbers(500, 900),
            "lifetimes",
        ),
    ] {
        let why = differs(&text, &kernels).unwrap_or_default();
        assert!(why.contains(word), "{text}, {kernels:?}: {why}");
    }
}

#[test]
fn an_association_of_another_gateway_is_not_taken_over() {
    let passed = sa(&format!("{OPTIONS} {GCM}"));
    let found = left(&passed, owner("esp1"), &numbers(0, 0));
    let why = difference(&found, &passed, owner("esp0"), None);
    assert!(why.unwrap().contains("another program"));
}

#[test]
fn an_outbound_one_with_a_direction_has_no_window_in_the_kernel() {
    let passed = sa(&format!("{OPTIONS} {GCM}"));
    let outbound = SaDirection::Outbound;
    let mut found = left(&passed, owner("esp0"), &numbers(9, 0));
    outbound.put_into(&mut found);
    assert_eq!(
        difference(&found, &passed, owner("esp0"), Some(outbound)),
        None
    );
    let inbound = SaDirection::Inbound;
    assert!(difference(&found, &passed, owner("esp0"), Some(inbound)).is_some());
}
