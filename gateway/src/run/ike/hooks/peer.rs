//! The hooks of one peer: how it is, what was told, what runs.

use crate::config::{ConfiguredHooks, HookCommand};
use crate::events::What;
use crate::status::HookStatus;
use ikev2::endpoint::ChildId;
use std::collections::BTreeSet;
use std::time::Instant;

/// Names and values of a hook's environment, but for the event itself.
pub(crate) type Facts = Vec<(String, String)>;

/// One peer.
#[derive(Default)]
pub(super) struct PeerHooks {
    /// As configured last.
    pub hooks: ConfiguredHooks,
    /// Whether it waits to be looked at.
    pub is_queued: bool,
    /// Whether it is configured still.
    pub is_configured: bool,
    /// Its installed child SAs.
    children: BTreeSet<ChildId>,
    /// How it is: up since these facts were collected, or down.
    pub wanted: Option<Facts>,
    /// What its hooks were told last.
    told: Option<Facts>,
    /// Why it went down.
    pub reason: String,
    /// The hook that runs.
    pub running: Option<Run>,
    last: Option<Last>,
}

/// A run under way.
pub(super) struct Run {
    is_up: bool,
    hook: HookCommand,
    since: Instant,
}

/// How the last run ended.
struct Last {
    text: String,
    is_failure: bool,
}

impl PeerHooks {
    /// A pair is installed.
    pub(super) fn add_child(&mut self, child: ChildId) {
        self.children.insert(child);
    }

    /// A pair has gone. True if the peer has gone down with it. Where new pairs replace old ones both are there for a
    /// while, so a rekey is no reason.
    pub(super) fn remove_child(&mut self, child: ChildId) -> bool {
        self.children.remove(&child);
        self.children.is_empty() && self.wanted.take().is_some()
    }

    /// It is up. The facts of the first time count while it stays up.
    pub(super) fn rise(&mut self, facts: Facts) {
        if self.wanted.is_none() && !self.children.is_empty() {
            self.wanted = Some(facts);
        }
    }

    /// What its hooks were told, if it is up.
    pub(super) fn told(&self) -> Option<&Facts> {
        self.told.as_ref()
    }

    /// It is up, and the hooks of the gateway before were told so.
    pub(super) fn was_told(&mut self, facts: Facts) {
        self.told = Some(facts.clone());
        self.wanted = Some(facts);
    }

    /// Whether there is nothing left to tell of a peer that is not configured any more.
    pub(super) fn is_over(&self) -> bool {
        !self.is_configured && self.wanted.is_none() && self.told.is_none()
    }

    /// The next run: up or down, and its facts. From then on it counts as told.
    pub(super) fn next(&mut self) -> Option<(bool, Facts)> {
        if self.told == self.wanted {
            return None;
        }
        match self.told.take() {
            Some(before) => Some((false, before)),
            None => {
                self.told.clone_from(&self.wanted);
                Some((true, self.told.clone()?))
            }
        }
    }

    /// The hook for this run, which runs from now on; none if it has none.
    pub(super) fn begin(&mut self, is_up: bool) -> Option<HookCommand> {
        let hook = if is_up {
            &self.hooks.up
        } else {
            &self.hooks.down
        };
        let hook = hook.clone()?;
        self.running = Some(Run {
            is_up,
            hook: hook.clone(),
            since: Instant::now(),
        });
        Some(hook)
    }

    /// The run has ended, or did not begin.
    pub(super) fn end(&mut self, name: &str, how: &str, is_failure: bool) -> Option<What> {
        let run = self.running.take()?;
        let key = run.key();
        let text = format!("{key} {}: {how}", run.hook);
        self.last = Some(Last { text, is_failure });
        Some(What::HookEnded {
            name: name.to_owned(),
            hook: key.to_owned(),
            program: run.hook.to_string(),
            result: how.to_owned(),
            failed: is_failure,
        })
    }

