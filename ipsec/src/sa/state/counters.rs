//! The counters of one association: what was sent and received, and what its lifetimes still allow.

use crate::Dropped;
use crate::sa::replay::ReplayWindow;
use crate::sa::{LifetimeLimits, Lifetimes, Phase, SaConfig, SequenceNumber};

/// Sequence numbers, replay window and limits, guarded by the association's lock.
pub(super) struct Counters {
    pub(super) sent: u64,
    pub(super) window: ReplayWindow,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) first_used: u64,
    pub(super) last_used: u64,
    pub(super) soft: NotificationState,
    pub(super) hard: NotificationState,
    pub(super) sequence_over: NotificationState,
    /// Whether there are limits of lifetime at all: most associations that are keyed by hand have none, which saves the
    /// checks.
    pub(super) is_limited: bool,
    /// The last number that may be used for now: the end of what is reserved in the state file.
    pub(super) allowed: u64,
    /// Whether a packet found no reserved number.
    pub(super) ran_short: bool,
    /// Which numbers are this engine's, while another one carries the association too.
    pub(super) share: Share,
}

/// The numbers of one of two engines that carry an association at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    /// The last number that it may send.
    pub(super) send_up_to: u64,
    /// The last number that it may open.
    pub(super) open_up_to: u64,
    /// Up to here the other engine has opened packets, of which copies may still arrive.
    pub(super) opened_elsewhere: u64,
}

impl Share {
    pub(super) const EVERYTHING: Self = Self {
        send_up_to: u64::MAX,
        open_up_to: u64::MAX,
        opened_elsewhere: 0,
    };
}

/// How far the notification of one event is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NotificationState {
    /// The limit was not reached.
    NotReached,
    /// It was reached, and the event was not taken yet.
    Pending,
    /// The event was taken.
    Sent,
}

impl NotificationState {
    pub(super) fn raise(&mut self) {
        if *self == Self::NotReached {
            *self = Self::Pending;
        }
    }

    pub(super) fn take(&mut self) -> bool {
        let due = *self == Self::Pending;
        if due {
            *self = Self::Sent;
        }
        due
    }
}

impl Counters {
    pub(super) fn new(config: &SaConfig) -> Self {
        Self {
            sent: config.sequence,
            window: ReplayWindow::behind(config.sequence, config.replay_window),
            bytes: 0,
            packets: 0,
            first_used: 0,
            last_used: 0,
            soft: NotificationState::NotReached,
            hard: NotificationState::NotReached,
            sequence_over: NotificationState::NotReached,
            is_limited: is_limited(config),
            allowed: u64::MAX,
            ran_short: false,
            share: Share::EVERYTHING,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match (self.hard, self.sequence_over, self.soft) {
            (
                NotificationState::NotReached,
                NotificationState::NotReached,
                NotificationState::NotReached,
            ) => Phase::Mature,
            (NotificationState::NotReached, NotificationState::NotReached, _) => Phase::Dying,
            _ => Phase::Dead,
        }
    }

    /// How many of `packets` may still be sent: all limits of lifetime, and the sequence numbers (RFC 4303 3.3.3).
    pub(super) fn grant(
        &mut self,
        config: &SaConfig,
        packets: u32,
        bytes_each: u64,
    ) -> Result<u32, Dropped> {
        // Behind the end already: an update may have made the numbers shorter while a batch took some.
        let end = config.last_number().min(self.allowed);
        let end = end.min(self.share.send_up_to);
        let numbers = match end.saturating_sub(self.sent) {
            0 => self.beyond(config)?,
            numbers => numbers,
        };
        let granted = self.grant_lifetime(config, packets, bytes_each)?;
        Ok(granted.min(u32::try_from(numbers).unwrap_or(u32::MAX)))
    }

    /// All reserved numbers are used: how many more there are, if they may be used unreserved. A restart might use
    /// those again, which the peer refuses as replays, and which must never happen to a counter nonce.
    #[cold]
    fn beyond(&mut self, config: &SaConfig) -> Result<u64, Dropped> {
        let left = config.last_number().saturating_sub(self.sent);
        if left == 0 {
            self.sequence_over.raise();
            return Err(Dropped::SequenceOver);
        }
        let shared = self.share.send_up_to.saturating_sub(self.sent);
        if shared == 0 {
            return Err(Dropped::OtherPlane);
        }
        self.ran_short = true;
        if config.nonce_is_counter() {
            return Err(Dropped::StateNotKept);
        }
        self.allowed = u64::MAX;
        Ok(left.min(shared))
    }

    /// Whether a number that was received is new, and this engine's.
    #[inline]
    pub(super) fn check_number(&self, number: SequenceNumber) -> Result<(), Dropped> {
        if number.0 > self.share.open_up_to {
            return Err(Dropped::OtherPlane);
        }
        let checked = self.window.check(number);
        if checked.is_err() && number.0 <= self.share.opened_elsewhere {
            return Err(Dropped::OtherPlane);
        }
        checked
    }

    pub(super) fn grant_lifetime(
        &mut self,
        config: &SaConfig,
        packets: u32,
        bytes_each: u64,
    ) -> Result<u32, Dropped> {
        if !self.is_limited && self.hard == NotificationState::NotReached {
            return Ok(packets);
        }
        let LifetimeLimits {
            bytes,
            packets: limit,
            ..
        } = config.lifetimes.hard;
        let mut granted = u64::from(packets);
        if bytes > 0 {
            granted = granted.min(bytes.saturating_sub(self.bytes) / bytes_each.max(1));
        }
        if limit > 0 {
            granted = granted.min(limit.saturating_sub(self.packets));
        }
        if granted == 0 || self.hard != NotificationState::NotReached {
            self.hard.raise();
            return Err(Dropped::LifetimeOver);
        }
        Ok(granted as u32)
    }

    pub(super) fn count(&mut self, config: &SaConfig, packets: u64, bytes_each: u64, now: u64) {
        self.packets += packets;
        self.bytes += packets * bytes_each;
        self.last_used = now;
        if self.first_used == 0 {
            self.first_used = now;
        }
        if self.is_limited {
            self.check_amounts(config);
        }
    }

    /// Whether the bytes and packets carried have reached the soft limit.
    pub(super) fn check_amounts(&mut self, config: &SaConfig) {
        let LifetimeLimits { bytes, packets, .. } = config.lifetimes.soft;
        if reached(self.bytes, bytes) || reached(self.packets, packets) {
            self.soft.raise();
        }
    }

    pub(super) fn check_age(
        &mut self,
        config: &SaConfig,
        created: u64,
        now: u64,
    ) -> Result<(), Dropped> {
        if !self.is_limited && self.hard == NotificationState::NotReached {
            return Ok(());
        }
        let age = now.saturating_sub(created);
        let in_use = if self.first_used == 0 {
            0
        } else {
            now.saturating_sub(self.first_used)
        };
        let (soft, hard) = (&config.lifetimes.soft, &config.lifetimes.hard);
        if reached(age, soft.age) || reached(in_use, soft.first_use) {
            self.soft.raise();
        }
        if reached(age, hard.age) || reached(in_use, hard.first_use) {
            self.hard.raise();
        }
        if self.hard == NotificationState::NotReached {
            Ok(())
        } else {
            Err(Dropped::LifetimeOver)
        }
    }
}

pub(super) fn is_limited(config: &SaConfig) -> bool {
    config.lifetimes != Lifetimes::default()
}

/// Whether a limit is set and reached.
fn reached(value: u64, limit: u64) -> bool {
    limit > 0 && value >= limit
}
