//! How an IKE SA ends, and the steps of its story.

use super::{Context, Current, Ending, IkeSa, Order, Purpose, State};
use crate::{
    endpoint::{ChildId, Event, RemoveReason},
    window::{Requests, Schedule},
    work::Work,
};
use std::time::Duration;

/// How long an IKE SA that has ended still answers the last request, if that comes again.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
impl IkeSa {
    /// Adds a step to the story.
    pub fn step(&mut self, cx: &Context<'_>, text: impl AsRef<str>) {
        self.steps.push(cx.now, false, text.as_ref());
    }

    /// Ends it by an error.
    pub fn fail(&mut self, cx: &mut Context<'_>, why: &str) {
        self.end(cx, Ending::Failed(why.to_owned()));
    }

    /// Ends it by an error that the peer was sent: the answer is kept for a while.
    pub fn fail_and_linger(&mut self, cx: &mut Context<'_>, why: &str) {
        self.end_and_linger(cx, Ending::Failed(why.to_owned()));
    }

    pub fn end_and_linger(&mut self, cx: &mut Context<'_>, ending: Ending) {
        let keys = self.keys.take();
        let forgotten = keys.as_ref().map(|keys| keys.sk_d);
        self.end(cx, ending);
        self.keys = keys;
        self.state = State::Lingering(cx.now.saturating_add(LINGER_TIMEOUT));
        if let Some(sk_d) = forgotten {
            cx.work(self.own_spi(), Purpose::Forget, Work::Forget(vec![sk_d]));
        }
    }

    /// Ends it, with its children.
    pub fn end(&mut self, cx: &mut Context<'_>, ending: Ending) {
        if matches!(self.state, State::Gone | State::Lingering(_)) {
            return;
        }
        let ending = if self.creating.ike.is_superseded() {
            Ending::Superseded
        } else {
            ending
        };
        let (why, reason) = match &ending {
            Ending::Failed(why) => (why.clone(), RemoveReason::PeerDead),
            Ending::Closed { why, .. } => (why.clone(), RemoveReason::Deleted),
            Ending::Superseded => (
                "another IKE SA replaces it".to_owned(),
                RemoveReason::Deleted,
            ),
        };
        let is_failure = matches!(ending, Ending::Failed(_));
        self.steps.push(cx.now, is_failure, &why);
        let children: Vec<ChildId> = self.children.iter().map(|child| child.id).collect();
        for child in children {
            self.remove_child(cx, child, reason, &why);
        }
        if let Some(known) = self.known()
            && cx.shared.peers.has_several(self.connection_name())
        {
            let order = Order::Ended {
                connection: self.connection_name().to_owned(),
                identity: known.identity.clone(),
                was_redundant: self.is_redundant,
            };
            cx.shared.orders.push(order);
        }
        if self.known().is_some() && ending != Ending::Superseded {
            let peer = self.peer();
            cx.event(Event::Down { peer, reason: why });
        }
        let mut handles: Vec<_> = self.keys.iter().map(|keys| keys.sk_d).collect();
        if let State::Initiating(initiating) = &self.state {
            handles.extend(initiating.begun);
        }
        if let Some(Current::Create(attempt)) = &self.current {
            handles.extend(attempt.handle());
        }
        if !handles.is_empty() {
            cx.work(self.own_spi(), Purpose::Forget, Work::Forget(handles));
        }
        self.keys = None;
        self.auth = None;
        self.current = None;
        self.tasks.clear();
        self.requests = Requests::new(Schedule::default());
        self.state = State::Gone;
        self.ending = Some(ending);
    }
}
