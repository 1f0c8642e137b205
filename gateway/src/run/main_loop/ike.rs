//! Key exchange in the main thread: what its processes ask for, what the plane reports to them, and clients that wait
//! for either.
//!
//! ```text
//!   ike process ── Install, UseOutbound, Remove ──► commands ──► plane ── Installed ──► ike process
//!   plane ── packets without an association, limits, first packets ─────────────────────────┘
//! ```

mod answers;
mod uses;

use super::Gateway;
use crate::config::{self, ConfiguredPeer};
use crate::events::What;
use crate::failure::Failure;
use crate::ike::message::{FromIke, ToIke};
use crate::memory;
use crate::plane::Plane as _;
use crate::run::ike::{Change, KeyExchange, what};
use ikev2::endpoint::{ChildId, ChildSa, Event};
use ipsec::sa::SaId;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Messages of the ike process that are handled before the main thread looks at everything else again.
const MAX_MESSAGES_PER_ROUND: usize = 64;

/// How long the end of the gateway waits until every peer has been told.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

impl Gateway {
    /// Closes the networks of every peer. No key exists yet.
    pub(super) fn close_peers(&mut self) -> Result<(), Failure> {
        let Some(mut ike) = self.ike.take() else {
            return Ok(());
        };
        let connections: Vec<_> = ike
            .configured
            .iter()
            .map(|peer| peer.connection.clone())
            .collect();
        let mut outcome = Ok(());
        for connection in &connections {
            let change = ike.peers.close(connection);
            outcome = outcome.and(self.apply_change(&mut ike, change));
        }
        self.ike = Some(ike);
        outcome.map_err(Failure::new)
    }

    /// Starts the processes, at first and after they have ended.
    pub(super) fn start_ike(&mut self) {
        let Some(ike) = &mut self.ike else { return };
        if let Err(error) = memory::with_keys(|| ike.start()) {
            (self.warnings.warn_once())(&format!(
                "the key exchange processes cannot be started: {error}; this is tried again"
            ));
        }
    }

    /// Handles what the ike process has sent.
    pub(super) fn hear_ike(&mut self) {
        for _ in 0..MAX_MESSAGES_PER_ROUND {
            let Some(ike) = self.ike.as_mut().filter(|ike| ike.runs()) else {
                return;
            };
            match ike.receive() {
                Ok(Some(message)) => self.take_message(message),
                Ok(None) => break,
                Err(error) => {
                    self.lose_ike(&error.to_string());
                    break;
                }
            }
            memory::wipe_stack();
        }
    }

    fn take_message(&mut self, message: FromIke) {
        match message {
            FromIke::Install(child) => self.install_child(&child),
            FromIke::UseOutbound(child) => self.use_outbound(child),
            FromIke::Remove { child, .. } => self.remove_children(&[child]),
            FromIke::Event(event) => self.take_event(event),
            FromIke::Report { token, peers, .. } => self.answer_report(token, &peers),
            FromIke::Why { token, story } => self.answer_why(token, story.as_ref()),
            FromIke::LogKeys { .. } | FromIke::Stopped => {}
        }
    }

    fn install_child(&mut self, child: &ChildSa) {
        let Some(mut ike) = self.ike.take() else {
            return;
        };
        let orphans = ike.peers.orphans_before(child);
        let change = ike.peers.install(child);
        let outcome = self.apply_change(&mut ike, change);
        if outcome.is_ok() {
            ike.retire(orphans);
        }
        ike.send(ToIke::Installed {
            child: child.id,
            outcome,
        });
        self.ike = Some(ike);
    }

    fn use_outbound(&mut self, id: ChildId) {
        let Some(mut ike) = self.ike.take() else {
            return;
        };
        let change = ike.peers.use_outbound(id);
        if let Err(why) = self.apply_change(&mut ike, change) {
            (self.warnings.warn_once())(&format!(
                "traffic cannot move to a rekeyed child SA, and stays on the old one: {why}"
            ));
        }
        self.ike = Some(ike);
    }

    /// Removes pairs of one or more peers. Traffic that no other pair carries is dropped from here on.
    pub(super) fn remove_children(&mut self, ids: &[ChildId]) {
        let Some(mut ike) = self.ike.take() else {
            return;
        };
        for id in ids {
            let Some(name) = ike.peers.peer_of(*id).map(str::to_owned) else {
                continue;
            };
            let snapshot = self.snapshot();
            let exists = |id: &SaId| snapshot.find(id).is_some();
            let change = ike.peers.remove(&name, &[*id], exists);
            drop(snapshot);
            if let Err(why) = self.apply_change(&mut ike, change) {
                (self.warnings.warn())(&format!(
                    "peer {name}: a child SA cannot be removed: {why}"
                ));
            }
            ike.received.remove(id);
        }
        self.ike = Some(ike);
    }

