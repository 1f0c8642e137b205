//! The pairs of child SAs of an IKE SA.

use super::IkeSa;
use crate::{
    child_sa::{Happening, Stage},
    connection::{Child, ChildMode, Traffic},
    endpoint::{Action, ChildId, ChildReport, ChildSa, Event, Outbound, Peer, RemoveReason},
    exchange::{Context, collision::NoncePair},
    message::payload::Protocol,
    negotiation::Chosen,
};
use ipsec::suite::Suite;
use std::time::Duration;

/// One pair of child SAs.
pub(crate) struct ChildState {
    pub id: ChildId,
    /// Its name in the connection.
    pub name: String,
    pub protocol: Protocol,
    pub mode: ChildMode,
    pub inbound_spi: u32,
    pub outbound_spi: u32,
    pub algorithms: Chosen,
    pub local_traffic: Vec<Traffic>,
    pub remote_traffic: Vec<Traffic>,
    pub since: Duration,
    /// When it is rekeyed, if it is still the current one then.
    pub rekey_at: Option<Duration>,
    /// When it goes without a rekey.
    pub ends_at: Option<Duration>,
    pub stage: Stage,
    /// The pair that it was made to replace.
    pub replaces: Option<ChildId>,
    /// The first of the pairs of which each has replaced another: they carry the same traffic.
    pub family: ChildId,
    /// The pair that this side has made to replace it.
    pub own_successor: Option<Successor>,
    /// The pair that the peer has made to replace it.
    pub peers_successor: Option<Successor>,
    /// Standby: when outbound traffic moves without a sign of the peer, and how often the request has come again.
    pub move_at: Option<Duration>,
    pub repetitions: u32,
    /// The request of the peer by which it was made, until it is known that the peer has the answer: before that it is
    /// unknown there.
    pub answered: Option<u32>,
    /// Draining: when it is removed.
    pub drained_at: Option<Duration>,
    /// Whether the data plane was told to remove it already.
    pub is_removed: bool,
}

/// A pair made by a rekey.
#[derive(Clone)]
pub(crate) struct Successor {
    pub id: ChildId,
    /// The nonces of its exchange, by which collisions are decided.
    pub nonces: NoncePair,
}

/// A pair that was negotiated: what [`IkeSa::install`] needs besides the configuration.
pub(crate) struct Negotiated {
    pub inbound_spi: u32,
    pub outbound_spi: u32,
    pub algorithms: Chosen,
    pub inbound: Suite,
    pub outbound: Suite,
    pub mode: ChildMode,
    pub local_traffic: Vec<Traffic>,
    pub remote_traffic: Vec<Traffic>,
    pub outbound_state: Outbound,
    pub replaces: Option<ChildId>,
}

impl ChildState {
    /// When there is something to do.
    pub fn next_at(&self) -> Option<Duration> {
        let rekey_at = self.rekey_at.filter(|_| self.stage == Stage::Current);
        let move_at = self.move_at.filter(|_| self.stage == Stage::Standby);
        let ends_at = self.ends_at.filter(|_| self.stage.is_alive());
        let times = [rekey_at, move_at, ends_at, self.drained_at];
        times.into_iter().flatten().min()
    }

    /// Goes to the stage that follows; `false` where this cannot happen in the present one.
    pub fn advance(&mut self, happening: Happening) -> bool {
        let next = self.stage.after(happening);
        if let Some(stage) = next {
            self.stage = stage;
        }
        next.is_some()
    }

    pub fn report(&self, now: Duration) -> ChildReport {
        ChildReport {
            id: self.id,
            child: self.name.clone(),
            protocol: self.protocol,
            mode: self.mode,
            spis: (self.inbound_spi, self.outbound_spi),
            suite: self.algorithms.to_string(),
            traffic: (self.local_traffic.clone(), self.remote_traffic.clone()),
            age: now.saturating_sub(self.since),
            rekey_in: self.rekey_at.map(|at| at.saturating_sub(now)),
            stage: self.stage,
        }
    }
}

impl IkeSa {
    /// The peer as events name it.
    pub fn peer(&self) -> Peer {
        let identity = self.known().map(|established| established.identity.clone());
        Peer {
            connection: self.connection_name().to_owned(),
            identity: identity.unwrap_or_default(),
            local: self.path.local,
            remote: self.path.remote,
        }
    }

    pub fn child(&self, id: ChildId) -> Option<&ChildState> {
        self.children.iter().find(|child| child.id == id)
    }

    pub fn child_mut(&mut self, id: ChildId) -> Option<&mut ChildState> {
        self.children.iter_mut().find(|child| child.id == id)
    }

