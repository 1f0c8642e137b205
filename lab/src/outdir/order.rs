//! The arguments and the spec of a run, kept beside the records: with them an interrupted run can be resumed later,
//! even if the lab's study has changed since.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Its file among the results.
pub const ORDER: &str = "order.json";

/// The request for a run, with its seed and rounds pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The arguments of `lab run`, the study first.
    pub arguments: Vec<String>,
    /// The text of the spec.
    pub spec: String,
}

/// Options that are pinned, or apply to one invocation only.
const PINNED: [&str; 5] = ["--out", "--seed", "--rounds", "--budget", "--resume"];

impl RunRequest {
    /// From the arguments behind `run`, as they were typed.
    pub fn new(
        typed: impl Iterator<Item = String>,
        spec: &str,
        rounds: usize,
        seed: u64,
    ) -> RunRequest {
        let mut arguments = Vec::new();
        let mut typed = typed.peekable();
        while let Some(argument) = typed.next() {
            let (name, joined) = argument
                .split_once('=')
                .map_or((argument.as_str(), false), |(name, _)| (name, true));
            if !PINNED.contains(&name) {
                arguments.push(argument);
            } else if !joined {
                drop(typed.next());
            }
        }
        for (name, value) in [
            ("--rounds", rounds.to_string()),
            ("--seed", seed.to_string()),
        ] {
            arguments.extend([name.to_owned(), value]);
        }
        RunRequest {
            arguments,
            spec: spec.to_owned(),
        }
    }

    /// Whether the spec was not written for the hosts that are behind it.
    pub fn names_hosts(&self) -> bool {
        let mut arguments = self.arguments.iter();
        arguments.any(|word| word == "--hosts" || word.starts_with("--hosts="))
    }

    /// Writes it; one that is there stays.
    pub fn keep(&self, folder: &Path) -> Result<(), String> {
        let place = folder.join(ORDER);
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        if place.exists() {
            return Ok(());
        }
        fs::write(&place, text + "\n")
            .map_err(|error| format!("cannot write {}: {error}", place.display()))
    }

    /// Reads it.
    pub fn read(folder: &Path) -> Result<RunRequest, String> {
        let place = folder.join(ORDER);
        let shown = place.display();
        let text = fs::read_to_string(&place).map_err(|error| {
            format!("cannot read {shown}: {error}. Only a folder of `lab run` can be resumed")
        })?;
        serde_json::from_str(&text)
            .map_err(|error| format!("{shown} is not a request of the lab: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_and_rounds_are_pinned_and_the_occasion_is_left_out() {
        let typed = [
            "demo",
            "--only",
            "plain",
            "--out",
            "here",
            "--seed=9",
            "--budget",
            "10m",
            "--duration",
            "2",
        ];
        let order = RunRequest::new(typed.into_iter().map(str::to_owned), "text", 4, 77);
        let wanted = [
            "demo",
            "--only",
            "plain",
            "--duration",
            "2",
            "--rounds",
            "4",
            "--seed",
            "77",
        ];
        assert_eq!(order.arguments, wanted);
    }

    #[test]
    fn a_file_of_hosts_is_noticed_however_it_was_typed() {
        let names_hosts = |typed: &[&str]| {
            let typed = typed.iter().map(|word| (*word).to_owned());
            RunRequest::new(typed, "text", 1, 1).names_hosts()
        };
        assert!(names_hosts(&["demo", "--hosts", "a.toml"]) && names_hosts(&["demo", "--hosts=a"]));
        assert!(!names_hosts(&["demo", "--only", "plain"]));
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let folder = std::env::temp_dir().join(format!("lab-order-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let order = RunRequest::new(["demo".to_owned()].into_iter(), "study = \"demo\"\n", 3, 1);
        order.keep(&folder).unwrap();
        assert_eq!(RunRequest::read(&folder).unwrap(), order);
        let missing = RunRequest::read(&folder.join("none")).unwrap_err();
        assert!(missing.contains("can be resumed"), "{missing}");
        fs::remove_dir_all(folder).unwrap();
    }
}
