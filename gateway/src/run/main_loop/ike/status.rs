//! Answers to `status`. What a summary shows is known here; for everything else the ike process is asked, and the
//! client waits.
//!
//! ```text
//!   ike process ── States, whenever one changes ──► States ──► summary, at once
//!               ◄─ Report ── status of few peers, NAME, --all, --json
//!               ── Report ──► Reports ──► table, data
//! ```

use super::super::Gateway;
use super::answers::{REPORT_TIMEOUT, WITHOUT_PEERS, no_such_peer};
use crate::control::{Answer, ClientId, StatusQuestion};
use crate::events::direction_name;
use crate::ike::message::{Reported, ToIke};
use crate::memory;
use crate::report;
use crate::run::ike::{
    AwaitedOutcome, KeyExchange, StatusForm, Waiting, brief_peers, peer_status, peers_status,
};
use crate::run::main_loop::answers::associations;
use crate::status::{
    BriefPeer, IkeStatus, Parts, PeerStatus, Status, Summary, is_summary, peers_table,
};
use dataplane::clock::now;
use ikev2::endpoint::PeerReport;
use ipsec::database::Snapshot;
use ipsec::policy::Direction;
use ipsec::sa::{Sa, SaId};
use std::collections::HashSet;
use std::time::Instant;

const DIRECTIONS: [Direction; 3] = [Direction::Out, Direction::In, Direction::Fwd];

impl Gateway {
    /// Answers a question of a person.
    pub(in crate::run::main_loop) fn ask_status_text(
        &mut self,
        client: ClientId,
        question: StatusQuestion,
    ) {
        let StatusQuestion { peers, all } = question;
        if !peers.is_empty() {
            return match self.why_not_shown(&peers) {
                Some(why) => self.server.answer(client, &Answer::Refused(why)),
                None => self.ask_status(client, StatusForm::Peers(peers)),
            };
        }
        if all || !is_summary(self.status_entries()) {
            return self.ask_status(client, StatusForm::Table);
        }
        let text = memory::without_keys(|| self.status_summary());
        self.server.answer(client, &Answer::Text(text));
    }

    /// Answers with the status, once the ike process has reported its peers.
    pub(in crate::run::main_loop) fn ask_status(&mut self, client: ClientId, form: StatusForm) {
        let asked = self.ike.as_mut().filter(|ike| ike.runs()).and_then(|ike| {
            let token = ike.token();
            let which = match &form {
                StatusForm::Peers(names) => {
                    ike.reports.ask_for_some(Instant::now());
                    Reported::Named(names.clone())
                }
                _ if ike.reports.ask(Instant::now()) => Reported::All,
                _ => Reported::Changed,
            };
            ike.send(ToIke::Report { token, which }).then_some(token)
        });
        match asked {
            Some(token) => {
                let wanted = AwaitedOutcome::Status { token, form };
                self.wait_for(client, wanted, REPORT_TIMEOUT);
            }
            None => {
                let answer = self.status_answer(false, &form);
                self.server.answer(client, &answer);
            }
        }
    }

    /// The ike process has reported what clients wait for.
    pub(super) fn answer_report(&mut self, token: u64, is_all: bool, peers: Vec<PeerReport>) {
        let Some(ike) = &mut self.ike else { return };
        ike.reports.take(is_all, peers, Instant::now());
        let is_it = |waiting: &Waiting| match waiting.wanted {
            AwaitedOutcome::Status { token: known, .. } => known == token,
            _ => false,
        };
        for waiting in self.take_waiting(is_it) {
            if let AwaitedOutcome::Status { form, .. } = &waiting.wanted {
                let answer = self.status_answer(true, form);
                self.server.answer(waiting.client, &answer);
            }
        }
    }

    /// `is_reported`: whether the ike process has answered.
    pub(super) fn status_answer(&mut self, is_reported: bool, form: &StatusForm) -> Answer {
        // Nothing in a status is a key.
        memory::without_keys(|| match form {
            StatusForm::Data => Answer::Status(Box::new(self.status_with(is_reported))),
            StatusForm::Table => Answer::Text(self.status_table(is_reported)),
            StatusForm::Peers(names) => Answer::Text(self.status_of_peers(is_reported, names)),
        })
    }

    fn status_with(&mut self, is_reported: bool) -> Status {
        let mut status = self.status();
        status.ike = self.ike_status();
        status.peers = self.peers(is_reported, &self.snapshot()).collect();
        status
    }

    fn status_table(&mut self, is_reported: bool) -> String {
        let mut status = self.bare_status();
        status.ike = self.ike_status();
        let (policies, snapshot) = (self.policies(), self.snapshot());
        let policy = policies.iter().map(report::policy);
        let directions = self.plane.kernel().kept_directions();
        status.table_with(Parts {
            peers: &mut self.peers(is_reported, &snapshot),
            associations: (
                snapshot.sas().count(),
                &mut associations(&snapshot, directions, |_| true),
            ),
            policies: (policies.len(), &mut { policy }),
        })
    }

