//! Key exchange in the main thread: what its processes ask for, what the plane reports to them, and clients that wait
//! for either.
//!
//! ```text
//!   ike process ── Install, UseOutbound, Remove ──► commands ──► plane ── Installed ──► ike process
//!   plane ── packets without an association, limits, first packets ─────────────────────────┘
//! ```

mod adopting;
mod answers;
mod hooks;
mod status;
mod together;
mod uses;

use together::{Asked, Together};

use super::Gateway;
use crate::config::{self, ConfiguredPeer};
use crate::events::What;
use crate::failure::Failure;
use crate::ike::StartError;
use crate::ike::message::{FromIke, ToIke};
use crate::memory;
use crate::run::check_devices;
use crate::run::ike::{Change, KeyExchange, KeyLog, PeerDevice, what};
use ikev2::endpoint::{ChildId, Event};
use ipsec::database::KeptInterface;
use ipsec::sa::SaId;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long the end of the gateway waits until every peer has been told.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

impl Gateway {
    /// Closes the networks of every peer. No key exists yet.
    pub(super) fn close_peers(&mut self) -> Result<(), Failure> {
        let Some(mut ike) = self.ike.take() else {
            return Ok(());
        };
        let configured = ike.configured.clone();
        let mut together = Together::default();
        let mut outcome = self.keep_devices(&[&configured]);
        for peer in &configured {
            if outcome.is_err() {
                break;
            }
            let device = PeerDevice::of(&peer.mode);
            match ike.peers.close(&peer.connection, device) {
                Ok(change) => together.add(&mut ike.peers, change),
                Err(why) => outcome = Err(why),
            }
        }
        outcome = outcome.and(self.apply_together(&mut ike, together));
        self.ike = Some(ike);
        outcome.map_err(Failure::new)
    }

    /// Makes the devices of these peers, and leaves those of others to be removed once no route leads to them.
    fn keep_devices(&mut self, peers: &[&[ConfiguredPeer]]) -> Result<(), Failure> {
        let mut kept: Vec<KeptInterface> = Vec::new();
        for peer in peers.iter().copied().flatten() {
            let device = PeerDevice::of(&peer.mode).map(|device| device.kept());
            // Of a peer whose routes change, the new way counts once its old policies are gone.
            let news = device.filter(|new| kept.iter().all(|known| known.name != new.name));
            kept.extend(news);
        }
        Ok(self.plane.keep_interfaces(&kept)?)
    }

    /// Starts the processes, at first and after they have ended.
    pub(super) fn start_ike(&mut self) {
        let Some(ike) = self.ike.as_mut().filter(|ike| ike.is_used()) else {
            return;
        };
        if let Err(error) = memory::with_keys(|| ike.start()) {
            let what = "the key exchange processes cannot be started";
            let StartError::Failed(error) = error else {
                (self.warnings.warn())(&format!("{what}: {error}"));
                let reason = error.to_string();
                return self.report_event(What::IkeLost { reason });
            };
            (self.warnings.warn_once())(&format!("{what}: {error}; this is tried again"));
        }
    }

    /// Handles a round of what the ike process has sent: first all that changes the databases, then the news of it. The
    /// next round comes once the main thread has looked at everything else.
    pub(super) fn hear_ike(&mut self) {
        let Some(ike) = self.ike.as_mut().filter(|ike| ike.runs()) else {
            return;
        };
        let round = match ike.take_round() {
            Ok(round) => round,
            Err(why) => return self.lose_ike(&why.to_string()),
        };
        if round.is_empty() {
            return;
        }
        let (mut asked, mut others, mut told) = (Vec::new(), Vec::new(), String::new());
        for message in round {
            match message {
                FromIke::Install(child) => asked.push(Asked::Install(child)),
                FromIke::UseOutbound(child) => asked.push(Asked::UseOutbound(child)),
                FromIke::Remove { child, .. } => asked.push(Asked::Remove(child)),
                FromIke::Event(event @ Event::Moved { .. }) => {
                    // It moves what was installed before it, and what comes behind it is at the new address.
                    self.change_as_asked(&std::mem::take(&mut asked));
                    self.take_event(event, &mut told);
                }
                other => others.push(other),
            }
        }
        for one in &asked {
            if let Asked::Install(child) = one {
                self.log_keys(|log| log.add_child(child));
            }
        }
        let began = Instant::now();
        self.change_as_asked(&asked);
        if let Some(ike) = self.ike.as_mut().filter(|_| !asked.is_empty()) {
            ike.rest_after(began.elapsed());
        }
        drop(asked);
        for message in others {
            self.take_message(message, &mut told);
        }
        eprint!("{told}");
        memory::wipe_stack();
    }

    fn take_message(&mut self, message: FromIke, told: &mut String) {
        match message {
            FromIke::Event(event) => self.take_event(event, told),
            FromIke::States(changes) => {
                if let Some(ike) = &mut self.ike {
                    ike.states.take(changes, Instant::now());
                }
            }
            FromIke::Alive => {
                if let Some(ike) = &mut self.ike {
                    ike.contact.answered(Instant::now());
                }
            }
            FromIke::Report {
                token,
                is_all,
                peers,
                ..
            } => self.answer_report(token, is_all, peers),
            FromIke::Why { token, story } => self.answer_why(token, story.as_ref()),
            FromIke::LogKeys(keys) => self.log_keys(|log| log.add_ike(&keys)),
            // The first three change the databases: Gateway::change_as_asked.
            FromIke::Install(_)
            | FromIke::UseOutbound(_)
            | FromIke::Remove { .. }
            | FromIke::Stopped => {}
        }
    }

