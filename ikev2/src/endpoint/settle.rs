//! Runs an IKE SA, and settles what follows from that for the connection and for other IKE SAs.

use super::{Endpoint, Event, Timer, peers::PeerRecord};
use crate::{
    exchange::{Context, Order, child, rekey, run_tasks},
    groups::Random,
    ike_sa::{Ending, IkeSa, State, creating::Inherited},
    message::IkeSpi,
};
use std::time::Duration;

/// A handshake that this side began is given up after so long, whatever it waits for.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(180);

impl Endpoint {
    /// Has one IKE SA do something.
    pub(super) fn with(
        &mut self,
        own: IkeSpi,
        now: Duration,
        random: Random<'_>,
        what: impl FnOnce(&mut IkeSa, &mut Context<'_>),
    ) {
        let Some(mut sa) = self.sas.remove(&own) else {
            return;
        };
        let mut cx = Context {
            now,
            random: &mut *random,
            shared: &mut self.shared,
        };
        what(&mut sa, &mut cx);
        run_tasks(&mut sa, &mut cx);
        self.settle(sa, now, random);
        self.follow_orders(now, random);
    }

    /// Puts an IKE SA back, or lets it go.
    pub(super) fn settle(&mut self, mut sa: Box<IkeSa>, now: Duration, random: Random<'_>) {
        let own = sa.own_spi();
        if self.is_overdue(&sa, now) {
            let mut cx = Context {
                now,
                random: &mut *random,
                shared: &mut self.shared,
            };
            sa.fail(&mut cx, "the handshake was not completed in time");
        }
        if let Some(ending) = sa.ending.take() {
            self.ended(&mut sa, ending, now, random);
        }
        self.shared.peers.record_mut(sa.connection_name());
        if sa.known().is_some() {
            sa.steps.shrink();
        }
        self.schedule(&mut sa);
        // One that was refused counts until it has gone.
        if sa.is_gone() || sa.known().is_some() {
            self.half_open.remove(own);
        }
        if !sa.is_gone() {
            self.sas.insert(own, sa);
        }
    }

    /// When a handshake is given up.
    fn deadline(&self, sa: &IkeSa) -> Option<Duration> {
        let timeout = match sa.state {
            State::Responding(_) => self.shared.settings.half_open_timeout,
            State::Authenticating if !sa.is_initiator => self.shared.settings.half_open_timeout,
            State::Initiating(_) | State::Authenticating => ATTEMPT_TIMEOUT,
            _ => return None,
        };
        Some(sa.began_at.saturating_add(timeout))
    }

    fn is_overdue(&self, sa: &IkeSa, now: Duration) -> bool {
        self.deadline(sa).is_some_and(|at| at <= now)
    }

    fn schedule(&mut self, sa: &mut IkeSa) {
        let timer = Timer::Sa(sa.own_spi().0);
        let wanted = if sa.is_gone() {
            None
        } else {
            sa.next_at().into_iter().chain(self.deadline(sa)).min()
        };
        if sa.scheduled_at == wanted {
            return;
        }
        if let Some(at) = sa.scheduled_at.take() {
            self.timers.remove(&(at, timer.clone()));
        }
        if let Some(at) = wanted {
            self.timers.insert((at, timer));
        }
        sa.scheduled_at = wanted;
    }

    /// An IKE SA has ended: the connection's story, and the next attempt.
    fn ended(&mut self, sa: &mut IkeSa, ending: Ending, now: Duration, random: Random<'_>) {
        let own = sa.own_spi();
        let remote = sa.path.remote;
        let Some(record) = self.shared.peers.record_mut(sa.connection_name()) else {
            if let Ending::Failed(why) = &ending
                && sa.connection.is_none()
            {
                self.refused(remote, None, why.clone(), now);
            }
            return;
        };
        let was_up = record.up.contains(&own);
        record.up.retain(|other| *other != own);
        let was_attempt = record.attempt == Some(own);
        if was_attempt {
            record.attempt = None;
        }
        if ending == Ending::Superseded {
            return;
        }
        let why = match ending {
            Ending::Failed(why) | Ending::Closed { why, .. } => why,
            Ending::Superseded => return,
        };
        if !was_up && !was_attempt {
            // A host that claimed to be this peer.
            if record.up.is_empty() {
                record.story = std::mem::take(&mut sa.steps);
                record.last_failure = Some(why.clone());
            }
            let name = Some(record.connection.name.clone());
            return self.refused(remote, name, why, now);
        }
        record.story = std::mem::take(&mut sa.steps);
        record.last_failure = Some(why.clone());
        if !was_up {
            record.failures = record.failures.saturating_add(1);
        }
        let name = record.connection.name.clone();
        let next_at = Self::next_attempt(record, now, random);
        if !was_up {
            let next_in = next_at.map(|at| at.saturating_sub(now).as_millis() as u64);
            self.shared
                .actions
                .push(super::Action::Event(Event::Failed {
                    connection: name.clone(),
                    remote,
                    reason: why,
                    next_in_ms: next_in,
                }));
        }
        if let Some(at) = next_at {
            self.timers.insert((at, Timer::Peer(name)));
        }
    }

    /// When the connection is tried again, if it is to be up, is not, and nothing is on the way.
    fn next_attempt(
        record: &mut PeerRecord,
        now: Duration,
        random: Random<'_>,
    ) -> Option<Duration> {
        let is_idle = record.up.is_empty() && record.attempt.is_none();
        if !record.is_wanted || !is_idle {
            return None;
        }
        let mut byte = [0];
        random(&mut byte);
        let at = now.saturating_add(record.pause(byte[0]));
        record.next_at = Some(at);
        Some(at)
    }

    /// What IKE SAs have others do.
    pub(super) fn follow_orders(&mut self, now: Duration, random: Random<'_>) {
        for order in std::mem::take(&mut self.shared.orders) {
            match order {
                Order::Adopt(sa) => {
                    for child in &sa.children {
                        self.shared.owners.insert(child.id, sa.own_spi());
                    }
                    if let Some(record) = self.shared.peers.record_mut(sa.connection_name()) {
                        record.up.push(sa.own_spi());
                    }
                    self.settle(sa, now, random);
                }
                Order::Inherit(to, inherited) => self.inherit(to, *inherited, now, random),
                Order::CloseRedundant(own) => self.with(own, now, random, rekey::close_redundant),
                Order::ReplaceOthers {
                    keep,
                    connection,
                    identity,
                    before,
                } => {
                    let others = self.others(keep, &connection, &identity);
                    let is_older = |own: &IkeSpi| {
                        let known = self.sas.get(own).and_then(|sa| sa.known());
                        known.is_some_and(|known| known.since <= before)
                    };
                    for own in others.into_iter().filter(is_older).collect::<Vec<_>>() {
                        self.replace(own, keep, now, random);
                    }
                }
                Order::Established { own } => self.established(own, now, random),
                Order::MovedTo { own } => self.moved_to(own, now, random),
                Order::CloseIfOtherLives { own } => self.close_if_other_lives(own, now, random),
                Order::Ended {
                    connection,
                    identity,
                    was_redundant,
                } => {
                    let left = self.others(IkeSpi::default(), &connection, &identity);
                    self.go_on_with(left, was_redundant, now, random);
                }
            }
        }
    }

    /// RFC 7296 2.4: the peer holds nothing of an IKE SA any more, so no Delete is sent. Its child SAs may still be in
    /// use where the peer's data plane has outlived its key exchange.
    fn replace(&mut self, own: IkeSpi, by: IkeSpi, now: Duration, random: Random<'_>) {
        let mut left = Vec::new();
        let path = self.sas.get(&by).map(|sa| sa.path);
        self.with(own, now, random, |sa, cx| {
            if path.is_some_and(|path| path.is_between_same_hosts(&sa.path)) {
                left = child::left::leave(sa, cx);
            }
            sa.end(cx, Ending::Superseded);
        });
        self.with(by, now, random, |sa, cx| child::left::take(sa, cx, left));
    }

    /// An IKE SA goes on with the children of the one that it replaces. One that is being deleted, or that only answers
    /// its last request again, has no end of its own any more that would take them away: they end at once.
    fn inherit(&mut self, to: IkeSpi, inherited: Inherited, now: Duration, random: Random<'_>) {
        let heir = self.sas.get(&to).and_then(|sa| sa.established());
        if heir.is_some() {
            self.with(to, now, random, |sa, cx| rekey::inherit(sa, cx, inherited));
        } else {
            let mut cx = Context {
                now,
                random,
                shared: &mut self.shared,
            };
            rekey::disinherit(&mut cx, inherited);
        }
    }

    /// Other IKE SAs that are up with the same peer by the same connection.
    pub(super) fn others(&self, own: IkeSpi, connection: &str, identity: &str) -> Vec<IkeSpi> {
        let up = self.shared.peers.records.get(connection);
        let up = up.map_or(&[][..], |record| &record.up);
        let is_same = |other: &&IkeSpi| {
            let known = self.sas.get(*other).and_then(|sa| sa.established());
            **other != own && known.is_some_and(|known| known.identity == identity)
        };
        up.iter().filter(is_same).copied().collect()
    }
}
