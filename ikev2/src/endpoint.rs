//! All IKE SAs of a gateway, without any I/O: input in, actions out.
//!
//! ```text
//!   datagram ─► dispatch ─► IkeSa ─► exchange::{init, auth, child, informational} ─► Action::Send
//!               by SPI       │ ▲                                                     Action::Install
//!               cookie       ▼ │                                                     Action::Event
//!                      Action::Work, Input::Done
//! ```
//!
//! Nothing waits here: an IKE SA that needs a key sends out work and goes on when the result comes in. Attempts to
//! bring a connection up are repeated for ever (`attempts`); what an IKE SA has done to others is settled behind it
//! (`settle`).

use crate::{
    connection::Connection,
    cookie::Cookies,
    exchange::{Context, Shared, first_child_installed, forget_handles},
    groups::Random,
    ike_sa::{IkeSa, Wanted},
    message::IkeSpi,
    work::Done,
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

mod action;
mod attempts;
mod child_id;
mod dispatch;
mod event;
mod half_open;
mod input;
pub(crate) mod peers;
mod report;
mod settings;
mod settle;
mod simultaneous;
mod status;

pub use action::{Action, ChildSa, LoggedKeys, Outbound, RemoveReason};
pub use child_id::ChildId;
pub use event::{Event, Peer};
pub use input::{ChildUse, Input, Use};
pub use report::{ChildReport, IkeReport, PeerReport, PeerState, StateChange, Story, StoryStep};
pub use settings::Settings;

/// All IKE SAs of a gateway.
pub struct Endpoint {
    shared: Shared,
    /// By the own SPI.
    sas: HashMap<IkeSpi, Box<IkeSa>>,
    half_open: half_open::HalfOpen,
    cookies: Cookies,
    timers: BTreeSet<(Duration, Timer)>,
    is_stopping: bool,
    /// When the last refusal of a stranger was reported.
    refused_at: Option<Duration>,
}

/// What has something to do at a time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    Peer(String),
    Sa([u8; 8]),
}

impl Endpoint {
    /// Without connections yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            cookies: Cookies::new(settings.cookie_lifetime),
            shared: Shared::new(settings),
            sas: HashMap::new(),
            half_open: half_open::HalfOpen::default(),
            timers: BTreeSet::new(),
            is_stopping: false,
            refused_at: None,
        }
    }

    /// Takes over connections, at start and at each reload: those that are the same go on, those that differ or are
    /// gone are taken down, new ones begin as they are configured.
    pub fn configure(
        &mut self,
        connections: Vec<Arc<Connection>>,
        now: Duration,
        random: Random<'_>,
    ) -> Vec<Action> {
        self.reconfigure(connections, now, random);
        self.take_actions(now, random)
    }

    /// Takes one input. `now` is the time since any fixed moment, and never goes back.
    pub fn handle(&mut self, input: Input<'_>, now: Duration, random: Random<'_>) -> Vec<Action> {
        match input {
            Input::Datagram { from, to, bytes } => self.datagram(from, to, bytes, now, random),
            Input::Done(done) => self.done(done, now, random),
            Input::Timer => {}
            Input::Up { connection } => self.up(connection, now),
            Input::Recover { connection, remote } => {
                self.begin(connection, remote, Wanted::default(), now, random);
            }
            Input::Down { connection } => self.down(connection, now, random),
            Input::Rekey { connection, ike } => self.rekey(connection, ike, now, random),
            Input::Acquire {
                connection,
                child,
                packet,
            } => self.acquire(connection, child, packet, now, random),
            Input::ChildUse(uses) => self.used(uses, now, random),
            Input::Installed { child, outcome } => {
                let owner = self.shared.owners.get(&child).copied();
                if let Some(own) = owner {
                    self.with(own, now, random, |sa, cx| {
                        first_child_installed(sa, cx, child, outcome);
                    });
                }
            }
            Input::Stop => self.stop(now, random),
        }
        self.take_actions(now, random)
    }

    /// When to give [`Input::Timer`].
    pub fn next_at(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A work has finished.
    fn done(&mut self, done: Done, now: Duration, random: Random<'_>) {
        let Some((own, purpose)) = self.shared.works.remove(&done.id) else {
            return;
        };
        if self.sas.contains_key(&own) {
            return self.with(own, now, random, |sa, cx| {
                crate::exchange::done(sa, cx, purpose, done.result);
            });
        }
        if let Ok(output) = &done.result {
            let mut cx = Context {
                now,
                random,
                shared: &mut self.shared,
            };
            forget_handles(&mut cx, own, output);
        }
    }

    /// What is due, then everything that has to be done.
    fn take_actions(&mut self, now: Duration, random: Random<'_>) -> Vec<Action> {
        self.run_timers(now, random);
        std::mem::take(&mut self.shared.actions)
    }

    fn run_timers(&mut self, now: Duration, random: Random<'_>) {
        // Each timer once: one that is due again at once waits for the next call.
        let mut due = Vec::new();
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            due.extend(self.timers.pop_first());
        }
        for (_, timer) in due {
            match timer {
                Timer::Peer(name) => self.attempt_is_due(&name, now, random),
                Timer::Sa(own) => self.with(IkeSpi(own), now, random, |sa, cx| {
                    sa.scheduled_at = None;
                    crate::exchange::timer(sa, cx);
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests;
