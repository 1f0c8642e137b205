//! The status of a gateway with thousands of peers, associations or policies: how many are in which state, and the
//! peers that are not up.

use super::Status;
use super::peers::headline;
use super::table::{device_line, lines, machinery, opening};
use super::units::duration;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// With more peers, associations and policies together a status is a summary.
const MAX_TABLE_ENTRIES: usize = 600;

/// Peers that are not up, devices, paths: of each kind so many are listed, and the rest is a number.
const MAX_LISTED: usize = 50;

/// Whether a status with so many peers, associations and policies is a summary, unless everything is asked for.
pub(crate) fn is_summary(entries: usize) -> bool {
    entries > MAX_TABLE_ENTRIES
}

/// How a peer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum BriefState {
    /// Authenticated, with a child SA.
    Up,
    /// Authenticated, but nothing carries its traffic.
    UpWithoutChild,
    /// An attempt is on the way.
    Connecting,
    /// Neither.
    Down,
    /// Child SAs without an IKE SA still carry its traffic.
    Orphaned,
}

impl BriefState {
    fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::UpWithoutChild => "up without a child SA",
            Self::Connecting => "connecting",
            Self::Down => "down",
            Self::Orphaned => "orphaned",
        }
    }
}

/// One peer of a summary.
pub(crate) struct BriefPeer<'a> {
    /// Its name.
    pub name: &'a str,
    /// How it is.
    pub state: BriefState,
    /// Why it is not up.
    pub why: Option<String>,
    /// Seconds until the next attempt.
    pub next_attempt_seconds: Option<u64>,
    /// How its last hook ended, if that was a failure.
    pub hook_failure: Option<String>,
}

/// What a summary counts and lists.
#[derive(Default)]
pub(crate) struct Summary {
    peers: BTreeMap<BriefState, usize>,
    /// Lines about peers that are not up, and about hooks that have failed.
    not_up: Listed,
    hook_failures: Listed,
    associations: BTreeMap<&'static str, usize>,
    /// In the order in which they were added.
    policies: Vec<(&'static str, usize)>,
    /// How many seconds ago the key exchange process answered last, and for how many an answer has been missing.
    pub answer_age: Option<u64>,
    pub silence: Option<u64>,
}

/// The first lines of a list, and how many it has.
#[derive(Default)]
struct Listed {
    first: Vec<String>,
    count: usize,
}

impl Listed {
    fn add(&mut self, line: impl FnOnce() -> String) {
        if self.first.len() < MAX_LISTED {
            self.first.push(line());
        }
        self.count += 1;
    }

    fn write(&self, text: &mut String, what: &str) {
        for line in &self.first {
            let _ = writeln!(text, "  {line}");
        }
        let more = self.count - self.first.len();
        if more > 0 {
            let _ = writeln!(text, "  and {more} more {what}");
        }
    }
}

impl Summary {
    /// Counts a peer, and lists it if it is not up.
    pub(crate) fn add_peer(&mut self, peer: BriefPeer<'_>) {
        *self.peers.entry(peer.state).or_default() += 1;
        let (name, state) = (peer.name, peer.state);
        if let Some(failure) = peer.hook_failure {
            self.hook_failures
                .add(|| format!("{name}: hook {failure} · FAILED"));
        }
        if state != BriefState::Up {
            let (why, next) = (peer.why.as_deref(), peer.next_attempt_seconds);
            self.not_up
                .add(|| headline(name, state.name(), None, why, next));
        }
    }

    /// Counts an association in this phase of its life.
    pub(crate) fn add_association(&mut self, phase: &'static str) {
        *self.associations.entry(phase).or_default() += 1;
    }

    /// Adds the number of policies of a direction.
    pub(crate) fn add_policies(&mut self, direction: &'static str, count: usize) {
        self.policies.push((direction, count));
    }

    fn peers(&self) -> String {
        if self.peers.is_empty() {
            return String::new();
        }
        let each = self.peers.iter();
        let each = each.map(|(state, count)| (state.name(), *count));
        let mut text = counts("peers", each);
        self.not_up.write(&mut text, "that are not up");
        self.hook_failures.write(&mut text, "whose hook has failed");
        if let Some(seconds) = self.silence {
            let seconds = duration(seconds);
            let _ = writeln!(
                text,
                "IKE: the key exchange process has not answered for {seconds}: peers are shown as they were before"
            );
        } else if let Some(seconds) = self.answer_age {
            let seconds = duration(seconds);
            let _ = writeln!(text, "IKE: the key exchange process answered {seconds} ago");
        }
        text
    }
}

/// How many there are in all, and of each kind that there is.
fn counts<'a>(what: &str, each: impl Iterator<Item = (&'a str, usize)> + Clone) -> String {
    let all: usize = each.clone().map(|(_, count)| count).sum();
    let each = each.filter(|(_, count)| *count > 0);
    let each: String = each
        .map(|(name, count)| format!(" · {count} {name}"))
        .collect();
    format!("{what}: {all}{each}\n")
}

impl Status {
    /// For people, with numbers in place of what there are thousands of.
    pub(crate) fn summary(&self, summary: &Summary) -> String {
        let mut text = opening(self);
        text += &summary.peers();
        text += &machinery(self, self.brief_devices(), MAX_LISTED);
        let associations = summary.associations.iter();
        let associations = associations.map(|(phase, count)| (*phase, *count));
        text.push('\n');
        text += &counts("associations", associations);
        text += &counts("policies", summary.policies.iter().copied());
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        let of_peers = if summary.peers.is_empty() {
            ""
        } else {
            "`esplanade status NAME…` shows single peers, "
        };
        let _ = writeln!(
            text,
            "This is a summary: {of_peers}`esplanade status --all` lists everything."
        );
        text
    }

    /// Of more devices than are listed, those that lead nowhere.
    fn brief_devices(&self) -> String {
        let mut text = String::new();
        if self.interfaces.len() <= MAX_LISTED {
            lines(&mut text, &self.interfaces, MAX_LISTED, device_line);
            return text;
        }
        let lost = self.interfaces.iter().filter(|device| !device.leads_out);
        let lost: Vec<_> = lost.cloned().collect();
        let (all, without) = (self.interfaces.len(), lost.len());
        let _ = writeln!(
            text,
            "devices: {all} · {without} without an outbound association"
        );
        lines(&mut text, &lost, MAX_LISTED, device_line);
        text
    }
}

#[cfg(test)]
mod tests;
