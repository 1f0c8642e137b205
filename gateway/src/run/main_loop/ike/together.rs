//! Many changes of peers as one change of the databases: installing a child SA costs as much as everything that the
//! databases and the kernel's tables have to be compared for, and hundreds at once cost little more.
//!
//! ```text
//!   Install, Install, Remove, … ──► commands in the same order ──► one change ──► accepted: Installed, Installed, …
//!                                                                            └──► refused: each half by itself
//! ```

use super::super::Gateway;
use crate::failure::Failure;
use crate::handover::PassedChild;
use crate::ike::message::ToIke;
use crate::plane::Plane as _;
use crate::run::ike::{Change, KeyExchange, Peers, Replaced};
use ikev2::endpoint::{ChildId, ChildSa};
use ipsec::command::Command;
use ipsec::sa::SaId;

/// What the ike process asks for.
pub(super) enum Asked {
    /// Install a pair.
    Install(Box<ChildSa>),
    /// Take over a pair of the gateway before.
    Adopt(Box<PassedChild>),
    /// Move outbound traffic to it.
    UseOutbound(ChildId),
    /// Take it away.
    Remove(ChildId),
}

/// Changes that the plane is given together.
#[derive(Default)]
pub(super) struct Together {
    commands: Vec<Command>,
    replaced: Vec<Replaced>,
}

impl Together {
    /// Takes over a change; the next one is computed from what is true after it.
    pub(super) fn add(&mut self, peers: &mut Peers, mut change: Change) {
        self.commands.append(&mut change.commands);
        self.replaced.push(peers.take_over(change));
    }

    /// Whether an association is added here.
    fn adds(&self, id: &SaId) -> bool {
        let is_it =
            |command: &Command| matches!(command, Command::AddSa(config) if config.id == *id);
        self.commands.iter().any(is_it)
    }
}

impl Gateway {
    /// Gives changes to the plane. If it refuses them, all are taken back.
    pub(super) fn apply_together(
        &mut self,
        ike: &mut KeyExchange,
        together: Together,
    ) -> Result<(), Failure> {
        let Together { commands, replaced } = together;
        if commands.is_empty() {
            return Ok(());
        }
        let outcome = self.change_for_ike(|plane| plane.apply(&commands).map(drop));
        outcome.map_err(|refused| {
            ike.peers.take_back(replaced);
            Failure::new(refused.reason)
        })
    }

    /// Changes the databases as the ike process asks, in its order.
    pub(super) fn change_as_asked(&mut self, asked: &[Asked]) {
        let Some(mut ike) = self.ike.take() else {
            return;
        };
        self.change_in_halves(&mut ike, asked);
        self.ike = Some(ike);
    }

    /// All at once; if the plane refuses that, each half by itself. What a single one does wrong does not keep the
    /// others from being done, and costs no change for each of them.
    fn change_in_halves(&mut self, ike: &mut KeyExchange, asked: &[Asked]) {
        if !asked.is_empty() && !self.try_together(ike, asked) {
            let (first, second) = asked.split_at(asked.len() / 2);
            self.change_in_halves(ike, first);
            self.change_in_halves(ike, second);
        }
    }

    /// False if the plane has refused several, of which nothing is done then.
    fn try_together(&mut self, ike: &mut KeyExchange, asked: &[Asked]) -> bool {
        let mut together = Together::default();
        let mut outcomes = Vec::with_capacity(asked.len());
        let snapshot = self.snapshot();
        for one in asked {
            let exists = |id: &SaId| snapshot.find(id).is_some() || together.adds(id);
            let (change, orphans) = change_of(ike, one, exists);
            let outcome = change.map(|change| {
                if let Some(change) = change {
                    together.add(&mut ike.peers, change);
                }
            });
            outcomes.push((outcome, orphans));
        }
        drop(snapshot);
        if let Err(why) = self.apply_together(ike, together) {
            if asked.len() > 1 {
                return false;
            }
            for (outcome, _) in &mut outcomes {
                *outcome = Err(why.clone());
            }
        }
        let answers = asked
            .iter()
            .zip(outcomes)
            .filter_map(|(one, (outcome, orphans))| self.settle_asked(ike, one, outcome, orphans));
        let answers: Vec<_> = answers.collect();
        if !answers.is_empty() {
            ike.send_all(answers);
        }
        true
    }

    /// What follows from the outcome of one: the answer to the ike process, or a warning.
    fn settle_asked(
        &self,
        ike: &mut KeyExchange,
        asked: &Asked,
        outcome: Result<(), Failure>,
        orphans: Vec<ChildId>,
    ) -> Option<ToIke> {
        match asked {
            Asked::Install(child) => {
                if outcome.is_ok() {
                    ike.hooks.add_child(&child.connection, child.id);
                }
                let child = child.id;
                if outcome.is_ok() && !orphans.is_empty() {
                    ike.retire(orphans, child);
                }
                let outcome = outcome.map_err(|why| why.to_string());
                return Some(ToIke::Installed { child, outcome });
            }
            Asked::Adopt(passed) => match outcome {
                Ok(()) => {
                    ike.hooks
                        .add_child(&passed.child.connection, passed.child.id);
                    self.resume(ike, passed);
                }
                Err(why) => (self.warnings.warn())(&format!(
                    "peer {}: a child SA of the gateway before cannot be taken over, and is negotiated again: {why}",
                    passed.child.connection
                )),
            },
            Asked::UseOutbound(_) => {
                if let Err(why) = outcome {
                    (self.warnings.warn_once())(&format!(
                        "traffic cannot move to a rekeyed child SA, and stays on the old one: {why}"
                    ));
                }
            }
            Asked::Remove(id) => {
                if let Err(why) = &outcome {
                    (self.warnings.warn())(&format!("a child SA cannot be removed: {why}"));
                }
                ike.received.remove(id);
                if outcome.is_ok() {
                    ike.hooks.remove_child(*id);
                }
            }
        }
        None
    }
}

impl Gateway {
    /// Has the associations of an adopted pair go on where they were.
    fn resume(&self, ike: &KeyExchange, passed: &PassedChild) {
        let Some(child) = ike.peers.child(passed.child.id) else {
            return;
        };
        let snapshot = self.snapshot();
        let counters = [&passed.inbound, &passed.outbound];
        for (config, counters) in child.associations.both().into_iter().zip(counters) {
            if let Some(place) = snapshot.find(&config.id) {
                counters.resume(snapshot.sa(place));
            }
        }
    }
}

/// The change, if one is needed, and the orphaned pairs that an installed one replaces.
fn change_of(
    ike: &mut KeyExchange,
    asked: &Asked,
    exists: impl Fn(&SaId) -> bool,
) -> (Result<Option<Change>, Failure>, Vec<ChildId>) {
    let peers = &mut ike.peers;
    match asked {
        Asked::Install(child) => {
            let orphans = peers.orphans_before(child);
            (peers.install(child).map(Some), orphans)
        }
        Asked::Adopt(passed) => (peers.adopt(passed).map(Some), Vec::new()),
        Asked::UseOutbound(id) => (peers.use_outbound(*id, exists).map(Some), Vec::new()),
        Asked::Remove(id) => {
            let name = peers.peer_of(*id);
            let change = name.map(|name| peers.remove(name, &[*id], exists));
            (change.transpose(), Vec::new())
        }
    }
}
