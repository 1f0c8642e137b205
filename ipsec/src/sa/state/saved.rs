//! The counters of an association that are kept across restarts: sequence numbers, the edge of the replay window,
//! lifetimes.
//!
//! ```text
//!   saved() ──► state file ──► a new gateway ──► resume()
//!
//!   numbers of packets sent:   used ──────────► │ reserved, not used yet │ not reserved
//!                                            sent                     allowed
//! ```
//!
//! A restart begins after what was *reserved*, so it need not know how much of that was used. The owner of the state
//! file reserves more in time ([`SaState::allow_up_to`]); without one all of them are allowed.

use super::SaState;
use super::counters::Counters;
use crate::sa::SaConfig;
use crate::sa::replay::ReplayWindow;
use std::sync::atomic::Ordering;

/// The counters of an association at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SavedCounters {
    /// The last sequence number that was sent.
    pub sent: u64,
    /// The highest one that was received: with everything before it, it counts as seen afterwards.
    pub edge: u64,
    /// Bytes carried, as lifetimes count them.
    pub bytes: u64,
    /// Packets carried.
    pub packets: u64,
    /// When it was added, in seconds since the Unix epoch, as are the next two; 0 for never.
    pub created: u64,
    /// When it was first used.
    pub first_used: u64,
    /// When it was last used.
    pub last_used: u64,
}

impl SaState {
    /// The counters to save, at this moment.
    pub fn saved(&self) -> SavedCounters {
        self.saved_of(&self.counters())
    }

    /// The same, and whether a packet found no reserved number since the last call.
    pub fn saved_and_shortage(&self) -> (SavedCounters, bool) {
        let mut counters = self.counters();
        let short = std::mem::take(&mut counters.ran_short);
        (self.saved_of(&counters), short)
    }

    fn saved_of(&self, counters: &Counters) -> SavedCounters {
        SavedCounters {
            sent: counters.sent,
            edge: counters.window.top(),
            bytes: counters.bytes,
            packets: counters.packets,
            created: self.created.load(Ordering::Relaxed),
            first_used: counters.first_used,
            last_used: counters.last_used,
        }
    }

    /// Continues from the saved counters of an earlier incarnation of the same keys. Numbers are only ever raised.
    pub fn resume(&self, config: &SaConfig, kept: &SavedCounters) {
        self.raise(config, kept.sent, kept.edge);
        let mut counters = self.counters();
        counters.bytes = kept.bytes;
        counters.packets = kept.packets;
        counters.first_used = kept.first_used;
        counters.last_used = kept.last_used;
        self.created.store(kept.created, Ordering::Relaxed);
    }

    /// Continues after these numbers, where they are higher than its own.
    pub fn raise(&self, config: &SaConfig, sent: u64, edge: u64) {
        let mut counters = self.counters();
        counters.sent = counters.sent.max(sent);
        if edge > counters.window.top() {
            counters.window = ReplayWindow::behind(edge, config.replay_window);
        }
    }

    /// What the replay window knows of the numbers up to the highest one ([`ReplayWindow::seen`]).
    pub fn seen(&self) -> Vec<u64> {
        self.counters().window.seen()
    }

    /// The same window in a new process: `last` is the highest number received, `seen` what [`SaState::seen`] told.
    /// Numbers that `seen` does not reach count as received.
    pub fn resume_window(&self, config: &SaConfig, last: u64, seen: &[u64]) {
        let is_seen = |number| {
            let back: u64 = last - number;
            let word = seen.get((back / 64) as usize);
            word.is_none_or(|word| word & (1 << (back % 64)) != 0)
        };
        let mut counters = self.counters();
        if last >= counters.window.top() {
            counters.window = ReplayWindow::with_seen(last, config.replay_window, is_seen);
        }
    }

    /// Where counter IVs begin ([`SaState::counter_iv`]).
    pub fn counter_start(&self) -> u64 {
        self.counter_start.load(Ordering::Relaxed)
    }

    /// Goes on with the counter IVs of an earlier incarnation: with its numbers too, none comes twice.
    pub fn resume_counter(&self, start: u64) {
        self.counter_start.store(start, Ordering::Relaxed);
    }

    /// Allows numbers up to this one, which is reserved in the state file.
    pub fn allow_up_to(&self, last: u64) {
        self.counters().allowed = last;
    }

    /// Allows no number beyond the last one used, which is returned, until more are allowed.
    pub fn freeze_numbers(&self) -> u64 {
        let mut counters = self.counters();
        counters.allowed = counters.allowed.min(counters.sent);
        counters.allowed
    }
}

impl SaConfig {
    /// Whether keys with these counters are used up: a hard limit, or the last sequence number.
    pub fn is_exhausted(&self, kept: &SavedCounters, now: u64) -> bool {
        let hard = &self.lifetimes.hard;
        let since = |moment| now.saturating_sub(moment);
        let in_use = match kept.first_used {
            0 => 0,
            moment => since(moment),
        };
        let limits = [
            (kept.bytes, hard.bytes),
            (kept.packets, hard.packets),
            (since(kept.created), hard.age),
            (in_use, hard.first_use),
            (kept.sent, self.last_number()),
        ];
        limits
            .iter()
            .any(|(value, limit)| *limit > 0 && value >= limit)
    }
}

#[cfg(test)]
mod tests;
