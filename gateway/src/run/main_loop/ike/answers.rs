//! Requests about peers. Most answers depend on what the ike process reports: the client waits, the main thread does
//! not.

use super::Gateway;
use crate::control::{Answer, ClientId};
use crate::events::What;
use crate::ike::message::ToIke;
use crate::memory;
use crate::report;
use crate::run::ike::{AwaitedOutcome, KeyExchange, Waiting, peers_status, story_text};
use crate::run::main_loop::answers::associations;
use crate::status::{IkeStatus, Parts, PeerStatus, Status};
use dataplane::clock::now;
use ikev2::endpoint::{PeerReport, Story};
use ipsec::database::Snapshot;
use std::time::{Duration, Instant};

/// How long an answer of the ike process may take. A status is then given without it.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a command waits for its result.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

impl Gateway {
    /// Answers with the status, once the ike process has reported its peers.
    pub(in crate::run::main_loop) fn ask_status(&mut self, client: ClientId, as_table: bool) {
        let asked = self.ike.as_mut().filter(|ike| ike.runs()).and_then(|ike| {
            let token = ike.token();
            let all = ike.reports.ask(Instant::now());
            ike.send(ToIke::Report { token, all }).then_some(token)
        });
        match asked {
            Some(token) => {
                let wanted = AwaitedOutcome::Status { token, as_table };
                self.wait_for(client, wanted, REPORT_TIMEOUT);
            }
            None => {
                let answer = self.status_answer(false, as_table);
                self.server.answer(client, &answer);
            }
        }
    }

    /// `is_reported`: whether the ike process has answered.
    fn status_answer(&mut self, is_reported: bool, as_table: bool) -> Answer {
        // Nothing in a status is a key.
        memory::without_keys(|| match as_table {
            true => Answer::Text(self.status_table(is_reported)),
            false => Answer::Status(Box::new(self.status_with(is_reported))),
        })
    }

    fn status_with(&mut self, is_reported: bool) -> Status {
        let mut status = self.status();
        status.ike = self.ike_status();
        status.peers = self.peers(is_reported, &self.snapshot()).collect();
        status
    }

