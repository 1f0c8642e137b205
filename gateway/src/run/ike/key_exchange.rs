//! The processes of IKE as the main process sees them: whether they run, what they were told, who waits for an answer.

mod passing;

use super::hooks::Hooks;
use super::key_log::KeyLog;
use super::peers::Peers;
use super::reports::Reports;
use super::rest::Rest;
use super::settings::{configuration, secrets};
use super::states::{Contact, States};
use super::waiting::Waiting;
use crate::config::ConfiguredPeer;
use crate::failure::Failure;
use crate::handover::PassedKeyExchange;
use crate::ike::message::{FromIke, ToIke};
use crate::ike::{Inbox, Link, Processes, StartError};
use crate::status::IkeStatus;
use dataplane::io::Family;
use dataplane::io::udp::FirstSocket;
use ikev2::child_sa::{DRAIN_TIMEOUT, MOVE_TIMEOUT};
use ikev2::endpoint::ChildId;
use ikev2::identity::Pattern;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The pause before the processes are started again, doubled at each death that follows soon.
const MIN_RESTART_PAUSE: Duration = Duration::from_millis(100);
const MAX_RESTART_PAUSE: Duration = Duration::from_secs(30);

/// Processes that have run for so long have not died from what their predecessors died from.
const STABLE_RUN_TIME: Duration = Duration::from_secs(60);

/// How long orphaned associations are kept once there is a new pair: until traffic has moved to it at both ends, and as
/// long as packets may be on the way.
const ORPHAN_TIMEOUT: Duration = MOVE_TIMEOUT.saturating_add(DRAIN_TIMEOUT);

/// Messages of the ike process that may wait here for their turn; more wait with it.
const MAX_UNHANDLED_MESSAGES: usize = 16_384;

/// How often the plane is asked for the first packet of a pair that waits for it.
const FIRST_PACKET_INTERVAL: Duration = Duration::from_millis(20);

/// Everything about IKE that outlives its processes.
pub(crate) struct KeyExchange {
    /// What is closed and installed.
    pub(crate) peers: Peers,
    /// The configuration in force.
    pub(crate) configured: Vec<ConfiguredPeer>,
    /// Clients whose answer depends on what IKE reports.
    pub(crate) waiting: Vec<Waiting>,
    /// Inbound packets of each pair, as last reported to IKE.
    pub(crate) received: HashMap<ChildId, u64>,
    /// When the plane was last asked which pairs have received, in seconds.
    pub(crate) looked_at: u64,
    /// Orphaned pairs that a new one has replaced, and when they go.
    pub(crate) leaving: Vec<(Instant, ChildId)>,
    /// Pairs to which the traffic of orphans moves: at the first packet of the peer, or at this time.
    moving: Vec<(Instant, ChildId)>,
    /// What the ike process has sent and is not handled yet.
    inbox: Inbox<FromIke>,
    /// Why nothing comes behind that.
    ended: Option<String>,
    /// What it has reported of each peer.
    pub(crate) reports: Reports,
    /// What it has told of the state of each peer.
    pub(crate) states: States,
    /// Whether it answers.
    pub(crate) contact: Contact,
    /// During it messages wait.
    rest: Rest,
    /// Where keys are written for Wireshark, if that was asked for.
    pub(crate) key_log: Option<KeyLog>,
    /// The hooks of peers.
    pub(crate) hooks: Hooks,
    /// What the gateway before has passed on, until it is taken over.
    pub(crate) inherited: PassedKeyExchange,
    processes: Processes,
    link: Option<Link>,
    started: Instant,
    restart_at: Option<Instant>,
    pause: Duration,
    starts: u64,
    /// Of the gateways before: their pairs have other numbers.
    earlier_starts: u64,
    trouble: Option<String>,
    token: u64,
}

impl KeyExchange {
    /// Not started yet.
    pub(crate) fn new(
        processes: Processes,
        configured: Vec<ConfiguredPeer>,
        key_log: Option<KeyLog>,
        hooks: Hooks,
        inherited: PassedKeyExchange,
    ) -> Self {
        Self {
            peers: Peers::after(&inherited.reqids),
            configured,
            waiting: Vec::new(),
            received: HashMap::new(),
            looked_at: 0,
            leaving: Vec::new(),
            moving: Vec::new(),
            inbox: Inbox::default(),
            ended: None,
            reports: Reports::default(),
            states: States::default(),
            contact: Contact::default(),
            rest: Rest::default(),
            key_log,
            hooks,
            earlier_starts: inherited.starts,
            inherited,
            processes,
            link: None,
            started: Instant::now(),
            restart_at: None,
            pause: MIN_RESTART_PAUSE,
            starts: 0,
            trouble: None,
            token: 0,
        }
    }

