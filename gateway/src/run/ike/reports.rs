//! The state of each peer, assembled from the ike process's reports, each of which holds only what has changed since
//! the last. It is kept as long as clients keep asking for it.

use ikev2::endpoint::PeerReport;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Reports that no client has asked for during this time are forgotten.
const KEPT_TIME: Duration = Duration::from_secs(30);

/// The last report of each peer.
#[derive(Default)]
pub(crate) struct Reports {
    all: HashMap<String, Report>,
    /// Whether nothing is missing, so that changes suffice.
    is_whole: bool,
    asked_at: Option<Instant>,
}

/// A report, and when it came.
pub(crate) struct Report {
    /// As it was then.
    pub peer: PeerReport,
    came_at: Instant,
}

impl Report {
    /// How much time has passed since.
    pub(crate) fn age(&self) -> Duration {
        self.came_at.elapsed()
    }
}

impl Reports {
    /// Notes that a report is asked for: whether it has to be of all peers.
    pub(crate) fn ask(&mut self, now: Instant) -> bool {
        self.asked_at = Some(now);
        !self.is_whole
    }

    /// Notes that single peers are asked for.
    pub(crate) fn ask_for_some(&mut self, now: Instant) {
        self.asked_at = Some(now);
    }

    /// Takes a report over.
    pub(crate) fn take(&mut self, is_all: bool, peers: Vec<PeerReport>, now: Instant) {
        if is_all {
            self.all.clear();
            self.is_whole = true;
        }
        for peer in peers {
            let name = peer.connection.clone();
            let came_at = now;
            self.all.insert(name, Report { peer, came_at });
        }
    }

    /// The last one of this peer.
    pub(crate) fn get(&self, name: &str) -> Option<&Report> {
        self.all.get(name)
    }

    /// Forgets all: the process is another one, or knows other peers.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Forgets all if no client has asked for long.
    pub(crate) fn forget_unused(&mut self, now: Instant) {
        let is_old = |asked: Instant| now.saturating_duration_since(asked) > KEPT_TIME;
        if self.asked_at.is_some_and(is_old) {
            self.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ikev2::endpoint::PeerState;

    fn report(name: &str, state: PeerState) -> PeerReport {
        PeerReport {
            connection: name.to_owned(),
            state,
            ike: Vec::new(),
        }
    }

    fn down(why: &str) -> PeerState {
        PeerState::Down {
            why: why.to_owned(),
            next_in: None,
        }
    }

    #[test]
    fn changes_are_put_over_what_was_reported_before() {
        let now = Instant::now();
        let mut reports = Reports::default();
        assert!(reports.ask(now), "nothing is known yet");
        let both = vec![report("a", down("no answer")), report("b", PeerState::Up)];
        reports.take(true, both, now);
        assert!(!reports.ask(now), "changes suffice");
        reports.take(false, vec![report("a", PeerState::Up)], now);
        let state = |name| reports.get(name).map(|report| report.peer.state.clone());
        assert_eq!(state("a"), Some(PeerState::Up));
        assert_eq!(state("b"), Some(PeerState::Up));
        reports.take(true, vec![report("a", down("taken down"))], now);
        assert!(reports.get("b").is_none(), "it is no peer any more");
    }

    #[test]
    fn what_is_not_asked_for_is_forgotten_and_then_reported_whole() {
        let now = Instant::now();
        let mut reports = Reports::default();
        reports.ask(now);
        reports.take(true, vec![report("a", PeerState::Up)], now);
        reports.forget_unused(now + KEPT_TIME);
        assert!(reports.get("a").is_some());
        reports.forget_unused(now + KEPT_TIME + Duration::from_secs(1));
        assert!(reports.get("a").is_none() && reports.ask(now));
    }
}
