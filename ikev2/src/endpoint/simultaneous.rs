//! Both sides have begun an IKE SA with each other at the same time: one of the two goes, and no packet is lost by it.
//!
//! ```text
//!   both are up        both sides see the same two: that with the larger initiator's SPI is redundant
//!   outbound traffic   takes the pair of child SAs that is known to be there at the peer. The initiator of the second
//!                      IKE SA moves to its pair at once. The responder stays with that of the first; it moves to the
//!                      pair of the IKE SA that stays when the peer sends by that
//!   the redundant one  is closed by the side that began it, when the peer has answered by the other one, and outbound
//!                      traffic has moved there
//!   no answer          the other one is gone at the peer, and the redundant one stays: where INITIAL_CONTACT of one
//!                      crossed the other's last message, some peers drop an IKE SA without a word (RFC 7296 2.4)
//! ```

use super::Endpoint;
use crate::{
    child_sa::Stage,
    exchange::child::settle,
    groups::Random,
    ike_sa::{Ending, FirstChild, IkeSa, Task},
    message::IkeSpi,
};
use std::time::Duration;

/// How often a redundant IKE SA is looked at until it can be closed. Packets that are on the way when outbound traffic
/// has moved arrive within this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Endpoint {
    /// An IKE SA is up.
    pub(super) fn established(&mut self, own: IkeSpi, now: Duration, random: Random<'_>) {
        let Some(sa) = self.sas.get(&own) else { return };
        let (name, origin) = (sa.connection_name().to_owned(), sa.origin);
        let identity = sa.established().map(|known| known.identity.clone());
        let identity = identity.unwrap_or_default();
        if let Some(record) = self.shared.peers.record_mut(&name) {
            record.up.push(own);
            record.failures = 0;
            record.last_failure = None;
            if record.attempt == Some(own) {
                record.attempt = None;
            }
        }
        for other in self.others(own, &name, &identity) {
            let (Some(sa), Some(other_sa)) = (self.sas.get(&own), self.sas.get(&other)) else {
                continue;
            };
            let is_superseded = other_sa.creating.ike.is_superseded();
            if other_sa.origin.0 == origin.0 || is_superseded {
                continue;
            }
            let redundant = if other_sa.origin.1 > origin.1 {
                other
            } else {
                own
            };
            if let Some(second) = second_to_carry(sa, other_sa).map(IkeSa::own_spi)
                && let Some(auth) = self.sas.get_mut(&second).and_then(|sa| sa.auth.as_mut())
            {
                auth.is_second = true;
            }
            self.give_up_later(redundant, now, random);
        }
    }

    fn give_up_later(&mut self, redundant: IkeSpi, now: Duration, random: Random<'_>) {
        self.with(redundant, now, random, |sa, cx| {
            sa.is_redundant = true;
            if sa.origin.0 {
                sa.step(
                    cx,
                    "both sides began at the same time: one of two IKE SAs goes",
                );
                sa.close_at = Some(cx.now.saturating_add(CHECK_INTERVAL));
            }
        });
    }

    /// Outbound traffic has moved to pairs of this IKE SA.
    pub(super) fn moved_to(&mut self, own: IkeSpi, now: Duration, random: Random<'_>) {
        let Some(sa) = self.sas.get(&own) else { return };
        let Some(known) = sa.established() else {
            return;
        };
        let moved = settle::carried(sa);
        for other in self.others(own, sa.connection_name(), &known.identity) {
            self.with(other, now, random, |sa, _| settle::move_away(sa, &moved));
        }
    }

    /// The time has come to close a redundant IKE SA, or to find out whether it can be.
    pub(super) fn close_if_other_lives(&mut self, own: IkeSpi, now: Duration, random: Random<'_>) {
        let Some(sa) = self.sas.get(&own).filter(|sa| sa.is_redundant) else {
            return;
        };
        let Some(known) = sa.established() else {
            return;
        };
        let staying = self.others(own, sa.connection_name(), &known.identity);
        let staying = staying.iter().filter_map(|other| self.sas.get(other));
        let Some(stays) = staying.into_iter().find(|other| !other.is_redundant) else {
            return;
        };
        let lives = stays
            .established()
            .is_some_and(|other| other.heard_at > other.since.max(known.since));
        let (stays, is_asking) = (stays.own_spi(), stays.current.is_some());
        if lives && self.has_moved_to(stays) {
            let close = Task::Close(Ending::Superseded);
            return self.with(own, now, random, |sa, _| sa.add_task(close));
        }
        if lives {
            self.with(stays, now, random, settle::carry_all);
        } else if !is_asking {
            self.with(stays, now, random, |sa, _| sa.add_task(Task::Liveness));
        }
        self.with(own, now, random, |sa, cx| {
            sa.close_at = Some(cx.now.saturating_add(CHECK_INTERVAL));
        });
    }

    /// Whether no pair of an IKE SA waits for outbound traffic.
    fn has_moved_to(&self, own: IkeSpi) -> bool {
        let waits = |stage| matches!(stage, Stage::Installing | Stage::Standby | Stage::Replaced);
        let sa = self.sas.get(&own);
        sa.is_some_and(|sa| !sa.children.iter().any(|pair| waits(pair.stage)))
    }

    /// One of several IKE SAs of a peer has ended, and these are left. If a redundant one has, outbound traffic is with
    /// the others; if all that are left are redundant, the one that should have stayed is gone, and they stay.
    pub(super) fn go_on_with(
        &mut self,
        left: Vec<IkeSpi>,
        was_redundant: bool,
        now: Duration,
        random: Random<'_>,
    ) {
        let is_redundant = |own: &IkeSpi| self.sas.get(own).is_some_and(|sa| sa.is_redundant);
        let (redundant, staying): (Vec<_>, Vec<_>) = left.into_iter().partition(is_redundant);
        let carriers = match (staying.is_empty(), was_redundant) {
            (true, _) => redundant,
            (false, true) => staying,
            (false, false) => return,
        };
        for own in carriers {
            self.with(own, now, random, |sa, cx| {
                (sa.is_redundant, sa.close_at) = (false, None);
                settle::carry_all(sa, cx);
            });
        }
    }
}

/// Which of the two has a first pair of child SAs that waits before it carries outbound traffic: of two that do not
/// have theirs yet, that of the responder, which does not know when the peer has it.
fn second_to_carry<'a>(new: &'a IkeSa, old: &'a IkeSa) -> Option<&'a IkeSa> {
    let is_to_come = |sa: &IkeSa| {
        let auth = sa.auth.as_ref();
        auth.is_some_and(|auth| matches!(auth.first_child, FirstChild::Agreed(_)))
    };
    let carries = |sa: &IkeSa| sa.children.iter().any(|pair| pair.stage.is_alive());
    match (carries(old), is_to_come(old)) {
        (false, true) if !old.is_initiator => Some(old),
        (false, false) => None,
        _ => Some(new),
    }
}
