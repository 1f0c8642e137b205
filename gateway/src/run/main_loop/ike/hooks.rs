//! Hooks of peers: when a peer is up or down, and what comes of them.

use super::Gateway;
use crate::config::{ConfiguredPeer, Mode, traffic_text};
use crate::run::ike::Facts;
use ikev2::endpoint::{ChildId, Event, Peer};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the end of the gateway waits for the hooks that tell it.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl Gateway {
    /// An event may bring a peer up, or say why it goes down.
    pub(super) fn note_for_hooks(&mut self, event: &Event) {
        let Some(ike) = &mut self.ike else { return };
        match event {
            Event::ChildUp { peer, .. } if ike.hooks.has(&peer.connection) => {
                let name = &peer.connection;
                let known = ike.configured.iter();
                let mut known = known.filter(|known| known.connection.name == *name);
                if let Some(facts) = known.next().map(|known| facts(known, peer)) {
                    ike.hooks.is_up(name, facts);
                }
            }
            Event::ChildDown { peer, reason, .. } | Event::Down { peer, reason } => {
                ike.hooks.give_reason(&peer.connection, reason);
            }
            _ => {}
        }
    }

    /// How the last hook of a peer ended, for `why`.
    pub(super) fn hook_text(&self, name: &str) -> String {
        let hooks = self.ike.as_ref().and_then(|ike| ike.hooks.status(name));
        let last = hooks.and_then(|hooks| hooks.last);
        last.map_or_else(String::new, |last| format!("  hook {last}\n"))
    }

    /// Child SAs have reached their hard limit.
    pub(super) fn give_reason_of_limits(&mut self, over: &[ChildId]) {
        let Some(ike) = &mut self.ike else { return };
        for child in over {
            if let Some(name) = ike.peers.peer_of(*child) {
                ike.hooks.give_reason(name, "its hard lifetime is over");
            }
        }
    }

    /// Takes what has ended, and starts what is due.
    pub(in crate::run::main_loop) fn look_at_hooks(&mut self) {
        let Some(ike) = &mut self.ike else { return };
        for what in ike.hooks.go_on() {
            eprintln!("esplanade: {what}");
            self.report_event(what);
        }
    }

    /// Tells the hooks of all peers that the gateway ends, except those that the next one carries on, and waits for
    /// them, not for long.
    pub(in crate::run::main_loop) fn stop_hooks(&mut self) {
        let end = Instant::now() + STOP_TIMEOUT;
        let carried = self.carried.as_ref();
        let is_carried = |name: &str| carried.is_some_and(|carried| carried.contains(name));
        if let Some(ike) = &mut self.ike {
            ike.hooks.all_down("the gateway stops", is_carried);
        }
        loop {
            self.look_at_hooks();
            let is_idle = self.ike.as_ref().is_none_or(|ike| ike.hooks.is_idle());
            if is_idle {
                return;
            }
            if Instant::now() >= end {
                eprintln!("esplanade: hooks still run, or wait for their turn: they are ended");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a hook is told of a peer.
fn facts(known: &ConfiguredPeer, peer: &Peer) -> Facts {
    let connection = &known.connection;
    let networks = |here: bool| {
        let each = connection.children.iter();
        let each = each.flat_map(|child| if here { &child.local } else { &child.remote });
        let mut texts: Vec<_> = each.map(traffic_text).collect();
        let mut seen = BTreeSet::new();
        texts.retain(|text| seen.insert(text.clone()));
        texts.join(" ")
    };
    let mode = match &known.mode {
        Mode::Route { .. } => "route",
        Mode::Policy => "policy",
        Mode::Transport => "transport",
    };
    let mut all = vec![
        ("MODE", mode.to_owned()),
        ("LOCAL_ADDRESS", peer.local.ip().to_string()),
        ("REMOTE_ADDRESS", peer.remote.ip().to_string()),
        ("LOCAL_ID", connection.local_id.to_string()),
        ("REMOTE_ID", peer.identity.clone()),
        ("LOCAL_NETWORKS", networks(true)),
        ("REMOTE_NETWORKS", networks(false)),
    ];
    if let Mode::Route { device, .. } = &known.mode {
        all.push(("DEVICE", device.clone()));
    }
    let named = |(name, value): (&str, String)| (format!("ESPLANADE_{name}"), value);
    all.into_iter().map(named).collect()
}
