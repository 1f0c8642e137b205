//! Hooks of peers in the main process: which was told what, and what runs next.
//!
//! ```text
//!   child SAs of a peer ──► wanted: up with these facts, or down
//!                                │  differ?          one run at a time for a peer
//!   told: the last run    ◄──────┴──► run on_up or on_down
//! ```
//!
//! There is no list of events: what counts is how things are now, and what the hooks were told last. So a peer that
//! goes down and up again while a hook runs costs no run, the last state is always told, and nothing grows.

mod peer;

use crate::config::{ConfiguredPeer, HookCommand};
use crate::events::What;
use crate::failure::Failure;
use crate::hooks::{Account, Ended, MAX_RUNNING, Runner};
use crate::ike::ProcessOptions;
use crate::status::HookStatus;
use ikev2::endpoint::ChildId;
pub(crate) use peer::Facts;
use peer::PeerHooks;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// What is said of a hook that the runner does not know.
const NOT_KNOWN: &str = "not run: a running gateway runs those hooks alone that its configuration had at its start; \
                         restart it (`esplanade restart`, or systemctl restart)";

/// What is said of one that could not be started, and of one whose end is not known.
const NO_RUNNER: &str = "not run: the process that runs hooks has ended";
const RUNNER_LOST: &str = "not known: the process that runs hooks has ended";

/// The hooks of all peers.
#[derive(Default)]
pub(crate) struct Hooks {
    /// None if no peer had a hook at the start, or once it has ended.
    runner: Option<Runner>,
    trouble: Option<String>,
    peers: BTreeMap<String, PeerHooks>,
    /// Peers whose next run may be due, each once.
    queue: VecDeque<String>,
    /// The peer of each run.
    running: HashMap<u64, String>,
    runs: u64,
    /// The peer of each child SA that is installed.
    owners: HashMap<ChildId, String>,
}

impl Hooks {
    /// Starts the process that runs them, if a peer has one.
    pub(crate) fn start(
        configured: &[ConfiguredPeer],
        user: Option<&str>,
        options: ProcessOptions,
    ) -> Result<Self, Failure> {
        let all: BTreeMap<String, HookCommand> = configured
            .iter()
            .flat_map(|peer| peer.hooks.each())
            .map(|hook| (format!("{hook:?}"), hook.clone()))
            .collect();
        let mut hooks = Self::default();
        if !all.is_empty() {
            let account = Account::choose(user)?;
            let programs = all.into_values().collect();
            hooks.runner = Some(Runner::start(programs, &account, options)?);
        }
        hooks.configure(configured);
        Ok(hooks)
    }

    /// The peers from now on. Returns a line for each hook that does not run before a restart.
    pub(crate) fn configure(&mut self, configured: &[ConfiguredPeer]) -> String {
        for peer in self.peers.values_mut() {
            peer.is_configured = false;
        }
        let mut notes = String::new();
        for peer in configured {
            let name = &peer.connection.name;
            if peer.hooks.each().next().is_none() && !self.peers.contains_key(name) {
                continue;
            }
            let known = self.peers.entry(name.clone()).or_default();
            known.is_configured = true;
            known.hooks.clone_from(&peer.hooks);
            let runner = self.runner.as_ref();
            let is_strange =
                |hook: &&HookCommand| runner.is_none_or(|it| it.number(hook).is_none());
            for hook in peer.hooks.each().filter(is_strange) {
                notes += &format!("peer {name}: {hook}: {NOT_KNOWN}\n");
            }
        }
        for (name, peer) in &mut self.peers {
            enqueue(&mut self.queue, name, peer);
        }
        notes
    }

