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

/// `mode`, `interface` and `routes`.
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
    let word = if table.has("mode") {
        table.choice("mode", &words)?
    } else {
        Word::Route
    };
    let device = table.text("interface");
    if word != Word::Route {
        let unfit = ["interface", "routes"]
            .into_iter()
            .find(|key| table.has(key));
        if let Some(key) = unfit {
            let problem = table.problem_at(key, "only `mode = \"route\"` has a device of its own");
            let advice = format!("remove `{key}`, or `mode`");
            table.findings().problem(problem.advise(advice));
            return None;
        }
    }
    match word {
        Word::Policy => Some(Mode::Policy),
        Word::Transport => Some(Mode::Transport),
        Word::Route => {
            let named = device.map_or_else(|| default_device(name), device_named);
            let device = table.findings().keep(named);
            let by_networks = by_networks(table);
            let asks = ["mode", "interface", "routes"];
            Some(Mode::Route {
                device: device?,
                by_networks: by_networks?,
                is_default: !asks.into_iter().any(|key| table.has(key)),
            })
        }
    }
}

/// Whether the gateway leads the peer's networks into the device: `routes`.
fn by_networks(table: Table<'_>) -> Option<bool> {
    if table.has("routes") {
        table.choice("routes", &[("networks", true), ("none", false)])
    } else {
        Some(true)
    }
}

fn device_named(device: Text<'_>) -> Result<String, Problem> {
    let word = device.text;
    let strange = |letter: char| letter.is_whitespace() || matches!(letter, '/' | ':' | '%');
    let fits = (1..=MAX_DEVICE_NAME_BYTES).contains(&word.len())
        && !word.starts_with(['-', '.'])
        && !word.contains(strange);
    if fits {
        Ok(word.to_owned())
    } else {
        let problem = Problem::new(
            device.at,
            format!("`{word}` cannot be the name of a device"),
        );
        Err(problem.advise(format!(
            "at most {MAX_DEVICE_NAME_BYTES} letters, digits and dashes, such as \"ike-office\""
        )))
    }
}

fn default_device(name: Text<'_>) -> Result<String, Problem> {
    let device = format!("{DEVICE_PREFIX}{}", name.text);
    if device.len() <= MAX_DEVICE_NAME_BYTES {
        Ok(device)
    } else {
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
