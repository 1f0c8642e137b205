//! One pair of child SAs: data, and what follows from it alone.

use crate::{
    child_sa::{Happening, Stage},
    connection::{ChildMode, Traffic},
    endpoint::{ChildId, ChildReport, Outbound},
    exchange::collision::NoncePair,
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
    /// The request of the peer by which it is made, until it is known that the peer has the answer: before that it is
    /// unknown there.
    pub answered: Option<u32>,
    /// Whether the nonces have decided that it goes: the peer has made it, and deletes it.
    pub is_redundant: bool,
    /// Whether it carried traffic on an IKE SA that the peer has lost: it goes on with that until a new pair of the
    /// same child takes over, or until `drained_at`.
    pub is_left: bool,
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

/// A pair that was negotiated: what `IkeSa::install` needs besides the configuration.
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
    /// The request of the peer that it is the answer to.
    pub answers: Option<u32>,
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
