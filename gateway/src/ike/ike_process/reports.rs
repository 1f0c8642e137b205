//! What the main process hears of peers: their states as they change, and everything when it asks.

use super::IkeProcess;
use crate::ike::message::{FromIke, IkeDrops, Reported};
use dataplane::io::udp::IkeSocket;

impl IkeProcess {
    /// Tells which peers have changed their state in this turn, so that the main process knows it without asking.
    pub(super) fn tell_states(&mut self) {
        let now = self.now();
        let endpoint = self.endpoint.as_mut();
        let changes = endpoint.map(|endpoint| endpoint.take_state_changes(now));
        if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
            self.push(&FromIke::States(changes));
        }
    }

    pub(super) fn report(&mut self, token: u64, which: &Reported) {
        let now = self.now();
        let peers = self.endpoint.as_mut().map(|endpoint| match which {
            Reported::All => endpoint.report_all(now),
            Reported::Changed => endpoint.report_changed(now),
            Reported::Named(names) => endpoint.report_named(names, now),
        });
        let sum = |count: fn(&IkeSocket) -> u64| self.sockets.iter().map(count).sum();
        let dropped = IkeDrops {
            not_ike: sum(IkeSocket::not_ike),
            unsent: sum(IkeSocket::unsent),
            no_room: self.refused,
        };
        self.push(&FromIke::Report {
            token,
            is_all: matches!(which, Reported::All),
            peers: peers.unwrap_or_default(),
            dropped,
        });
    }

    pub(super) fn why(&mut self, token: u64, connection: &str) {
        let now = self.now();
        let endpoint = self.endpoint.as_ref();
        let story = endpoint.and_then(|endpoint| endpoint.why(connection, now));
        self.push(&FromIke::Why { token, story });
    }
}