    /// The peers of these names, with their associations.
    fn status_of_peers(&mut self, is_reported: bool, names: &[String]) -> String {
        let snapshot = self.snapshot();
        let directions = self.plane.kernel().kept_directions();
        let Some(ike) = &self.ike else {
            return String::new();
        };
        let mut seen = HashSet::new();
        let names: Vec<_> = names
            .iter()
            .map(String::as_str)
            .filter(|name| seen.insert(*name))
            .collect();
        let reports = is_reported.then_some(&ike.reports);
        let each = names
            .iter()
            .map(|name| peer_status(name, reports, &ike.peers, &snapshot, now()));
        let mut each = each.map(|peer| with_hooks(ike, peer));
        let children = names.iter().flat_map(|name| ike.peers.children_of(name));
        let ids = children.flat_map(|(_, child)| child.associations.both());
        let ids: HashSet<SaId> = ids.map(|config| config.id).collect();
        let is_theirs = |sa: &Sa| ids.contains(&sa.config.id);
        let of_them: Vec<_> = associations(&snapshot, directions, is_theirs).collect();
        let count = of_them.len();
        peers_table(&mut each, (count, &mut of_them.into_iter()))
    }

    /// How many peers, associations and policies there are.
    fn status_entries(&self) -> usize {
        let ike = self.ike.as_ref().filter(|ike| ike.is_used());
        let peers = ike.map_or(0, |ike| ike.configured.len());
        let snapshot = self.snapshot();
        let policies = DIRECTIONS.map(|direction| snapshot.policies(direction).count());
        peers + snapshot.sas().count() + policies.into_iter().sum::<usize>()
    }

    /// What there is by numbers, from what this process knows.
    fn status_summary(&mut self) -> String {
        let mut status = self.bare_status();
        status.ike = self.ike_status();
        let snapshot = self.snapshot();
        let mut summary = Summary::default();
        for sa in snapshot.sas() {
            summary.add_association(report::phase_name(sa.state.usage().phase));
        }
        for direction in DIRECTIONS {
            let count = snapshot.policies(direction).count();
            summary.add_policies(direction_name(direction), count);
        }
        if let Some(ike) = self.ike.as_ref().filter(|ike| ike.is_used()) {
            let names = configured_names(ike);
            for peer in brief_peers(&names, &ike.states, &ike.peers) {
                let hooks = ike.hooks.status(peer.name).filter(|hooks| hooks.failed);
                summary.add_peer(BriefPeer {
                    hook_failure: hooks.and_then(|hooks| hooks.last),
                    ..peer
                });
            }
            let at = Instant::now();
            summary.answer_age = ike.contact.answer_age(at).map(|age| age.as_secs());
            summary.silence = ike.contact.silence(at).map(|silence| silence.as_secs());
        }
        status.summary(&summary)
    }

    fn ike_status(&self) -> Option<IkeStatus> {
        let ike = self.ike.as_ref().filter(|ike| ike.is_used());
        ike.map(KeyExchange::status)
    }

    fn peers<'a>(
        &'a self,
        is_reported: bool,
        snapshot: &'a Snapshot,
    ) -> impl Iterator<Item = PeerStatus> + use<'a> {
        let ike = self.ike.as_ref().filter(|ike| ike.is_used());
        ike.into_iter().flat_map(move |ike| {
            let reports = is_reported.then_some(&ike.reports);
            let each = peers_status(&configured_names(ike), reports, &ike.peers, snapshot, now());
            each.map(move |peer| with_hooks(ike, peer))
        })
    }

    /// Why peers of these names cannot be shown. One that is not configured any more can be, for as long as it has a
    /// child SA.
    fn why_not_shown(&self, asked: &[String]) -> Option<String> {
        let Some(ike) = self.ike.as_ref().filter(|ike| ike.is_used()) else {
            return Some(WITHOUT_PEERS.to_owned());
        };
        let names = configured_names(ike);
        let known: HashSet<&str> = names.iter().copied().collect();
        let is_unknown = |name: &&String| {
            !known.contains(name.as_str()) && ike.peers.children_of(name).next().is_none()
        };
        let unknown = asked.iter().find(is_unknown)?;
        Some(no_such_peer(unknown, &names))
    }
}

fn configured_names(ike: &KeyExchange) -> Vec<&str> {
    let configured = ike.configured.iter();
    configured.map(|peer| &*peer.connection.name).collect()
}

fn with_hooks(ike: &KeyExchange, peer: PeerStatus) -> PeerStatus {
    PeerStatus {
        hooks: ike.hooks.status(&peer.name),
        ..peer
    }
}
