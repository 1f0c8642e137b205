//! The progress of a rekey, peer by peer. It is checked once a second; the steps due are returned and applied
//! elsewhere.

use super::plan::{Ends, Peer};
use super::{SaReference, standing_by};
use ipsec::command::Command;
use ipsec::database::Snapshot;
use std::net::IpAddr;

/// Seconds after which a warning is due that a peer has not used the new keys.
const UNANSWERED_SECONDS: u64 = 30;

/// How long the steps of a rekey wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Seconds after which the new keys are used for sending even if the peer has not used them; `None`: never.
    pub wait: Option<u64>,
    /// Seconds of silence after which old associations are deleted.
    pub keep: u64,
}

/// A rekey under way.
pub(crate) struct RekeyProgress {
    name: String,
    begun: u64,
    keep: u64,
    peers: Vec<PeerProgress>,
}

/// The progress of one peer.
struct PeerProgress {
    peer: Peer,
    /// Packets received on the new inbound associations before the rekey, where their keys were in use already.
    before: Vec<u64>,
    /// When the first packet arrived on a new association.
    first_packet_at: Option<u64>,
    /// When to move to the new keys even if none arrived.
    move_at: Option<u64>,
    phase: Phase,
    is_warned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Moved(u64),
    TakenBack(u64),
    Done,
}

/// A step that is due for one peer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// The peer.
    pub peer: IpAddr,
    /// Which step.
    pub turn: Turn,
    /// The commands that carry it out.
    pub commands: Vec<Command>,
}

/// The steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// The peer has used the new keys: send with them.
    Follow,
    /// The peer has not used them, but the requested time has passed: send with them.
    Force,
    /// Delete the old associations.
    Finish,
    /// The peer has not used the new keys for long: warn.
    Unanswered,
    /// Send with the old keys, again or still.
    TakeBack,
    /// Delete the new associations of a peer that was returned to the old keys.
    Forget,
}

impl RekeyProgress {
    /// Begins, once the new associations are installed.
    pub(crate) fn new(
        name: &str,
        peers: Vec<Peer>,
        pace: Pace,
        snapshot: &Snapshot,
        now: u64,
    ) -> Self {
        let progress = |peer: Peer| PeerProgress {
            before: counts(&peer.new.inbound, snapshot),
            peer,
            first_packet_at: None,
            move_at: pace.wait.map(|wait| now + wait),
            phase: Phase::Waiting,
            is_warned: false,
        };
        Self {
            name: name.to_owned(),
            begun: now,
            keep: pace.keep,
            peers: peers.into_iter().map(progress).collect(),
        }
    }

    /// The name of its text.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// When it began.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether there is nothing more to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.peers.iter().all(|each| each.phase == Phase::Done)
    }

    /// Whether `names` contains all new associations of this rekey.
    pub(crate) fn is_of(&self, names: &[SaReference]) -> bool {
        let mut new = self.peers.iter().flat_map(|each| each.peer.new.all());
        new.all(|name| names.contains(name))
    }

    /// Continues with other waiting times, also for peers that were returned to the old keys.
    pub(crate) fn go_on(&mut self, pace: Pace, now: u64) {
        self.keep = pace.keep;
        for each in &mut self.peers {
            each.move_at = pace.wait.map(|wait| now + wait).or(each.move_at);
            if let Phase::TakenBack(_) = each.phase {
                each.phase = Phase::Waiting;
                each.move_at = pace.wait.map(|wait| now + wait);
            }
        }
    }

    /// Reads the packet counters, and returns the steps that are due.
    pub(crate) fn due_steps(&mut self, snapshot: &Snapshot, now: u64) -> Vec<Step> {
        let (begun, keep) = (self.begun, self.keep);
        let mut steps = Vec::new();
        for each in &mut self.peers {
            each.count_packets(snapshot, now);
            if let Some(turn) = each.due(begun, keep, snapshot, now) {
                steps.push(each.step(turn, snapshot));
            }
        }
        steps
    }

    /// The steps that return each peer to the old keys from which nothing arrived on the new ones.
    pub(crate) fn abort(&mut self, snapshot: &Snapshot, now: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        for each in &mut self.peers {
            each.count_packets(snapshot, now);
            let may = matches!(each.phase, Phase::Waiting | Phase::Moved(_));
            if may && each.first_packet_at.is_none() {
                steps.push(each.step(Turn::TakeBack, snapshot));
            }
        }
        steps
    }

    /// Records that a step was carried out.
    pub(crate) fn carried_out(&mut self, step: &Step, now: u64) {
        for each in &mut self.peers {
            if each.peer.address != step.peer {
                continue;
            }
            match step.turn {
                Turn::Follow | Turn::Force => each.phase = Phase::Moved(now),
                Turn::TakeBack => each.phase = Phase::TakenBack(now),
                Turn::Finish | Turn::Forget => each.phase = Phase::Done,
                Turn::Unanswered => each.is_warned = true,
            }
        }
    }

    /// The associations on which dummy packets show the peers that we have the new keys.
    pub(crate) fn messengers(&self) -> impl Iterator<Item = SaReference> {
        let is_unfinished =
            |each: &&PeerProgress| matches!(each.phase, Phase::Waiting | Phase::Moved(_));
        let peers = self.peers.iter().filter(is_unfinished);
        peers.filter_map(|each| each.peer.messenger())
    }

    /// The progress of each peer, as text.
    pub(crate) fn describe(&self, snapshot: &Snapshot, now: u64) -> Vec<(IpAddr, String)> {
        let described =
            |each: &PeerProgress| (each.peer.address, each.describe(self.keep, snapshot, now));
        self.peers.iter().map(described).collect()
    }
}