    /// The child whose peer receives with `spi`: what a Delete or a REKEY_SA of the peer names.
    pub fn child_by_outbound(&mut self, protocol: Protocol, spi: u32) -> Option<&mut ChildState> {
        self.children
            .iter_mut()
            .find(|child| child.protocol == protocol && child.outbound_spi == spi)
    }

    /// Has the data plane install a pair, and counts it among the children. [`Input::Installed`] follows.
    ///
    /// [`Input::Installed`]: crate::endpoint::Input::Installed
    pub fn install(&mut self, cx: &mut Context<'_>, child: &Child, pair: Negotiated) -> ChildId {
        let id = cx.child_id();
        let protocol = pair.algorithms.protocol;
        let lifetime = child.lifetime;
        let jitter = self
            .connection
            .as_ref()
            .map_or(0, |connection| connection.jitter_percent);
        let old = pair.replaces.and_then(|old| self.child(old));
        let state = ChildState {
            id,
            name: child.name.clone(),
            protocol,
            mode: pair.mode,
            inbound_spi: pair.inbound_spi,
            outbound_spi: pair.outbound_spi,
            algorithms: pair.algorithms.clone(),
            local_traffic: pair.local_traffic.clone(),
            remote_traffic: pair.remote_traffic.clone(),
            since: cx.now,
            rekey_at: Some(cx.now.saturating_add(shortened(lifetime.soft, jitter, cx))),
            ends_at: Some(cx.now.saturating_add(lifetime.hard)),
            stage: Stage::Installing,
            replaces: pair.replaces,
            family: old.map_or(id, |old| old.family),
            own_successor: None,
            peers_successor: None,
            move_at: None,
            repetitions: 0,
            answered: None,
            drained_at: None,
            is_removed: false,
        };
        let extended_sequence_numbers = pair.algorithms.has_extended_sequence_numbers();
        let peer = self.peer();
        let encapsulation = self.path.encapsulation();
        let installed = ChildSa {
            id,
            connection: peer.connection.clone(),
            child: child.name.clone(),
            peer: peer.identity.clone(),
            protocol,
            mode: pair.mode,
            inbound_spi: pair.inbound_spi,
            outbound_spi: pair.outbound_spi,
            inbound: pair.inbound,
            outbound: pair.outbound,
            extended_sequence_numbers,
            replay_window: child.replay_window,
            local: peer.local.ip(),
            remote: peer.remote.ip(),
            encapsulation,
            local_traffic: pair.local_traffic,
            remote_traffic: pair.remote_traffic,
            lifetime,
            outbound_state: pair.outbound_state,
            replaces: pair.replaces,
        };
        cx.act(Action::Install(Box::new(installed)));
        let suite = pair.algorithms.to_string();
        self.step(cx, format!("child SA {}: {suite}", child.name));
        // A pair that replaces another one is reported when it is known that it stays.
        if pair.replaces.is_none() {
            cx.event(Event::ChildUp {
                peer,
                child: child.name.clone(),
                id,
                suite,
            });
        }
        self.children.push(state);
        cx.shared.owners.insert(id, self.own_spi());
        id
    }

    /// Takes a pair away, and forgets it.
    pub fn remove_child(
        &mut self,
        cx: &mut Context<'_>,
        id: ChildId,
        reason: RemoveReason,
        why: &str,
    ) {
        self.stop_child(cx, id, reason, why);
        self.children.retain(|child| child.id != id);
        cx.shared.owners.remove(&id);
    }

    /// Takes a pair away from the data plane; until both ends have deleted it, it is remembered here.
    pub fn stop_child(
        &mut self,
        cx: &mut Context<'_>,
        id: ChildId,
        reason: RemoveReason,
        why: &str,
    ) {
        let Some(child) = self.child_mut(id).filter(|child| !child.is_removed) else {
            return;
        };
        child.is_removed = true;
        let name = child.name.clone();
        cx.act(Action::Remove { child: id, reason });
        if reason != RemoveReason::Replaced {
            let peer = self.peer();
            cx.event(Event::ChildDown {
                peer,
                child: name,
                id,
                reason: why.to_owned(),
            });
        }
    }
}

/// A soft lifetime less a random part of up to `percent` hundredths.
pub(crate) fn shortened(lifetime: Duration, percent: u8, cx: &mut Context<'_>) -> Duration {
    let drawn = u16::from_be_bytes(cx.random_bytes());
    let part = f64::from(drawn) / f64::from(u16::MAX) * f64::from(percent.min(100)) / 100.0;
    lifetime.saturating_sub(lifetime.mul_f64(part))
}