    /// Whether anything has to be done for this peer.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.peers.contains_key(name)
    }

    /// Readable when a hook has ended.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.runner.as_ref().map(AsFd::as_fd)
    }

    /// A pair of child SAs is installed.
    pub(crate) fn add_child(&mut self, name: &str, child: ChildId) {
        if let Some(peer) = self.peers.get_mut(name) {
            peer.add_child(child);
            self.owners.insert(child, name.to_owned());
        }
    }

    /// What the hooks of each of these peers that is up were told, for the next gateway.
    pub(crate) fn told(&self, is_carried: impl Fn(&str) -> bool) -> Vec<(String, Facts)> {
        let told = |(name, peer): (&String, &PeerHooks)| Some((name.clone(), peer.told()?.clone()));
        let carried = self.peers.iter().filter(|(name, _)| is_carried(name));
        carried.filter_map(told).collect()
    }

    /// Pairs of the gateway before carry on, and its hooks were told these facts.
    pub(crate) fn were_told(&mut self, name: &str, facts: Facts) {
        if let Some(peer) = self.peers.get_mut(name) {
            peer.was_told(facts);
        }
    }

    /// A pair has gone. A peer of which none is left is down.
    pub(crate) fn remove_child(&mut self, child: ChildId) {
        let Some(name) = self.owners.remove(&child) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&name)
            && peer.remove_child(child)
        {
            enqueue(&mut self.queue, &name, peer);
        }
    }

    /// IKE reports a child SA: the peer is up, unless it was.
    pub(crate) fn is_up(&mut self, name: &str, facts: Facts) {
        if let Some(peer) = self.peers.get_mut(name) {
            peer.rise(facts);
            enqueue(&mut self.queue, name, peer);
        }
    }

    /// Why a child SA or an IKE SA of a peer has gone.
    pub(crate) fn give_reason(&mut self, name: &str, reason: &str) {
        if let Some(peer) = self.peers.get_mut(name) {
            reason.clone_into(&mut peer.reason);
        }
    }

    /// The gateway ends: every peer is down that the next one does not carry on.
    pub(crate) fn all_down(&mut self, reason: &str, is_carried: impl Fn(&str) -> bool) {
        for (name, peer) in &mut self.peers {
            if is_carried(name) {
                continue;
            }
            if peer.wanted.take().is_some() {
                reason.clone_into(&mut peer.reason);
            }
            enqueue(&mut self.queue, name, peer);
        }
    }

    /// Takes what has ended, and starts what is due. Returns the news.
    pub(crate) fn go_on(&mut self) -> Vec<What> {
        let mut news = Vec::new();
        loop {
            match self.runner.as_mut().map(Runner::receive) {
                Some(Ok(Some(ended))) => news.extend(self.take(&ended)),
                Some(Err(error)) => news.push(self.lose(&error)),
                Some(Ok(None)) | None => break,
            }
        }
        while self.running.len() < MAX_RUNNING {
            let Some(name) = self.queue.pop_front() else {
                break;
            };
            self.step(&name, &mut news);
        }
        news
    }

    /// Whether nothing runs and nothing is due.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.queue.is_empty()
    }

    fn take(&mut self, ended: &Ended) -> Option<What> {
        let name = self.running.remove(&ended.run)?;
        let peer = self.peers.get_mut(&name)?;
        let what = peer.end(&name, &ended.to_string(), ended.is_failure())?;
        enqueue(&mut self.queue, &name, peer);
        Some(what)
    }

    fn lose(&mut self, error: &io::Error) -> What {
        self.runner = None;
        let reason = format!(
            "the process that runs hooks has ended ({error}): none runs any more, and tunnels carry on. Restart the \
             gateway (`esplanade restart`, or systemctl restart)"
        );
        for (_, name) in std::mem::take(&mut self.running) {
            if let Some(peer) = self.peers.get_mut(&name) {
                peer.end(&name, RUNNER_LOST, true);
                enqueue(&mut self.queue, &name, peer);
            }
        }
        self.trouble = Some(reason.clone());
        What::HooksLost { reason }
    }

    /// Brings what a peer's hooks were told closer to how things are.
    fn step(&mut self, name: &str, news: &mut Vec<What>) {
        let Some(peer) = self.peers.get_mut(name) else {
            return;
        };
        peer.is_queued = false;
        while peer.running.is_none() {
            let Some((is_up, facts)) = peer.next() else {
                if peer.is_over() {
                    self.peers.remove(name);
                }
                return;
            };
            let Some(hook) = peer.begin(is_up) else {
                continue;
            };
            let number = self.runner.as_ref().and_then(|runner| runner.number(&hook));
            let (Some(number), Some(runner)) = (number, &mut self.runner) else {
                let why = if self.trouble.is_some() {
                    NO_RUNNER
                } else {
                    NOT_KNOWN
                };
                news.extend(peer.end(name, why, true));
                continue;
            };
            self.runs += 1;
            let variables = variables(name, is_up, facts, &peer.reason);
            match runner.run(self.runs, number, variables) {
                Ok(()) => drop(self.running.insert(self.runs, name.to_owned())),
                Err(error) => {
                    news.extend(peer.end(name, NO_RUNNER, true));
                    let lost = self.lose(&error);
                    news.push(lost);
                    return;
                }
            }
        }
    }

    /// The hooks of a peer, for `status`.
    pub(crate) fn status(&self, name: &str) -> Option<HookStatus> {
        self.peers.get(name).map(|peer| peer.status(Instant::now()))
    }

    /// What is wrong with all of them.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

/// Has a peer looked at in its turn.
fn enqueue(queue: &mut VecDeque<String>, name: &str, peer: &mut PeerHooks) {
    if !std::mem::replace(&mut peer.is_queued, true) {
        queue.push_back(name.to_owned());
    }
}

/// The whole environment of a run. Reasons and identities come from the peer: control characters are left out.
fn variables(name: &str, is_up: bool, facts: Facts, reason: &str) -> Vec<(String, String)> {
    let event = if is_up { "up" } else { "down" };
    let mut all = vec![
        ("ESPLANADE_EVENT".to_owned(), event.to_owned()),
        ("ESPLANADE_PEER".to_owned(), name.to_owned()),
    ];
    all.extend(facts);
    if !is_up {
        all.push(("ESPLANADE_REASON".to_owned(), reason.to_owned()));
    }
    for (_, value) in &mut all {
        value.retain(|letter| !letter.is_control());
    }
    all
}
