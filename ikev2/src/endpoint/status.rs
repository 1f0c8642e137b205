//! What an endpoint knows, for `status` and `why`.

use super::{
    Endpoint, IkeReport, PeerReport, PeerState, StateChange, Story, StoryStep, peers::PeerRecord,
};
use crate::ike_sa::{IkeSa, State, Step};
use std::time::Duration;

impl Endpoint {
    /// Every connection at this moment.
    pub fn report(&self, now: Duration) -> Vec<PeerReport> {
        let records = self.shared.peers.records.values();
        records.map(|record| self.report_of(record, now)).collect()
    }

    /// The same; what [`Endpoint::report_changed`] then reports has changed since.
    pub fn report_all(&mut self, now: Duration) -> Vec<PeerReport> {
        for record in self.shared.peers.records.values_mut() {
            record.is_changed = false;
        }
        self.report(now)
    }

    /// The connections that may have changed since the last call. At the first one that is every connection.
    pub fn report_changed(&mut self, now: Duration) -> Vec<PeerReport> {
        let records = self.shared.peers.records.values_mut();
        let changed = records.filter_map(|record| {
            let is_changed = std::mem::take(&mut record.is_changed);
            is_changed.then(|| record.connection.name.clone())
        });
        let changed: Vec<_> = changed.collect();
        let records = changed
            .iter()
            .filter_map(|name| self.shared.peers.records.get(name));
        records.map(|record| self.report_of(record, now)).collect()
    }

    /// The connections of these names; unknown ones are left out.
    pub fn report_named(&self, names: &[String], now: Duration) -> Vec<PeerReport> {
        let records = names
            .iter()
            .filter_map(|name| self.shared.peers.records.get(name));
        records.map(|record| self.report_of(record, now)).collect()
    }

    /// The connections whose state has changed since the last call, once each; at the first one that is every
    /// connection. It costs nothing for those at rest, however many there are. One that was removed is not told.
    pub fn take_state_changes(&mut self, now: Duration) -> Vec<StateChange> {
        let names = self.shared.peers.take_untold();
        let changes = names.into_iter().filter_map(|connection| {
            let record = self.shared.peers.records.get(&connection)?;
            let state = self.state_of(record, now);
            let told = Some((without_time(&state), record.next_at));
            if record.told == told {
                return None;
            }
            self.shared.peers.records.get_mut(&connection)?.told = told;
            Some(StateChange { connection, state })
        });
        changes.collect()
    }

    /// The last negotiation of a connection: the one in progress, else the last that has ended.
    pub fn why(&self, connection: &str, now: Duration) -> Option<Story> {
        let record = self.shared.peers.records.get(connection)?;
        let in_progress = record.attempt.iter().chain(&record.up);
        let steps = in_progress.filter_map(|own| self.sas.get(own));
        let steps = steps.map(|sa| &sa.steps).next().unwrap_or(&record.story);
        // An attempt that has only begun does not explain why the one before failed.
        let before = record.attempt.filter(|_| *steps != record.story);
        let before = before.iter().flat_map(|_| record.story.iter());
        let step = |step: Step<'_>| StoryStep {
            ago: now.saturating_sub(step.at),
            is_failure: step.is_failure,
            text: step.text.to_owned(),
        };
        Some(Story {
            connection: connection.to_owned(),
            steps: before.chain(steps.iter()).map(step).collect(),
        })
    }

    fn report_of(&self, record: &PeerRecord, now: Duration) -> PeerReport {
        let up = record.up.iter().filter_map(|own| self.sas.get(own));
        let ike: Vec<_> = up.filter_map(|sa| sa.report(now)).collect();
        PeerReport {
            connection: record.connection.name.clone(),
            state: self.state_of(record, now),
            ike,
        }
    }

    fn state_of(&self, record: &PeerRecord, now: Duration) -> PeerState {
        let mut up = record.up.iter().filter_map(|own| self.sas.get(own));
        let attempt = record.attempt.and_then(|own| self.sas.get(&own));
        match (attempt, up.any(|sa| sa.known().is_some())) {
            (_, true) => PeerState::Up,
            (Some(attempt), false) => PeerState::Connecting {
                remote: attempt.path.remote,
                step: attempt.describe().to_owned(),
                last_failure: record.last_failure.clone(),
            },
            (None, false) => PeerState::Down {
                why: record
                    .last_failure
                    .clone()
                    .unwrap_or_else(|| nothing_yet(record).to_owned()),
                next_in: record.next_at.map(|at| at.saturating_sub(now)),
            },
        }
    }
}

/// The same at any time: the time until the next attempt changes by itself.
fn without_time(state: &PeerState) -> PeerState {
    match state {
        PeerState::Down { why, .. } => PeerState::Down {
            why: why.clone(),
            next_in: None,
        },
        other => other.clone(),
    }
}

fn nothing_yet(record: &PeerRecord) -> &'static str {
    match (record.connection.remote.is_empty(), record.is_wanted) {
        (true, _) => "the peer has not begun",
        (false, true) => "nothing was tried yet",
        (false, false) => "nothing has asked for it",
    }
}

impl IkeSa {
    fn describe(&self) -> &'static str {
        match &self.state {
            State::Initiating(_) => "IKE_SA_INIT: no answer yet",
            State::Responding(_) => "IKE_SA_INIT: keys are being made",
            State::Authenticating => "IKE_AUTH: waits for the proof of a side",
            State::Established(_) => "up",
            State::Closing(_) | State::Lingering(_) | State::Gone => "ending",
        }
    }

    fn report(&self, now: Duration) -> Option<IkeReport> {
        let known = self.known()?;
        let children = self.children.iter().map(|child| child.report(now));
        Some(IkeReport {
            spis: (self.spis.initiator, self.spis.responder),
            is_initiator: self.is_initiator,
            identity: known.identity.clone(),
            proof: known.proof.clone(),
            local: self.path.local,
            remote: self.path.remote,
            suite: self
                .algorithms
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            nat: (self.path.nat_local, self.path.nat_remote),
            age: now.saturating_sub(known.since),
            rekey_in: known.rekey_at.map(|at| at.saturating_sub(now)),
            children: children.collect(),
        })
    }
}
