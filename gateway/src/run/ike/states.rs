//! What the ike process tells without being asked: the state of each peer, whenever it changes. With it the main
//! process answers a summary of thousands of peers alone. That the process still answers is asked for now and then.

use ikev2::endpoint::{PeerState, StateChange};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often the ike process is asked for a sign of life.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// How long an answer may take before the process counts as one that does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The last state of each peer.
#[derive(Default)]
pub(crate) struct States(HashMap<String, State>);

/// A state, and when it came.
pub(crate) struct State {
    /// As it was then.
    pub now: PeerState,
    came_at: Instant,
}

impl State {
    /// How much time has passed since it came.
    pub(crate) fn age(&self) -> Duration {
        self.came_at.elapsed()
    }
}

impl States {
    /// Takes changes over.
    pub(crate) fn take(&mut self, changes: Vec<StateChange>, came_at: Instant) {
        let state = |change: StateChange| {
            let now = change.state;
            (change.connection, State { now, came_at })
        };
        self.0.extend(changes.into_iter().map(state));
    }

    /// The last one of this peer.
    pub(crate) fn get(&self, name: &str) -> Option<&State> {
        self.0.get(name)
    }

    /// Forgets all peers but these.
    pub(crate) fn keep(&mut self, names: &HashSet<&str>) {
        self.0.retain(|name, _| names.contains(&**name));
    }
}

/// Whether the ike process answers.
#[derive(Default)]
pub(crate) struct Contact {
    asked_at: Option<Instant>,
    /// Since when an answer is missing.
    unanswered_since: Option<Instant>,
    answered_at: Option<Instant>,
}

impl Contact {
    /// Whether it is time for the next probe, which then has to be sent.
    pub(crate) fn must_ask(&mut self, now: Instant) -> bool {
        let is_due = self
            .asked_at
            .is_none_or(|asked| now >= asked + PROBE_INTERVAL);
        if is_due {
            self.asked_at = Some(now);
            self.unanswered_since.get_or_insert(now);
        }
        is_due
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.answered_at = Some(now);
        self.unanswered_since = None;
    }

    /// How long ago it answered last.
    pub(crate) fn answer_age(&self, now: Instant) -> Option<Duration> {
        let answered = self.answered_at?;
        Some(now.saturating_duration_since(answered))
    }

    /// For how long an answer has been missing, once that is too long.
    pub(crate) fn silence(&self, now: Instant) -> Option<Duration> {
        let silence = now.saturating_duration_since(self.unanswered_since?);
        (silence >= ANSWER_TIMEOUT).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, state: PeerState) -> StateChange {
        let connection = name.to_owned();
        StateChange { connection, state }
    }

    #[test]
    fn the_last_state_of_a_peer_counts_and_a_peer_that_is_not_configured_has_none() {
        let why = "no answer".to_owned();
        let down = PeerState::Down { why, next_in: None };
        let mut states = States::default();
        let both = vec![change("a", down.clone()), change("b", PeerState::Up)];
        states.take(both, Instant::now());
        states.take(vec![change("a", PeerState::Up)], Instant::now());
        let state = |states: &States, name| states.get(name).map(|state| state.now.clone());
        assert_eq!(state(&states, "a"), Some(PeerState::Up));
        states.take(vec![change("b", down.clone())], Instant::now());
        states.keep(&HashSet::from(["b"]));
        assert_eq!(
            (state(&states, "a"), state(&states, "b")),
            (None, Some(down))
        );
    }

    #[test]
    fn a_process_that_does_not_answer_is_noticed_after_a_while() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut contact = Contact::default();
        assert!(contact.must_ask(begin));
        assert!(!contact.must_ask(begin + 4 * second));
        assert_eq!(contact.answer_age(begin), None);
        contact.answered(begin + second);
        assert_eq!(contact.answer_age(begin + 3 * second), Some(2 * second));
        assert!(contact.must_ask(begin + 5 * second));
        assert_eq!(contact.silence(begin + 9 * second), None);
        // Further questions do not make the silence shorter.
        assert!(contact.must_ask(begin + 10 * second));
        assert_eq!(contact.silence(begin + 12 * second), Some(7 * second));
        contact.answered(begin + 13 * second);
        assert_eq!(contact.silence(begin + 14 * second), None);
    }
}
