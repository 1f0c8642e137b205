//! What the options do not say is asked for, each answer checked at once.

use super::options::InitOptions;
use super::text::Tunnel;
use crate::config::network;
use crate::failure::Failure;
use ikev2::identity::{Identity, Pattern};
use std::io::{BufRead, Write};
use std::net::IpAddr;

/// The word for an address that is not known.
const ANY: &str = "any";

/// A dialogue, or none: then what is missing and has no default is an error.
pub(super) struct Questions<'a>(Option<(&'a mut dyn BufRead, &'a mut dyn Write)>);

/// One thing to know.
struct Question {
    /// The option that says it.
    option: &'static str,
    /// What is asked.
    text: &'static str,
    /// Why an answer cannot be taken.
    check: fn(&str) -> Result<(), Failure>,
}

impl<'a> Questions<'a> {
    /// Asks through these, if any.
    pub(super) fn new(dialogue: Option<(&'a mut dyn BufRead, &'a mut dyn Write)>) -> Self {
        Self(dialogue)
    }

    /// `default` is what an empty answer means.
    fn answer(
        &mut self,
        given: Option<&str>,
        question: &Question,
        default: Option<&str>,
    ) -> Result<String, Failure> {
        let refused =
            |why: &dyn std::fmt::Display| Failure::new(format!("{}: {why}", question.option));
        if let Some(given) = given {
            (question.check)(given).map_err(|why| refused(&why))?;
            return Ok(given.to_owned());
        }
        let Some((input, output)) = &mut self.0 else {
            return default.map(str::to_owned).ok_or_else(|| {
                refused(&"this is not known; give the option, or run `esplanade init` on a terminal, where it asks")
            });
        };
        loop {
            let hint = default.map_or_else(String::new, |default| format!(" [{default}]"));
            let asked = write!(output, "{}{hint}: ", question.text).and_then(|()| output.flush());
            asked.map_err(|error| refused(&error))?;
            let mut line = String::new();
            let read = input
                .read_line(&mut line)
                .map_err(|error| refused(&error))?;
            if read == 0 {
                return Err(refused(&"no answer; nothing was written"));
            }
            let answer = match (line.trim(), default) {
                ("", Some(default)) => default.to_owned(),
                (answer, _) => answer.to_owned(),
            };
            match (question.check)(&answer) {
                Ok(()) => return Ok(answer),
                Err(why) => {
                    // The next question shows that the terminal is gone.
                    let _ = writeln!(output, "  {why}");
                }
            }
        }
    }
}

const NAME: Question = Question {
    option: "--name",
    text: "What is the peer called",
    check: check_name,
};
const LOCAL: Question = Question {
    option: "--local",
    text: "Address of this gateway",
    check: check_address,
};
const REMOTE: Question = Question {
    option: "--remote",
    text: "Address of the peer",
    check: check_address,
};
const LOCAL_ID: Question = Question {
    option: "--local-id",
    text: "Identity of this gateway",
    check: check_identity,
};
const REMOTE_ID: Question = Question {
    option: "--remote-id",
    text: "Identity that the peer has to prove",
    check: check_identity,
};
const LOCAL_NETWORKS: Question = Question {
    option: "--local-network",
    text: "Networks behind this gateway, with commas between",
    check: check_networks,
};
const REMOTE_NETWORKS: Question = Question {
    option: "--remote-network",
    text: "Networks behind the peer, with commas between",
    check: check_networks,
};

/// Everything about the tunnel.
pub(super) fn tunnel(
    options: &InitOptions,
    questions: &mut Questions<'_>,
) -> Result<Tunnel, Failure> {
    let mut ask = |given: &Option<String>, question: &Question, default: Option<&str>| {
        questions.answer(given.as_deref(), question, default)
    };
    let name = ask(&options.name, &NAME, Some("office"))?;
    let local = known(ask(&options.local, &LOCAL, Some(ANY))?);
    let remote = known(ask(&options.remote, &REMOTE, Some(ANY))?);
    let local_id = ask(&options.local_id, &LOCAL_ID, local.as_deref())?;
    let remote_id = ask(&options.remote_id, &REMOTE_ID, remote.as_deref())?;
    let local_networks = ask(&joined(&options.local_network), &LOCAL_NETWORKS, None)?;
    let remote_networks = ask(&joined(&options.remote_network), &REMOTE_NETWORKS, None)?;
    Ok(Tunnel {
        name,
        local,
        remote,
        local_id,
        remote_id,
        local_networks: split(&local_networks),
        remote_networks: split(&remote_networks),
    })
}

fn known(address: String) -> Option<String> {
    (address != ANY).then_some(address)
}

fn joined(networks: &[String]) -> Option<String> {
    (!networks.is_empty()).then(|| networks.join(","))
}

fn split(networks: &str) -> Vec<String> {
    let words = networks.split([',', ' ']).map(str::trim);
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Part of a file's name too.
fn check_name(name: &str) -> Result<(), Failure> {
    let is_good = (1..=11).contains(&name.len())
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
        && !name.starts_with('-');
    if is_good {
        Ok(())
    } else {
        Err(Failure::new("write up to 11 letters, digits and dashes"))
    }
}

fn check_address(word: &str) -> Result<(), Failure> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let looks_like_address = word
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if word.parse::<IpAddr>().is_ok() || (!looks_like_address && word.chars().all(is_name)) {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "write an address such as 192.0.2.1, a host name, or `{ANY}`"
        )))
    }
}

fn check_identity(word: &str) -> Result<(), Failure> {
    match word.parse::<Pattern>() {
        Ok(Pattern::Exactly(Identity::Fqdn(name))) if name == ANY => {
            Err(Failure::new("write one identity"))
        }
        Ok(Pattern::Exactly(_)) => Ok(()),
        Ok(_) => Err(Failure::new(
            "write one identity: with a pre-shared key each peer has its own",
        )),
        Err(error) => Err(Failure::new(error)),
    }
}

fn check_networks(words: &str) -> Result<(), Failure> {
    let words = split(words);
    if words.is_empty() {
        return Err(Failure::new(
            "write at least one network, such as 10.1.0.0/16",
        ));
    }
    words.iter().try_for_each(|word| match network(word) {
        Ok(_) => Ok(()),
        Err(wrong) => Err(Failure::new(format!("{}; {}", wrong.message, wrong.advice))),
    })
}
