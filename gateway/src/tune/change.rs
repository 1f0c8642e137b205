//! Changing and restoring settings.
//!
//! INVARIANT: the state file has the old value before a setting is changed, and drops it only after it was restored.

use super::host::{Host, Reading, Target};
use super::report::Row;
use super::state::{Changed, State};
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::Path;

/// The outcome for one target.
#[derive(Serialize, Debug, PartialEq)]
pub(super) struct Outcome {
    pub name: String,
    pub target: String,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Serialize, Debug, PartialEq)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(super) enum What {
    /// It has another value now.
    Changed { from: String, to: String },
    /// Changed as far as the kernel allows.
    ChangedInPart {
        from: String,
        to: String,
        wanted: String,
    },
    /// Nothing had to be done.
    Good { value: String },
    /// The driver does not allow a change.
    Fixed { value: String },
    /// The device or the setting no longer exists, so its old value is discarded.
    Gone,
    /// It was set by another program since.
    NotOurs {
        value: String,
        ours: String,
        before: String,
    },
    /// It belongs to another network namespace.
    Elsewhere { network: String },
    /// The kernel refused.
    Refused { why: String },
}

impl Outcome {
    /// Whether the requested change was not made.
    pub(super) fn failed(&self) -> bool {
        matches!(
            self.what,
            What::NotOurs { .. } | What::Refused { .. } | What::Elsewhere { .. }
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): ", self.name, self.target)?;
        match &self.what {
            What::Changed { from, to } => write!(f, "{from} -> {to}"),
            What::ChangedInPart { from, to, wanted } => {
                write!(f, "{from} -> {to} ({wanted} was requested)")
            }
            What::Good { value } => write!(f, "{value} already"),
            What::Fixed { value } => write!(f, "{value}, fixed by the driver"),
            What::Gone => f.write_str("no longer exists"),
            What::NotOurs {
                value,
                ours,
                before,
            } => write!(
                f,
                "not restored: it was changed to {value} after `tune apply` set {ours}; --force restores {before}"
            ),
            What::Elsewhere { network } => {
                write!(
                    f,
                    "not restored: it was changed in the network namespace {network}; revert it there"
                )
            }
            What::Refused { why } => write!(f, "not changed: {why}"),
        }
    }
}

/// Writes the recommended value to every target of `rows`.
pub(super) fn apply(
    host: &dyn Host,
    path: &Path,
    state: &mut State,
    rows: &[Row],
) -> io::Result<Vec<Outcome>> {
    let network = host.network();
    let all = || {
        rows.iter()
            .flat_map(|row| row.spots.iter().map(move |spot| (row, spot)))
    };
    for (row, spot) in all() {
        if let (Some(current), Some(proposal)) = (&spot.current, &spot.proposal) {
            state.note(row.name, &spot.target, &network, current, proposal);
        }
    }
    state.save(path)?;
    let mut outcomes = Vec::new();
    for (row, spot) in all() {
        let what = match (&spot.current, &spot.proposal, &spot.problem) {
            (Some(current), Some(proposal), _) => {
                let what = set(host, &spot.target, current, proposal);
                follow(state, &spot.target, &network, &what);
                what
            }
            (Some(current), None, Some(_)) => What::Fixed {
                value: current.clone(),
            },
            (None, _, problem) => What::Refused {
                why: problem.clone().unwrap_or_default(),
            },
            (Some(current), None, None) => What::Good {
                value: current.clone(),
            },
        };
        outcomes.push(Outcome {
            name: row.name.to_owned(),
            target: spot.target.clone(),
            what,
        });
    }
    state.save(path)?;
    Ok(outcomes)
}

/// Writes a value, and reads back what the kernel made of it.
fn set(host: &dyn Host, target: &str, from: &str, wanted: &str) -> What {
    let Some(place) = Target::parse(target) else {
        return What::Refused {
            why: "this is no target".to_owned(),
        };
    };
    if let Err(error) = host.write(&place, wanted) {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                " (needs root with CAP_NET_ADMIN; some settings can be changed only in the host's own namespace)"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                " (this container may not change host settings: set it on the host)"
            }
            _ => "",
        };
        return What::Refused {
            why: format!("{error}{advice}"),
        };
    }
    let from = from.to_owned();
    match host.read(&place) {
        Reading::Value(now) if now == wanted => What::Changed { from, to: now },
        Reading::Value(now) if now == from => What::Refused {
            why: format!("the kernel accepted {wanted} but kept {now}"),
        },
        Reading::Value(now) => What::ChangedInPart {
            from,
            to: now,
            wanted: wanted.to_owned(),
        },
        _ => What::Gone,
    }
}

/// The state after a target was written.
fn follow(state: &mut State, target: &str, network: &str, what: &What) {
    let Some(known) = state.find(target, network) else {
        return;
    };
    match what {
        What::ChangedInPart { to, .. } => known.written.push(to.clone()),
        What::Refused { .. } => {
            known.written.pop();
            if known.written.is_empty() {
                forget(state, target, network);
            }
        }
        _ => {}
    }
}

fn forget(state: &mut State, target: &str, network: &str) {
    let is_it = |one: &Changed| one.target == target && one.network == network;
    state.changed.retain(|one| !is_it(one));
}

/// Restores the settings of these names, or all of them, the latest change first; what could not be restored stays in
/// the state file.
pub(super) fn revert(
    host: &dyn Host,
    state: &mut State,
    names: &[&str],
    force: bool,
) -> Vec<Outcome> {
    let network = host.network();
    let is_meant = |one: &&Changed| names.is_empty() || names.contains(&one.name.as_str());
    let chosen: Vec<Changed> = state
        .changed
        .iter()
        .rev()
        .filter(is_meant)
        .cloned()
        .collect();
    let mut outcomes = Vec::new();
    for one in chosen {
        let what = if one.network == network {
            put_back(host, &one, force)
        } else {
            What::Elsewhere {
                network: one.network.clone(),
            }
        };
        let outcome = Outcome {
            name: one.name,
            target: one.target,
            what,
        };
        if !outcome.failed() {
            forget(state, &outcome.target, &one.network);
        }
        outcomes.push(outcome);
    }
    outcomes
}

fn put_back(host: &dyn Host, one: &Changed, force: bool) -> What {
    let current = match Target::parse(&one.target).map(|target| host.read(&target)) {
        Some(Reading::Value(current)) => current,
        Some(Reading::Absent) => return What::Gone,
        Some(Reading::Unreadable(why)) => return What::Refused { why },
        Some(Reading::Fixed(value)) => {
            let why = format!("{value} is fixed by the driver now");
            return What::Refused { why };
        }
        None => {
            let why = "this is no target".to_owned();
            return What::Refused { why };
        }
    };
    if current == one.before {
        return What::Good { value: current };
    }
    if !force && !one.written.contains(&current) {
        return What::NotOurs {
            value: current,
            ours: one.written.last().cloned().unwrap_or_default(),
            before: one.before.clone(),
        };
    }
    match set(host, &one.target, &current, &one.before) {
        What::ChangedInPart { to, wanted, .. } => What::Refused {
            why: format!("the kernel set {to} instead of {wanted}"),
        },
        what => what,
    }
}
