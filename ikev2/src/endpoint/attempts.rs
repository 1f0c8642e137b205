//! Brings connections up and takes them down: at start, by command, on demand, again and again.

use super::{Action, ChildUse, Endpoint, Event, Timer, Use};
use crate::{
    connection::{Connection, Start, Traffic},
    exchange::{self, Context, init::initiator},
    groups::Random,
    ike_sa::{Ending, State, Task, Wanted},
    message::IkeSpi,
};
use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

impl Endpoint {
    pub(super) fn reconfigure(
        &mut self,
        connections: Vec<Arc<Connection>>,
        now: Duration,
        random: Random<'_>,
    ) {
        let names: BTreeSet<&str> = connections.iter().map(|new| new.name.as_str()).collect();
        let records = &self.shared.peers.records;
        let gone = records.keys().filter(|name| !names.contains(name.as_str()));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.take_down(&name, "the configuration has it no more", now, random);
            self.shared.peers.remove(&name);
        }
        for new in connections {
            let old = self.shared.peers.record_mut(&new.name);
            let is_same = old.as_ref().is_some_and(|old| old.connection == new);
            let is_old = old.is_some();
            if let Some(old) = old.filter(|old| is_same && old.is_blocked) {
                old.is_blocked = false;
                old.is_wanted = old.begins();
                self.shared.peers.forget_acceptance();
                self.timers.insert((now, Timer::Peer(new.name.clone())));
            }
            if is_same {
                continue;
            }
            if is_old {
                let why = "the configuration of this connection has changed";
                self.take_down(&new.name, why, now, random);
            }
            let name = new.name.clone();
            self.shared.peers.insert(new);
            let record = self.shared.peers.records.get(&name);
            if record.is_some_and(|record| record.is_wanted) {
                self.timers.insert((now, Timer::Peer(name)));
            }
        }
    }

    pub(super) fn up(&mut self, name: &str, now: Duration) {
        let Some(record) = self.shared.peers.record_mut(name) else {
            return;
        };
        if record.connection.remote.is_empty() {
            let remote = SocketAddr::from(([0, 0, 0, 0], 0));
            return self.shared.actions.push(Action::Event(Event::Failed {
                connection: name.to_owned(),
                remote,
                reason: "no address of the peer is configured: it has to begin".to_owned(),
                next_in_ms: None,
            }));
        }
        record.is_wanted = true;
        record.is_blocked = false;
        record.failures = 0;
        record.next_at = None;
        self.shared.peers.forget_acceptance();
        self.timers.insert((now, Timer::Peer(name.to_owned())));
    }

    pub(super) fn down(&mut self, name: &str, now: Duration, random: Random<'_>) {
        self.take_down(name, "taken down by command", now, random);
        if let Some(record) = self.shared.peers.record_mut(name) {
            record.is_blocked = true;
            self.shared.peers.forget_acceptance();
        }
    }

    /// Ends all IKE SAs of a connection. Peers that are up get a Delete.
    fn take_down(&mut self, name: &str, why: &str, now: Duration, random: Random<'_>) {
        let Some(record) = self.shared.peers.record_mut(name) else {
            return;
        };
        record.is_wanted = false;
        record.next_at = None;
        for own in self.sas_of(name) {
            let ending = Ending::Closed {
                why: why.to_owned(),
                by_peer: false,
            };
            self.with(own, now, random, |sa, cx| match sa.state {
                State::Established(_) => {
                    sa.tasks.clear();
                    sa.add_task(Task::Close(ending));
                }
                State::Closing(_) => {}
                _ => sa.end(cx, ending),
            });
        }
    }

    /// The own SPIs of a connection's IKE SAs: up, begun here, or begun by a peer that has named it.
    fn sas_of(&self, name: &str) -> Vec<IkeSpi> {
        let record = self.shared.peers.records.get(name);
        let up = record.into_iter().flat_map(|record| &record.up);
        let attempt = record
            .into_iter()
            .filter_map(|record| record.attempt.as_ref());
        let is_named = |own: &IkeSpi| {
            let sa = self.sas.get(own);
            sa.is_some_and(|sa| sa.connection_name() == name)
        };
        let half_open = self.half_open.all().filter(is_named);
        up.chain(attempt).copied().chain(half_open).collect()
    }

    pub(super) fn stop(&mut self, now: Duration, random: Random<'_>) {
        self.is_stopping = true;
        let names: Vec<_> = self.shared.peers.records.keys().cloned().collect();
        for name in names {
            self.take_down(&name, "the gateway stops", now, random);
        }
    }

    /// It is time for an attempt, unless something is there already.
    pub(super) fn attempt_is_due(&mut self, name: &str, now: Duration, random: Random<'_>) {
        let Some(record) = self.shared.peers.record_mut(name) else {
            return;
        };
        let is_due = record.next_at.is_none_or(|at| at <= now);
        if record.is_wanted && is_due {
            self.attempt(name, Wanted::default(), now, random);
        }
    }

    fn attempt(&mut self, name: &str, wanted: Wanted, now: Duration, random: Random<'_>) {
        let Some(record) = self.shared.peers.records.get(name) else {
            return;
        };
        let port = record.connection.remote_port;
        if let Some(remote) = record.address() {
            let remote = SocketAddr::new(remote, port);
            self.begin(name, remote, wanted, now, random);
        }
    }

    /// Begins once with the peer at this address, unless it is up, on the way or taken down.
    pub(super) fn begin(
        &mut self,
        name: &str,
        remote: SocketAddr,
        wanted: Wanted,
        now: Duration,
        random: Random<'_>,
    ) {
        let Some(record) = self.shared.peers.record_mut(name) else {
            return;
        };
        let is_idle = record.up.is_empty() && record.attempt.is_none();
        if !is_idle || record.is_blocked || self.is_stopping {
            return;
        }
        record.next_at = None;
        let connection: Arc<Connection> = Arc::clone(&record.connection);
        let mut cx = Context {
            now,
            random: &mut *random,
            shared: &mut self.shared,
        };
        let sa = Box::new(initiator::start(&mut cx, connection, remote, wanted));
        if let Some(record) = self.shared.peers.record_mut(name) {
            record.attempt = Some(sa.own_spi());
        }
        self.settle(sa, now, random);
    }

    /// A packet found no SA: the child is asked for, with an IKE SA if there is none.
    pub(super) fn acquire(
        &mut self,
        name: &str,
        child: &str,
        packet: Option<(Traffic, Traffic)>,
        now: Duration,
        random: Random<'_>,
    ) {
        let Some(record) = self.shared.peers.records.get(name) else {
            return;
        };
        if record.connection.child(child).is_none() {
            return;
        }
        let Some(own) = record.up.first().copied() else {
            // Taken down by command, or up by command alone: no packet changes that.
            let waits = record.connection.start == Start::Wait && !record.is_wanted;
            if record.is_blocked || waits {
                return;
            }
            // After a failure the pause is kept: packets come more often than that.
            let is_early = record.next_at.is_some_and(|at| at > now);
            let wanted = Wanted {
                child: Some(child.to_owned()),
                packet,
            };
            if !is_early {
                self.attempt(name, wanted, now, random);
            }
            return;
        };
        let child = child.to_owned();
        self.with(own, now, random, |sa, _cx| {
            let is_there = sa.children.iter().any(|there| there.name == child);
            let is_waiting = sa.tasks.iter().any(
                |task| matches!(task, Task::CreateChild { child: other, .. } if *other == child),
            );
            if !is_there && !is_waiting {
                sa.add_task(Task::CreateChild { child, packet });
            }
        });
    }

    pub(super) fn rekey(&mut self, name: &str, ike: bool, now: Duration, random: Random<'_>) {
        let record = self.shared.peers.records.get(name);
        let up = record.map_or_else(Vec::new, |record| record.up.clone());
        for own in up {
            self.with(own, now, random, |sa, _cx| {
                if ike {
                    return sa.add_task(Task::RekeyIke);
                }
                let children: Vec<_> = sa.children.iter().map(|child| child.id).collect();
                for child in children {
                    sa.add_task(Task::RekeyChild(child));
                }
            });
        }
    }

    pub(super) fn used(&mut self, uses: &[ChildUse], now: Duration, random: Random<'_>) {
        for ChildUse { child, what } in uses {
            let Some(own) = self.shared.owners.get(child).copied() else {
                continue;
            };
            self.with(own, now, random, |sa, cx| {
                if let (Use::Received | Use::FirstReceived, State::Established(known)) =
                    (what, &mut sa.state)
                {
                    known.heard_at = cx.now;
                }
                exchange::child::used(sa, cx, *child, *what);
            });
        }
    }
}