impl PeerProgress {
    fn count_packets(&mut self, snapshot: &Snapshot, now: u64) {
        let came = counts(&self.peer.new.inbound, snapshot);
        let has_arrived = came.iter().zip(&self.before).any(|(now, then)| now > then);
        if self.first_packet_at.is_none() && has_arrived {
            self.first_packet_at = Some(now);
        }
    }

    fn due(&self, begun: u64, keep: u64, snapshot: &Snapshot, now: u64) -> Option<Turn> {
        let silent_since = |from: u64, ends: &Ends| {
            let last = last_used(&ends.inbound, snapshot);
            now >= from.max(last).saturating_add(keep)
        };
        match self.phase {
            Phase::Waiting if self.first_packet_at.is_some() => Some(Turn::Follow),
            Phase::Waiting if self.move_at.is_some_and(|at| now >= at) => Some(Turn::Force),
            Phase::Waiting => {
                let is_long = !self.is_warned && now >= begun + UNANSWERED_SECONDS;
                is_long.then_some(Turn::Unanswered)
            }
            Phase::Moved(at) => {
                // Without new inbound associations nothing can be first_packet_at.
                let first_packet_at =
                    self.first_packet_at
                        .or(self.peer.new.inbound.is_empty().then_some(at))?;
                silent_since(at.max(first_packet_at), &self.peer.old).then_some(Turn::Finish)
            }
            Phase::TakenBack(at) => silent_since(at, &self.peer.new).then_some(Turn::Forget),
            Phase::Done => None,
        }
    }

    fn step(&self, turn: Turn, snapshot: &Snapshot) -> Step {
        let (new, old) = (&self.peer.new, &self.peer.old);
        let commands = match turn {
            Turn::Follow | Turn::Force => exchange(&new.outbound, &old.outbound, snapshot),
            Turn::TakeBack => exchange(&old.outbound, &new.outbound, snapshot),
            Turn::Finish => delete(old, snapshot),
            Turn::Forget => delete(new, snapshot),
            Turn::Unanswered => Vec::new(),
        };
        Step {
            peer: self.peer.address,
            turn,
            commands,
        }
    }

    fn describe(&self, keep: u64, snapshot: &Snapshot, now: u64) -> String {
        let ago = |at: u64| now.saturating_sub(at);
        match (self.phase, self.first_packet_at) {
            (Phase::Waiting, _) => match self.move_at {
                Some(at) => format!(
                    "sending with the old keys until the peer uses the new ones, for at most {} s",
                    at.saturating_sub(now)
                ),
                None => "sending with the old keys until the peer uses the new ones".to_owned(),
            },
            (Phase::Moved(_), None) if !self.peer.new.inbound.is_empty() => {
                "sending with the new keys; the peer has not used them yet, so the old ones are still accepted"
                    .to_owned()
            }
            (Phase::Moved(at), _) => format!(
                "sending with the new keys for {} s; the old ones are deleted after {keep} s without use (now {} s)",
                ago(at),
                ago(at).min(ago(last_used(&self.peer.old.inbound, snapshot))),
            ),
            (Phase::TakenBack(_), Some(_)) => {
                "rolled back, but the peer uses the new keys: abort there too, or rekey again"
                    .to_owned()
            }
            (Phase::TakenBack(_), None) => "rolled back: the new associations will be deleted".to_owned(),
            (Phase::Done, _) => "done".to_owned(),
        }
    }
}

/// The commands that make `send` the associations used for sending and put `rest` on standby.
fn exchange(send: &[SaReference], rest: &[SaReference], snapshot: &Snapshot) -> Vec<Command> {
    let update = |name: &SaReference, is_standby| {
        let sa = name.find(snapshot)?;
        let differs = sa.config.is_standby != is_standby;
        differs.then(|| Command::UpdateSa(standing_by(&sa.config, is_standby)))
    };
    let sending = send.iter().filter_map(|name| update(name, false));
    let resting = rest.iter().filter_map(|name| update(name, true));
    sending.chain(resting).collect()
}

fn delete(ends: &Ends, snapshot: &Snapshot) -> Vec<Command> {
    let present = ends.all().filter(|name| name.find(snapshot).is_some());
    let delete = |name: &SaReference| Command::DeleteSa {
        id: name.id,
        source: name.source,
    };
    present.map(delete).collect()
}

fn counts(names: &[SaReference], snapshot: &Snapshot) -> Vec<u64> {
    let count = |name: &SaReference| {
        let sa = name.find(snapshot);
        sa.map_or(0, |sa| sa.state.usage().packets)
    };
    names.iter().map(count).collect()
}

fn last_used(names: &[SaReference], snapshot: &Snapshot) -> u64 {
    let last = |name: &SaReference| Some(name.find(snapshot)?.state.usage().last_used);
    names.iter().filter_map(last).max().unwrap_or(0)
}