    fn status_table(&mut self, is_reported: bool) -> String {
        let mut status = self.summary();
        status.ike = self.ike_status();
        let (policies, snapshot) = (self.policies(), self.snapshot());
        let policy = policies.iter().map(report::policy);
        status.table_with(Parts {
            peers: &mut self.peers(is_reported, &snapshot),
            associations: (snapshot.sas().count(), &mut associations(&snapshot)),
            policies: (policies.len(), &mut { policy }),
        })
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
            let configured = ike.configured.iter();
            let names: Vec<_> = configured.map(|peer| &*peer.connection.name).collect();
            let reports = is_reported.then_some(&ike.reports);
            let each = peers_status(&names, reports, &ike.peers, snapshot, now());
            each.map(move |peer| PeerStatus {
                hooks: ike.hooks.status(&peer.name),
                ..peer
            })
        })
    }

    /// The story of the last negotiation.
    pub(in crate::run::main_loop) fn ask_why(&mut self, client: ClientId, name: &str) {
        if let Err(why) = self.check_peer(name) {
            return self.server.answer(client, &Answer::Refused(why));
        }
        let Some(ike) = &mut self.ike else { return };
        let token = ike.token();
        let connection = name.to_owned();
        ike.send(ToIke::Why { token, connection });
        self.wait_for(client, AwaitedOutcome::Why(token), REPORT_TIMEOUT);
    }

    /// Brings a peer up, takes it down, or rekeys it.
    pub(in crate::run::main_loop) fn command_peer(
        &mut self,
        client: ClientId,
        wanted: AwaitedOutcome,
    ) {
        let (AwaitedOutcome::Up(name)
        | AwaitedOutcome::Down(name)
        | AwaitedOutcome::Rekey { name, .. }) = &wanted
        else {
            return;
        };
        if let Err(why) = self.check_peer(name) {
            return self.server.answer(client, &Answer::Refused(why));
        }
        let Some(ike) = &mut self.ike else { return };
        let is_up = ike
            .peers
            .children()
            .any(|(peer, _, child)| peer == name && !child.is_orphaned);
        let connection = name.clone();
        let message = match &wanted {
            AwaitedOutcome::Down(_) => ToIke::Down { connection },
            AwaitedOutcome::Rekey { ike, .. } => ToIke::Rekey {
                connection,
                ike: *ike,
            },
            _ => ToIke::Up { connection },
        };
        if matches!(wanted, AwaitedOutcome::Rekey { .. }) && !is_up {
            let why = format!("peer {name} is not up: `esplanade up {name}` brings it up");
            return self.server.answer(client, &Answer::Refused(why));
        }
        ike.send(message);
        let at_once = match &wanted {
            AwaitedOutcome::Up(name) if is_up => Some(format!("peer {name} is up already\n")),
            AwaitedOutcome::Down(name) if !is_up => Some(format!(
                "peer {name} is down, and its networks stay closed\n"
            )),
            _ => None,
        };
        match at_once {
            Some(text) => self.server.answer(client, &Answer::Text(text)),
            None => self.wait_for(client, wanted, COMMAND_TIMEOUT),
        }
    }

    fn check_peer(&self, name: &str) -> Result<(), String> {
        let ike = self.ike.as_ref().filter(|ike| ike.is_used()).ok_or(
            "this gateway has no peers of IKE: they are in the file of `esplanade run --config FILE`",
        )?;
        let names: Vec<_> = ike
            .configured
            .iter()
            .map(|peer| &*peer.connection.name)
            .collect();
        if !names.contains(&name) {
            return Err(format!(
                "there is no peer {name}: the peers are {}",
                names.join(", ")
            ));
        }
        if !ike.runs() {
            return Err(ike
                .status()
                .trouble
                .unwrap_or_else(|| "key exchange does not run".to_owned()));
        }
        Ok(())
    }

    fn wait_for(&mut self, client: ClientId, wanted: AwaitedOutcome, time: Duration) {
        if let Some(ike) = &mut self.ike {
            let deadline = Instant::now() + time;
            ike.waiting.push(Waiting {
                client,
                wanted,
                deadline,
            });
        }
    }

    /// Those who wait and for whom `is_it` holds. They wait no longer.
    fn take_waiting(&mut self, is_it: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let Some(ike) = &mut self.ike else {
            return Vec::new();
        };
        ike.waiting
            .extract_if(.., |waiting| is_it(waiting))
            .collect()
    }

    pub(super) fn answer_report(&mut self, token: u64, is_all: bool, peers: Vec<PeerReport>) {
        let Some(ike) = &mut self.ike else { return };
        ike.reports.take(is_all, peers, Instant::now());
        let table = |waiting: &Waiting| match waiting.wanted {
            AwaitedOutcome::Status {
                token: known,
                as_table,
            } if known == token => Some(as_table),
            _ => None,
        };
        for waiting in self.take_waiting(|waiting| table(waiting).is_some()) {
            let as_table = table(&waiting) == Some(true);
            let answer = self.status_answer(true, as_table);
            self.server.answer(waiting.client, &answer);
        }
    }

    pub(super) fn answer_why(&mut self, token: u64, story: Option<&Story>) {
        let answer = match story {
            Some(story) => Answer::Text(story_text(story) + &self.hook_text(&story.connection)),
            None => Answer::Refused("IKE knows no such peer".to_owned()),
        };
        for waiting in self.take_waiting(|waiting| waiting.wanted == AwaitedOutcome::Why(token)) {
            self.server.answer(waiting.client, &answer);
        }
    }

    /// An event may be what clients wait for.
    pub(super) fn answer_event(&mut self, what: &What) {
        let answer = match what {
            What::PeerFailed { name, .. } => Answer::Refused(format!(
                "{what}\n`esplanade why {name}` shows each step of the negotiation"
            )),
            _ => Answer::Text(format!("{what}\n")),
        };
        let is_it = |waiting: &Waiting| match (&waiting.wanted, what) {
            (
                AwaitedOutcome::Up(wanted),
                What::ChildUp { name, .. } | What::PeerFailed { name, .. },
            )
            | (AwaitedOutcome::Down(wanted), What::PeerDown { name, .. })
            | (
                AwaitedOutcome::Rekey {
                    name: wanted,
                    ike: false,
                },
                What::Rekeyed {
                    name,
                    child: Some(_),
                },
            )
            | (
                AwaitedOutcome::Rekey {
                    name: wanted,
                    ike: true,
                },
                What::Rekeyed { name, child: None },
            ) => wanted == name,
            _ => false,
        };
        for waiting in self.take_waiting(is_it) {
            self.server.answer(waiting.client, &answer);
        }
    }

    /// Clients whose time is over get what is known.
    pub(super) fn answer_late(&mut self) {
        let now = Instant::now();
        for waiting in self.take_waiting(|waiting| waiting.deadline <= now) {
            let answer = match &waiting.wanted {
                AwaitedOutcome::Status { as_table, .. } => self.status_answer(false, *as_table),
                AwaitedOutcome::Why(_) => {
                    Answer::Refused("the key exchange process does not answer".to_owned())
                }
                AwaitedOutcome::Up(name) => Answer::Refused(format!(
                    "peer {name} is not up after {} s; attempts go on. `esplanade why {name}` shows each step",
                    COMMAND_TIMEOUT.as_secs()
                )),
                AwaitedOutcome::Down(name) => Answer::Text(format!(
                    "peer {name} is being taken down; it has not answered yet\n"
                )),
                AwaitedOutcome::Rekey { name, .. } => Answer::Refused(format!(
                    "peer {name} is not rekeyed after {} s. `esplanade why {name}` shows each step",
                    COMMAND_TIMEOUT.as_secs()
                )),
            };
            self.server.answer(waiting.client, &answer);
        }
    }
}