    /// For `status`.
    pub(super) fn status(&self, now: Instant) -> HookStatus {
        let last = self.last.as_ref();
        let running = self.running.as_ref();
        HookStatus {
            told: if self.told.is_some() { "up" } else { "down" }.to_owned(),
            running: running.map(|run| format!("{} {}", run.key(), run.hook)),
            running_seconds: running.map(|run| now.duration_since(run.since).as_secs()),
            last: last.map(|last| last.text.clone()),
            failed: last.is_some_and(|last| last.is_failure),
        }
    }
}

impl Run {
    fn key(&self) -> &'static str {
        if self.is_up { "on_up" } else { "on_down" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(remote: &str) -> Facts {
        vec![("ESPLANADE_REMOTE_ADDRESS".to_owned(), remote.to_owned())]
    }

    fn up_with(child: u64, remote: &str) -> PeerHooks {
        let mut peer = PeerHooks::default();
        peer.add_child(ChildId(child));
        peer.rise(facts(remote));
        assert_eq!(peer.next(), Some((true, facts(remote))));
        assert_eq!(peer.next(), None);
        peer
    }

    #[test]
    fn a_pair_that_replaces_another_is_no_news() {
        let mut peer = up_with(1, "a");
        for new in 2..9 {
            peer.add_child(ChildId(new));
            peer.rise(facts("another address"));
            assert!(!peer.remove_child(ChildId(new - 1)));
            assert_eq!(peer.next(), None);
        }
        assert!(peer.remove_child(ChildId(8)));
        assert_eq!(peer.next(), Some((false, facts("a"))));
        assert_eq!(peer.next(), None);
    }

    #[test]
    fn down_and_up_while_a_hook_runs_costs_no_run_if_nothing_has_changed() {
        let mut peer = up_with(1, "a");
        assert!(peer.remove_child(ChildId(1)));
        peer.add_child(ChildId(2));
        peer.rise(facts("a"));
        assert_eq!(peer.next(), None);
        assert!(peer.remove_child(ChildId(2)));
        assert_eq!(peer.next(), Some((false, facts("a"))));
    }

    #[test]
    fn one_that_comes_back_with_other_facts_is_told_down_and_up() {
        let mut peer = up_with(1, "a");
        assert!(peer.remove_child(ChildId(1)));
        peer.add_child(ChildId(2));
        peer.rise(facts("b"));
        assert_eq!(peer.next(), Some((false, facts("a"))));
        assert_eq!(peer.next(), Some((true, facts("b"))));
        assert_eq!(peer.next(), None);
    }

    #[test]
    fn one_that_goes_before_it_was_told_is_never_told() {
        let mut peer = PeerHooks::default();
        peer.add_child(ChildId(1));
        peer.rise(facts("a"));
        assert!(peer.remove_child(ChildId(1)));
        assert_eq!(peer.next(), None);
        // The news of a pair that has gone already.
        peer.rise(facts("a"));
        assert_eq!(peer.next(), None);
    }

    #[test]
    fn a_run_is_shown_while_it_lasts_and_as_the_last_one_afterwards() {
        let hook = HookCommand {
            program: "/bin/true".to_owned(),
            arguments: vec!["x".to_owned()],
        };
        let mut peer = up_with(1, "a");
        assert_eq!(peer.begin(true), None);
        peer.hooks.down = Some(hook.clone());
        assert_eq!(peer.begin(false), Some(hook));
        let shown = peer.status(Instant::now());
        assert_eq!(shown.running.as_deref(), Some("on_down /bin/true x"));
        let what = peer
            .end("office", "exit status 1 after 0.10 s", true)
            .unwrap();
        assert_eq!(
            what.to_string(),
            "peer office: on_down /bin/true x: exit status 1 after 0.10 s"
        );
        let shown = peer.status(Instant::now());
        assert!(shown.failed && shown.running.is_none());
    }
}
