//! Requests about single peers. Most answers depend on what the ike process reports: the client waits, the main thread
//! does not.

use super::Gateway;
use crate::control::{Answer, ClientId};
use crate::events::What;
use crate::failure::Failure;
use crate::ike::message::ToIke;
use crate::run::ike::{AwaitedOutcome, Waiting, story_text};
use ikev2::endpoint::Story;
use std::time::{Duration, Instant};

/// How long an answer of the ike process may take. A status is then given without it.
pub(super) const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a command waits for its result.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

/// The most names that a refusal lists.
const MAX_LISTED_NAMES: usize = 20;

/// The answer of a gateway without peers to a question about one.
pub(super) const WITHOUT_PEERS: &str =
    "this gateway has no peers of IKE: they are in the file of `esplanade run --config FILE`";

impl Gateway {
    /// The story of the last negotiation.
    pub(in crate::run::main_loop) fn ask_why(&mut self, client: ClientId, name: &str) {
        if let Err(why) = self.check_peer(name) {
            return self
                .server
                .answer(client, &Answer::Refused(why.to_string()));
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
            return self
                .server
                .answer(client, &Answer::Refused(why.to_string()));
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
            return self
                .server
                .answer(client, &Answer::Refused(why.to_string()));
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

    fn check_peer(&self, name: &str) -> Result<(), Failure> {
        let ike = self.ike.as_ref().filter(|ike| ike.is_used());
        let ike = ike.ok_or_else(|| Failure::new(WITHOUT_PEERS))?;
        let names = ike.configured.iter();
        let names: Vec<_> = names.map(|peer| &*peer.connection.name).collect();
        if !names.contains(&name) {
            return Err(Failure::new(no_such_peer(name, &names)));
        }
        if !ike.runs() {
            let trouble = ike.status().trouble;
            let why = trouble.as_deref().unwrap_or("key exchange does not run");
            return Err(Failure::new(why));
        }
        Ok(())
    }

    pub(super) fn wait_for(&mut self, client: ClientId, wanted: AwaitedOutcome, time: Duration) {
        if let Some(ike) = &mut self.ike {
            let deadline = Instant::now() + time;
            ike.waiting.push(Waiting {
                client,
                wanted,
                deadline,
            });
        }
    }

    /// Removes and returns the waiting clients for which `is_it` holds.
    pub(super) fn take_waiting(&mut self, is_it: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let Some(ike) = &mut self.ike else {
            return Vec::new();
        };
        ike.waiting
            .extract_if(.., |waiting| is_it(waiting))
            .collect()
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
                AwaitedOutcome::Status { form, .. } => self.status_answer(false, form),
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

/// Why a name is refused, with the names that there are.
pub(super) fn no_such_peer(name: &str, names: &[&str]) -> String {
    let first: Vec<_> = names.iter().take(MAX_LISTED_NAMES).copied().collect();
    let more = match names.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "there is no peer {name}: the peers are {}{more}",
        first.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_named_beside_some_that_there_are() {
        let refused = no_such_peer("offce", &["office", "branch"]);
        assert_eq!(
            refused,
            "there is no peer offce: the peers are office, branch"
        );
        let many = ["peer"; MAX_LISTED_NAMES + 5];
        assert!(no_such_peer("offce", &many).ends_with(", peer and 5 more"));
    }
}
