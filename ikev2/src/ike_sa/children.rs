//! The pairs of child SAs of an IKE SA.

use super::IkeSa;
use crate::{
    connection::{Child, ChildMode, Traffic},
    endpoint::{Action, ChildId, ChildReport, ChildSa, Event, Outbound, Peer, RemoveReason},
    exchange::Context,
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
    pub stage: ChildStage,
}

/// Where a pair of child SAs is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChildStage {
    /// It is the current one.
    Current,
    /// Another pair has replaced it: it waits for its Delete.
    #[expect(dead_code, reason = "for CREATE_CHILD_SA")]
    Replaced,
    /// This side has sent a Delete for it.
    Deleting,
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
    pub fn next_at(&self) -> Option<Duration> {
        let rekey_at = match self.stage {
            ChildStage::Current => self.rekey_at,
            ChildStage::Replaced | ChildStage::Deleting => None,
        };
        rekey_at.into_iter().chain(self.ends_at).min()
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
            is_replaced: self.stage != ChildStage::Current,
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

    #[expect(dead_code, reason = "for CREATE_CHILD_SA")]
    pub fn child(&self, id: ChildId) -> Option<&ChildState> {
        self.children.iter().find(|child| child.id == id)
    }

    #[expect(dead_code, reason = "for CREATE_CHILD_SA")]
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
            stage: ChildStage::Current,
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
        cx.event(match pair.replaces {
            Some(old) => Event::ChildRekeyed {
                peer,
                child: child.name.clone(),
                old,
                new: id,
            },
            None => Event::ChildUp {
                peer,
                child: child.name.clone(),
                id,
                suite,
            },
        });
        self.children.push(state);
        cx.shared.owners.insert(id, self.own_spi());
        id
    }

    /// Takes a pair away.
    pub fn remove_child(
        &mut self,
        cx: &mut Context<'_>,
        id: ChildId,
        reason: RemoveReason,
        why: &str,
    ) {
        let Some(place) = self.children.iter().position(|child| child.id == id) else {
            return;
        };
        let child = self.children.remove(place);
        cx.shared.owners.remove(&id);
        cx.act(Action::Remove { child: id, reason });
        if reason != RemoveReason::Replaced {
            let peer = self.peer();
            cx.event(Event::ChildDown {
                peer,
                child: child.name,
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
