//! The numbers of one association: what was sent and received, and what its lifetimes still grant.

use crate::Dropped;
use crate::command::Phase;
use crate::sa::SaConfig;
use crate::sa::{Lifetimes, Limits};
use crate::sa::replay::Window;

/// Numbers, window and limits; whoever changes them holds the association's lock.
pub(super) struct Ledger {
    pub(super) sent: u64,
    pub(super) window: Window,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) first_used: u64,
    pub(super) last_used: u64,
    pub(super) soft: Told,
    pub(super) hard: Told,
    pub(super) sequence_over: Told,
    /// Whether there are limits of lifetime at all: most associations that are keyed by hand have none, and theirs need not
    /// be looked at.
    pub(super) is_limited: bool,
    /// The last number that may be used for now: the end of what is reserved where a restart will look.
    pub(super) allowed: u64,
    /// Whether a packet has found no reserved number.
    pub(super) was_short: bool,
}

/// Whether something happened, and whether it was told already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    No,
    Due,
    Done,
}

impl Told {
    pub(super) fn raise(&mut self) {
        if *self == Self::No {
            *self = Self::Due;
        }
    }

    pub(super) fn take(&mut self) -> bool {
        let due = *self == Self::Due;
        if due {
            *self = Self::Done;
        }
        due
    }
}

impl Ledger {
    pub(super) fn new(config: &SaConfig) -> Self {
        Self {
            sent: config.sequence,
            window: Window::behind(config.sequence, config.replay_window),
            bytes: 0,
            packets: 0,
            first_used: 0,
            last_used: 0,
            soft: Told::No,
            hard: Told::No,
            sequence_over: Told::No,
            is_limited: is_limited(config),
            allowed: u64::MAX,
            was_short: false,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match (self.hard, self.sequence_over, self.soft) {
            (Told::No, Told::No, Told::No) => Phase::Mature,
            (Told::No, Told::No, _) => Phase::Dying,
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
        let end = last_number(config).min(self.allowed);
        let numbers = match end.saturating_sub(self.sent) {
            0 => self.beyond(config)?,
            numbers => numbers,
        };
        let granted = self.grant_lifetime(config, packets, bytes_each)?;
        Ok(granted.min(u32::try_from(numbers).unwrap_or(u32::MAX)))
    }

    /// Behind the last number that is reserved: how many there are beyond it, where they may be used unreserved. A restart
    /// might then use them again, which a peer refuses, and which a counter nonce must never do.
    #[cold]
    fn beyond(&mut self, config: &SaConfig) -> Result<u64, Dropped> {
        let left = last_number(config).saturating_sub(self.sent);
        if left == 0 {
            self.sequence_over.raise();
            return Err(Dropped::SequenceOver);
        }
        self.was_short = true;
        if config.nonce_is_counter() {
            return Err(Dropped::StateNotKept);
        }
        self.allowed = u64::MAX;
        Ok(left)
    }

    pub(super) fn grant_lifetime(
        &mut self,
        config: &SaConfig,
        packets: u32,
        bytes_each: u64,
    ) -> Result<u32, Dropped> {
        if !self.is_limited && self.hard == Told::No {
            return Ok(packets);
        }
        let Limits {
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
        if granted == 0 || self.hard != Told::No {
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
        if !self.is_limited {
            return;
        }
        let Limits { bytes, packets, .. } = config.lifetimes.soft;
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
        if !self.is_limited && self.hard == Told::No {
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
        if self.hard == Told::No {
            Ok(())
        } else {
            Err(Dropped::LifetimeOver)
        }
    }
}

/// The last number there is (RFC 4303 2.2, 2.2.1).
pub(super) fn last_number(config: &SaConfig) -> u64 {
    match config.esn {
        true => u64::MAX,
        false => u32::MAX.into(),
    }
}

pub(super) fn is_limited(config: &SaConfig) -> bool {
    config.lifetimes != Lifetimes::default()
}

/// Whether a limit is set and reached.
fn reached(value: u64, limit: u64) -> bool {
    limit > 0 && value >= limit
}