    /// Opens the sockets, before the first peer. Without peers there are none.
    pub(crate) fn open_sockets(
        &mut self,
        first: impl Fn(Family) -> FirstSocket,
    ) -> Result<(), Failure> {
        self.processes.open_sockets(first)
    }

    /// Whether the kernel may coalesce what arrives at its sockets.
    pub(crate) fn coalesce(&self, coalesces: bool) {
        self.processes.coalesce(coalesces);
    }

    /// Whether its messages must pass the barriers.
    pub(crate) fn has_sockets(&self) -> bool {
        self.processes.has_sockets()
    }

    /// Whether its processes have been started, whatever has become of them.
    pub(crate) fn has_started(&self) -> bool {
        self.starts > 0
    }

    /// Whether there is a peer, or was one.
    pub(crate) fn is_used(&self) -> bool {
        self.has_started() || !self.configured.is_empty()
    }

    /// Readable when the ike process has sent something, unless messages wait, or when a hook has ended.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let wanted = (!self.rests() || self.awaits_answer()) && self.inbox_has_room();
        let link = self.link.as_ref().filter(|_| wanted);
        link.map(AsFd::as_fd)
            .into_iter()
            .chain(self.hooks.descriptor())
    }

    /// Whether messages wait, because a change was made just now.
    pub(crate) fn rests(&self) -> bool {
        self.rest.end(Instant::now()).is_some()
    }

    /// Lets messages wait after a change, unless more are there than one change does.
    pub(crate) fn rest_after(&mut self, took: Duration) {
        if self.inbox.is_empty() {
            self.rest = Rest::after(took, Instant::now());
        }
    }

    /// Whether the processes run.
    pub(crate) fn runs(&self) -> bool {
        self.link.is_some()
    }

    /// What the ike process has sent, if there is something. An error: the processes are gone.
    pub(crate) fn receive(&mut self) -> io::Result<Option<FromIke>> {
        match &mut self.link {
            Some(link) => link.receive(),
            None => Ok(None),
        }
    }

    /// The messages that are handled now: those of a round, or while messages rest only what a client waits for. An
    /// error: the processes are gone, and all that came before is handled.
    pub(crate) fn take_round(&mut self) -> Result<Vec<FromIke>, Failure> {
        let room = MAX_UNHANDLED_MESSAGES.saturating_sub(self.inbox.len());
        let (link, inbox) = (self.link.as_mut(), &mut self.inbox);
        if let Some(link) = link.filter(|_| self.ended.is_none() && room > 0) {
            let received = link.receive_all(room, |message| inbox.add(message));
            self.ended = received.err().map(|error| error.to_string());
        }
        if self.inbox.is_empty()
            && let Some(why) = self.ended.take()
        {
            return Err(Failure::new(why));
        }
        Ok(if self.rests() {
            self.inbox.take_overtaking()
        } else {
            self.inbox.take_turn()
        })
    }

    fn inbox_has_room(&self) -> bool {
        self.inbox.len() < MAX_UNHANDLED_MESSAGES
    }

    /// Whether a client waits for what the ike process knows.
    fn awaits_answer(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|waiting| waiting.wanted.is_answer())
    }

    /// Starts them with the configuration in force.
    pub(crate) fn start(&mut self) -> Result<(), StartError> {
        self.starts += 1;
        self.restart_at = None;
        self.started = Instant::now();
        match self.processes.start() {
            Ok(link) => {
                self.link = Some(link);
                self.trouble = None;
                self.configure();
                self.recover();
                Ok(())
            }
            Err(error) => {
                self.lose(&format!("cannot be started: {error}"));
                if matches!(error, StartError::StarterHasEnded) {
                    self.restart_at = None;
                }
                Err(error)
            }
        }
    }

    fn configure(&mut self) -> bool {
        let starts = self.earlier_starts + self.starts;
        let configuration = configuration(&self.configured, starts, self.key_log.is_some());
        match &mut self.link {
            Some(link) => link.configure(configuration, secrets(&self.configured)),
            None => true,
        }
    }

    /// Has peers called whose child SAs carry on without an IKE SA. Where any of several identities may come by one
    /// connection, which of them to expect is not known, and each has to begin.
    fn recover(&mut self) {
        let expects_one = |peer: &&ConfiguredPeer| {
            let expected = &peer.connection.remote_id;
            matches!(expected, Pattern::Exactly(_))
        };
        let messages = self
            .configured
            .iter()
            .filter(expects_one)
            .filter_map(|peer| {
                let connection = peer.connection.name.clone();
                let (address, port) = self.peers.last_seen_at(&connection)?;
                let remote = SocketAddr::new(address, port.unwrap_or(peer.connection.remote_port));
                Some(ToIke::Recover { connection, remote })
            });
        let messages = messages.collect();
        self.send_all(messages);
    }

    /// Gives a new configuration to running processes.
    pub(crate) fn reconfigure(&mut self, configured: Vec<ConfiguredPeer>) -> bool {
        let names = configured.iter().map(|peer| &*peer.connection.name);
        self.states.keep(&names.collect());
        self.configured = configured;
        self.reports.forget();
        self.configure()
    }

    /// Sends a message, if they run.
    pub(crate) fn send(&mut self, message: ToIke) -> bool {
        self.link.as_mut().is_some_and(|link| link.send(message))
    }

    /// Sends several at once, if they run.
    pub(crate) fn send_all(&mut self, messages: Vec<ToIke>) -> bool {
        self.link
            .as_mut()
            .is_some_and(|link| link.send_all(messages))
    }

    /// They have ended: child SAs carry on, and after a pause they are started again.
    pub(crate) fn lose(&mut self, why: &str) {
        self.link = None;
        self.inbox = Inbox::default();
        self.ended = None;
        self.reports.forget();
        self.states = States::default();
        self.contact = Contact::default();
        if self.started.elapsed() >= STABLE_RUN_TIME {
            self.pause = MIN_RESTART_PAUSE;
        }
        self.restart_at = Some(Instant::now() + self.pause);
        self.pause = (2 * self.pause).min(MAX_RESTART_PAUSE);
        self.trouble = Some(format!(
            "the key exchange processes are down ({why}): established tunnels carry on to the end of their lifetimes"
        ));
        self.peers.orphan();
        self.received.clear();
    }

    /// Whether it is time to start them again.
    pub(crate) fn must_restart(&self) -> bool {
        self.restart_at.is_some_and(|at| at <= Instant::now())
    }

    /// When the main thread must look again.
    pub(crate) fn due(&self) -> Option<Instant> {
        let first_packet = self
            .awaits_first_packet()
            .then(|| Instant::now() + FIRST_PACKET_INTERVAL);
        let waiting = self.waiting.iter().map(|waiting| waiting.deadline);
        let leaving = self.leaving.iter().chain(&self.moving);
        let leaving = leaving.map(|(at, _)| *at);
        let has_more = !self.rests() && (!self.inbox.is_empty() || self.ended.is_some());
        let all = waiting
            .chain(leaving)
            .chain(self.restart_at)
            .chain(has_more.then(Instant::now))
            .chain(self.rest.end(Instant::now()))
            .chain(first_packet);
        all.min()
    }

    fn awaits_first_packet(&self) -> bool {
        let standing_by = |id: &ChildId| !self.received.contains_key(id);
        self.runs() && self.peers.on_standby().any(standing_by)
    }

    /// Asks the ike process for a sign of life, if it is time for that.
    pub(crate) fn probe(&mut self, now: Instant) {
        if self.runs() && self.contact.must_ask(now) {
            self.send(ToIke::Probe);
        }
    }

    /// A new number for a question.
    pub(crate) fn token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    /// Has orphaned pairs go, once their traffic has moved to the pair `new`.
    pub(crate) fn retire(&mut self, orphans: Vec<ChildId>, new: ChildId) {
        let now = Instant::now();
        let is_new = |id: &ChildId| !self.leaving.iter().any(|(_, known)| known == id);
        let orphans: Vec<_> = orphans.into_iter().filter(is_new).collect();
        let at = now + ORPHAN_TIMEOUT;
        self.leaving.extend(orphans.into_iter().map(|id| (at, id)));
        self.moving.push((now + MOVE_TIMEOUT, new));
    }

    /// Those to which traffic moves now.
    pub(crate) fn take_moving(&mut self) -> Vec<ChildId> {
        let now = Instant::now();
        let received = &self.received;
        let is_due = |(at, id): &mut (Instant, ChildId)| *at <= now || received.contains_key(id);
        let due = self.moving.extract_if(.., is_due);
        due.map(|(_, id)| id).collect()
    }

    /// Those that must go now.
    pub(crate) fn take_leaving(&mut self) -> Vec<ChildId> {
        let now = Instant::now();
        let due = self.leaving.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, id)| id).collect()
    }

    /// The processes, for `status`.
    pub(crate) fn status(&self) -> IkeStatus {
        IkeStatus {
            runs: self.runs(),
            starts: self.starts,
            trouble: self.trouble.clone(),
            hook_trouble: self.hooks.trouble().map(str::to_owned),
            key_log: self
                .key_log
                .as_ref()
                .map(|log| log.folder().display().to_string()),
        }
    }
}
