//! The pairs of child SAs of an IKE SA.

use super::{
    Context, IkeSa,
    child_state::{ChildState, Negotiated},
};
use crate::{
    child_sa::Stage,
    connection::Child,
    endpoint::{Action, ChildId, ChildSa, Event, Peer, RemoveReason},
    message::payload::Protocol,
};
use std::time::Duration;

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
            answered: pair.answers,
            is_redundant: false,
            is_left: false,
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
            sends_keepalives: self.path.sends_keepalives(),
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
        // Most IKE SAs have one.
        self.children.reserve_exact(1);
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