    /// Writes keys for Wireshark, if that was asked for.
    fn log_keys(&mut self, write: impl FnOnce(&mut KeyLog) -> io::Result<()>) {
        let log = self.ike.as_mut().and_then(|ike| ike.key_log.as_mut());
        if let Some(Err(error)) = log.map(write) {
            (self.warnings.warn_once())(&format!("--key-log: keys are missing in it: {error}"));
        }
    }

    /// Removes pairs of one or more peers. Traffic that no other pair carries is dropped from here on.
    pub(super) fn remove_children(&mut self, ids: &[ChildId]) {
        let asked: Vec<_> = ids.iter().map(|id| Asked::Remove(*id)).collect();
        self.change_as_asked(&asked);
    }

    /// Reports an event, and appends its line of the log to `told`.
    fn take_event(&mut self, event: Event, told: &mut String) {
        self.note_for_hooks(&event);
        if let Event::Moved { peer, children, .. } = &event {
            self.move_children(&peer.connection, children, peer.remote);
        }
        let what = what(event);
        *told += &format!("esplanade: {what}\n");
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

    /// Takes a change over and applies it; if the plane refuses it, it is taken back.
    fn apply_change(
        &mut self,
        ike: &mut KeyExchange,
        change: Result<Change, Failure>,
    ) -> Result<(), Failure> {
        let mut together = Together::default();
        together.add(&mut ike.peers, change?);
        self.apply_together(ike, together)
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
        self.report_first_packets();
        self.move_from_orphans();
        let leaving = self
            .ike
            .as_mut()
            .map(KeyExchange::take_leaving)
            .unwrap_or_default();
        if !leaving.is_empty() {
            self.remove_children(&leaving);
        }
        self.answer_late();
    }

    /// Moves traffic from orphans to the pairs that have taken their place.
    fn move_from_orphans(&mut self) {
        let Some(ike) = &mut self.ike else { return };
        let mut moving = ike.take_moving();
        moving.retain(|id| ike.peers.stands_by(*id));
        let asked: Vec<_> = moving.into_iter().map(Asked::UseOutbound).collect();
        self.change_as_asked(&asked);
    }

    /// When [`Gateway::look_at_ike`] has something to do.
    pub(super) fn ike_due(&self) -> Option<Instant> {
        self.ike.as_ref().and_then(KeyExchange::due)
    }

    /// Opens the sockets of IKE if these are the first peers of this gateway.
    pub(super) fn prepare_for_peers(&mut self, peers: &[ConfiguredPeer]) -> Result<(), Failure> {
        check_devices(peers, self.plane.kernel().forward())?;
        let lacks_sockets = |ike: &&mut KeyExchange| !peers.is_empty() && !ike.has_sockets();
        let Some(ike) = self.ike.as_mut().filter(lacks_sockets) else {
            return Ok(());
        };
        let host = self.plane.kernel();
        ike.open_sockets(|family| host.first_socket(family))?;
        host.exchange_keys(true);
        Ok(())
    }

    /// New peers in place of those in force: only what differs changes.
    pub(super) fn reload_peers(&mut self, peers: Vec<ConfiguredPeer>) -> Result<String, Failure> {
        let is_unused = |ike: &&KeyExchange| !ike.is_used() && peers.is_empty();
        if self.ike.as_ref().is_none_or(|ike| is_unused(&ike)) {
            return Ok(String::new());
        }
        let Some(mut ike) = self.ike.take() else {
            return Ok(String::new());
        };
        let difference = config::difference(&ike.configured, &peers).to_string();
        let old = ike.configured.clone();
        if let Err(why) = self.keep_devices(&[&old, &peers]) {
            self.ike = Some(ike);
            return Err(Failure::new(format!("the peers were not changed: {why}")));
        }
        let mut outcome = Ok(());
        for peer in &peers {
            let change = ike
                .peers
                .close(&peer.connection, PeerDevice::of(&peer.mode));
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
        outcome = outcome.and(self.keep_devices(&[&peers]));
        if let Err(error) = self.plane.refresh() {
            (self.warnings.warn_once())(&format!("the kernel's tables: {error}"));
        }
        let notes = ike.hooks.configure(&peers);
        if !ike.reconfigure(peers) {
            outcome = outcome.and(Err(Failure::new(
                "the key exchange process does not take it",
            )));
        }
        let is_first = !ike.has_started();
        let difference = difference + &notes;
        self.ike = Some(ike);
        if is_first {
            self.start_ike();
        }
        outcome.map(|()| difference)
    }

    /// At the end of the gateway each peer gets a Delete, except those that the next gateway carries on. Hooks of the
    /// others run while traffic still passes.
    pub(super) fn stop_ike(&mut self) {
        let Some(ike) = &mut self.ike else { return };
        let Some(carried) = &self.carried else {
            if ike.send(ToIke::Stop) {
                ike.wait_for(STOP_TIMEOUT, |message| matches!(message, FromIke::Stopped));
            }
            return;
        };
        let names = ike.peers.children().map(|(name, ..)| name.to_owned());
        let mut ending: HashSet<_> = names.filter(|name| !carried.contains(name)).collect();
        let down = |name: &String| ToIke::Down {
            connection: name.clone(),
        };
        if !ending.is_empty() && ike.send_all(ending.iter().map(down).collect()) {
            ike.wait_for(STOP_TIMEOUT, |message| {
                if let FromIke::Event(Event::Down { peer, .. }) = message {
                    ending.remove(&peer.connection);
                }
                ending.is_empty()
            });
        }
        ike.part();
        self.stop_hooks();
    }
}
