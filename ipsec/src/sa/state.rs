//! What an association remembers: sequence numbers, replay window, lifetimes and counters. Shared by every snapshot
//! that holds the association, hence atomics; the order of sequence numbers is kept by having one lane per direction.

use crate::Dropped;
use crate::sa::lifetime::Lifetimes;
use crate::sa::{SaConfig, SequenceNumber};

/// The living half of an association.
pub struct SaState {
    _private: (),
}

/// Something an administrator or key manager should hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeEvent {
    /// A soft limit was passed for the first time.
    Soft,
    /// A hard limit was reached.
    Hard,
    /// The last sequence number was used.
    SequenceOver,
}

impl SaState {
    /// A new incarnation. `counter_start` is random (design: counter IVs start at random for every incarnation).
    pub fn new(config: &SaConfig, now: u64, counter_start: u64) -> Self {
        todo!()
    }

    /// Outbound, prepare: takes `packets` consecutive sequence numbers and `bytes` of lifetime, or as many packets as
    /// still fit. Returns the first number and how many were granted (≥ 1). A hard limit is never overshot.
    pub fn reserve(
        &self,
        config: &SaConfig,
        packets: u32,
        bytes_each: u64,
        now: u64,
    ) -> Result<(SequenceNumber, u32), Dropped> {
        todo!()
    }

    /// The explicit counter IV that belongs to a sequence number: never the same twice in one incarnation.
    pub fn counter_iv(&self, sequence: SequenceNumber) -> u64 {
        todo!()
    }

    /// Inbound, prepare: whether the window would take it (and what an extended number's high half must be).
    pub fn look(&self, config: &SaConfig, low: u32) -> Result<SequenceNumber, Dropped> {
        todo!()
    }

    /// Inbound, commit, after the ICV was right: checks again, moves the window, counts lifetimes.
    pub fn admit(
        &self,
        config: &SaConfig,
        sequence: SequenceNumber,
        bytes: u64,
        now: u64,
    ) -> Result<(), Dropped> {
        todo!()
    }

    /// Counts a drop charged to this association.
    pub fn count_drop(&self, reason: Dropped) {
        todo!()
    }

    /// Limits passed since the last call, each reported once. `now` also ages the association.
    pub fn take_events(&self, config: &SaConfig, now: u64) -> Vec<LifeEvent> {
        todo!()
    }
}
