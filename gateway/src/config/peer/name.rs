//! Names of peers and children, and of the devices that are named after them.

use crate::config::checked::Mode;
use crate::config::table::{Table, Text};
use ipsec::setkey::Problem;

/// The names of Linux devices have at most 15 bytes.
const MAX_DEVICE_NAME_BYTES: usize = 15;
/// What stands before a peer's name in the name of its device.
const DEVICE_PREFIX: &str = "ike-";
/// The longest name of a peer or child.
const MAX_NAME_BYTES: usize = 64;

/// Letters, digits, `-`, `_` and `.`: the name is part of commands, reports and the name of a device.
pub(super) fn check(name: Text<'_>, of: &str) -> Result<(), Problem> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_good = (1..=MAX_NAME_BYTES).contains(&name.text.len())
        && name.text.chars().all(fits)
        && !name.text.starts_with(['-', '.']);
    if is_good {
        return Ok(());
    }
    let problem = Problem::new(name.at, format!("this cannot be the name of a {of}"));
    Err(problem.advise(format!(
        "letters, digits, `-`, `_` and `.`, at most {MAX_NAME_BYTES} of them, a letter or digit first"
    )))
}

/// `mode` and `interface`.
pub(super) fn mode(name: Text<'_>, table: Table<'_>) -> Option<Mode> {
    #[derive(Clone, Copy, PartialEq)]
    enum Word {
        Route,
        Policy,
        Transport,
    }
    let words = [
        ("route", Word::Route),
        ("policy", Word::Policy),
        ("transport", Word::Transport),
    ];
    let word = match table.has("mode") {
        true => table.choice("mode", &words)?,
        false => Word::Route,
    };
    let device = table.text("interface");
    match (word, device) {
        (Word::Route, Some(device)) => table.findings().keep(device_named(device)),
        (Word::Route, None) => table.findings().keep(default_device(name)),
        (_, Some(device)) => {
            let problem =
                Problem::new(device.at, "only `mode = \"route\"` has a device of its own");
            table
                .findings()
                .problem(problem.advise("remove `interface`, or `mode`"));
            None
        }
        (Word::Policy, None) => Some(Mode::Policy),
        (Word::Transport, None) => Some(Mode::Transport),
    }
}

fn device_named(device: Text<'_>) -> Result<Mode, Problem> {
    let word = device.text;
    let strange = |letter: char| letter.is_whitespace() || matches!(letter, '/' | ':' | '%');
    let fits = (1..=MAX_DEVICE_NAME_BYTES).contains(&word.len())
        && !word.starts_with(['-', '.'])
        && !word.contains(strange);
    match fits {
        true => Ok(Mode::Route {
            device: word.to_owned(),
        }),
        false => {
            let problem = Problem::new(
                device.at,
                format!("`{word}` cannot be the name of a device"),
            );
            Err(problem.advise(format!(
                "at most {MAX_DEVICE_NAME_BYTES} letters, digits and dashes, such as \"ike-office\""
            )))
        }
    }
}

fn default_device(name: Text<'_>) -> Result<Mode, Problem> {
    let device = format!("{DEVICE_PREFIX}{}", name.text);
    match device.len() <= MAX_DEVICE_NAME_BYTES {
        true => Ok(Mode::Route { device }),
        false => {
            let problem = Problem::new(
                name.at,
                format!(
                    "the device `{device}` would have {} bytes in its name, and Linux allows {MAX_DEVICE_NAME_BYTES}",
                    device.len()
                ),
            );
            Err(problem
                .advise("add `interface = \"…\"` with a shorter name, or shorten the peer's name"))
        }
    }
}