    fn take_event(&mut self, event: Event) {
        if let Event::Moved { peer, children, .. } = &event {
            self.move_children(&peer.connection, children, peer.remote);
        }
        let what = what(event);
        eprintln!("esplanade: {what}");
        self.answer_event(&what);
        self.report_event(what);
    }

    fn move_children(&mut self, name: &str, children: &[ChildId], remote: SocketAddr) {
        let Some(mut ike) = self.ike.take() else {
            return;
        };
        let snapshot = self.snapshot();
        let number = |id: &SaId| {
            let place = snapshot.find(id)?;
            Some(snapshot.sa(place).state.usage().sequence)
        };
        let change = ike.peers.move_to(name, children, remote, number);
        drop(snapshot);
        if let Err(why) = self.apply_change(&mut ike, change) {
            (self.warnings.warn())(&format!(
                "peer {name} moved to {remote}, and its child SAs cannot follow: {why}"
            ));
        }
        self.ike = Some(ike);
    }

    /// Applies a change, and takes it over if the plane accepted it.
    fn apply_change(
        &mut self,
        ike: &mut KeyExchange,
        change: Result<Change, String>,
    ) -> Result<(), String> {
        let change = change?;
        if !change.commands.is_empty() {
            let (outcome, _) = self.change(|plane| plane.apply(&change.commands).map(drop));
            outcome.map_err(|refused| refused.reason.to_string())?;
        }
        ike.peers.take_over(change);
        Ok(())
    }

    /// The processes have ended: what they negotiated carries on, and they are started again.
    fn lose_ike(&mut self, why: &str) {
        let Some(ike) = &mut self.ike else { return };
        ike.lose(why);
        let reason = format!("{why}; established tunnels carry on, and it is started again");
        let what = What::IkeLost { reason };
        eprintln!("esplanade: {what}");
        self.report_event(what);
    }

    /// What depends on time: the pause before a restart, orphans that go, clients whose time is over.
    pub(super) fn look_at_ike(&mut self) {
        if self.ike.as_ref().is_some_and(KeyExchange::must_restart) {
            self.start_ike();
        }
        let leaving = self
            .ike
            .as_mut()
            .map(KeyExchange::take_leaving)
            .unwrap_or_default();
        if !leaving.is_empty() {
            self.remove_children(&leaving);
        }
        self.report_first_packets();
        self.answer_late();
    }

    /// When [`Gateway::look_at_ike`] has something to do.
    pub(super) fn ike_due(&self) -> Option<Instant> {
        self.ike.as_ref().and_then(KeyExchange::due)
    }

    /// New peers in place of those in force: only what differs changes.
    pub(super) fn reload_peers(&mut self, peers: Vec<ConfiguredPeer>) -> Result<String, String> {
        let Some(mut ike) = self.ike.take() else {
            return match peers.is_empty() {
                true => Ok(String::new()),
                false => Err(
                    "the gateway was started without peers: restart it for the first one"
                        .to_owned(),
                ),
            };
        };
        let difference = config::difference(&ike.configured, &peers).to_string();
        let mut outcome = Ok(());
        for peer in &peers {
            let change = ike.peers.close(&peer.connection);
            outcome = outcome.and(self.apply_change(&mut ike, change));
        }
        let gone: Vec<_> = ike
            .configured
            .iter()
            .map(|old| old.connection.name.clone())
            .filter(|name| !peers.iter().any(|peer| peer.connection.name == *name))
            .collect();
        for name in gone {
            let change = ike.peers.open(&name);
            outcome = outcome.and(self.apply_change(&mut ike, change));
        }
        if !ike.reconfigure(peers) {
            outcome = outcome.and(Err("the key exchange process does not take it".to_owned()));
        }
        self.ike = Some(ike);
        outcome.map(|()| difference)
    }

    /// At the end of the gateway each peer gets a Delete.
    pub(super) fn stop_ike(&mut self) {
        let Some(ike) = &mut self.ike else { return };
        let end = Instant::now() + STOP_TIMEOUT;
        if !ike.send(ToIke::Stop) {
            return;
        }
        while Instant::now() < end {
            match ike.receive() {
                Ok(Some(FromIke::Stopped)) | Err(_) => return,
                Ok(Some(_)) => {}
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}
