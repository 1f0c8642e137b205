//! The state of an association: sequence numbers, replay window, lifetimes and counters.
//!
//! It is shared by every snapshot that holds the association. One short lock guards it, taken once for a run of packets
//! ([`SaState::lock`]) and never held while a cipher runs; an association belongs to one lane for each direction, so
//! that it is hardly ever contended.

mod counters;
mod observed;
mod saved;
mod shared;

pub use saved::SavedCounters;

use crate::Dropped;
use crate::aggfrag::{Aggfrag, Unpacked, Unpacker};
use crate::sa::{Phase, SaConfig, SequenceNumber};
use counters::{Counters, is_limited};
use multibuffer::prefetch;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use thiserror::Error;

/// The changing half of an association. The order is kept in memory: what every packet needs comes first
/// (`SaState::fetch`).
#[repr(C)]
pub struct SaState {
    counters: Mutex<Counters>,
    created: AtomicU64,
    counter_start: AtomicU64,
    /// Whether `peer_endpoint` holds one: looked at for each packet, where the lock would cost too much.
    peer_has_moved: AtomicBool,
    /// When the last NAT keepalive was sent, in seconds since the Unix epoch; 0 for never.
    kept_alive_at: AtomicU64,
    /// By reason; absent until the first one, for most associations never drop anything.
    drops: OnceLock<Box<[AtomicU64; Dropped::ALL.len()]>>,
    /// Parts of packets from AGGFRAG payloads; absent until the first one came.
    unpacking: Mutex<Option<Box<Unpacker>>>,
    peer_endpoint: Mutex<Option<SocketAddr>>,
}

/// The counters of one association, locked once for several packets in a row. The holder must not lock another
/// association's, nor do anything that may sleep.
pub struct LockedState<'a> {
    counters: MutexGuard<'a, Counters>,
    created: u64,
}

/// An event for the administrator or key manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifetimeEvent {
    /// A soft limit was passed for the first time.
    Soft,
    /// A hard limit was reached.
    Hard,
    /// The last sequence number was used.
    SequenceOver,
}

/// An update without extended sequence numbers for an association that has used more than 32 bits of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "its sequence numbers have reached {used}, and without extended ones there are none above {}: keep `-o esn`, or \
     delete it and add one with new keys",
    u32::MAX
)]
pub struct SequenceTooHigh {
    /// The highest number sent or received.
    pub used: u64,
}

/// The counters of an association, read at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SaUsage {
    /// The highest sequence number sent or received so far.
    pub sequence: u64,
    /// Seconds since the Unix epoch, as are the next two; 0 for never.
    pub created: u64,
    /// When it was first used.
    pub first_used: u64,
    /// When it was last used.
    pub last_used: u64,
    /// Bytes carried, as lifetimes count them.
    pub bytes: u64,
    /// Packets carried.
    pub packets: u64,
    /// Its phase.
    pub phase: Phase,
}

impl SaState {
    /// A new incarnation. `counter_start` is random, so that two incarnations of one key do not share counter IVs.
    pub fn new(config: &SaConfig, now: u64, counter_start: u64) -> Self {
        Self {
            counters: Mutex::new(Counters::new(config)),
            created: AtomicU64::new(now),
            counter_start: AtomicU64::new(counter_start),
            drops: OnceLock::new(),
            unpacking: Mutex::new(None),
            peer_has_moved: AtomicBool::new(false),
            kept_alive_at: AtomicU64::new(0),
            peer_endpoint: Mutex::new(None),
        }
    }

    /// Prefetches what every packet needs.
    pub(crate) fn fetch(&self) {
        prefetch(&self.counters);
        prefetch(&self.counter_start);
        prefetch(&self.peer_has_moved);
    }

    /// Locks the counters until the returned guard is dropped.
    pub fn lock(&self) -> LockedState<'_> {
        LockedState {
            counters: self.counters(),
            created: self.created.load(Ordering::Relaxed),
        }
    }

    /// [`LockedState::reserve`] for one train alone.
    pub fn reserve(
        &self,
        config: &SaConfig,
        packets: u32,
        bytes_each: u64,
        now: u64,
    ) -> Result<(SequenceNumber, u32), Dropped> {
        self.lock().reserve(config, packets, bytes_each, now)
    }

    /// The explicit counter IV that belongs to a sequence number: never the same twice in one incarnation.
    pub fn counter_iv(&self, sequence: SequenceNumber) -> u64 {
        self.counter_start
            .load(Ordering::Relaxed)
            .wrapping_add(sequence.0)
    }

    /// [`LockedState::precheck`] for one packet alone.
    pub fn precheck(&self, config: &SaConfig, low: u32) -> Result<SequenceNumber, Dropped> {
        self.lock().precheck(config, low)
    }

    /// [`LockedState::admit`] for one packet alone.
    pub fn admit(
        &self,
        config: &SaConfig,
        sequence: SequenceNumber,
        bytes: u64,
        now: u64,
    ) -> Result<(), Dropped> {
        self.lock().admit(config, sequence, bytes, now)
    }

    /// Inbound, commit, after [`SaState::admit`]: takes an AGGFRAG payload; packets that are whole now go to `out`, in
    /// order. Returns when to call [`SaState::expire_unpacking`], if ever. `now` is in milliseconds.
    pub fn unpack(
        &self,
        aggfrag: &Aggfrag,
        sequence: SequenceNumber,
        payload: &[u8],
        now: u64,
        out: &mut dyn FnMut(Unpacked<'_>),
    ) -> Option<u64> {
        let mut unpacker = self.unpacker();
        let unpacker = unpacker.get_or_insert_default();
        unpacker.offer(sequence, payload, aggfrag.reorder_window, now, out);
        unpacker.deadline(aggfrag.reorder_timeout_ms)
    }

    /// Gives up what has been missing for too long, and returns when to call again.
    pub fn expire_unpacking(
        &self,
        aggfrag: &Aggfrag,
        now: u64,
        out: &mut dyn FnMut(Unpacked<'_>),
    ) -> Option<u64> {
        let mut unpacker = self.unpacker();
        let unpacker = unpacker.as_mut()?;
        unpacker.expire(aggfrag.reorder_timeout_ms, now, out);
        unpacker.deadline(aggfrag.reorder_timeout_ms)
    }

    fn unpacker(&self) -> MutexGuard<'_, Option<Box<Unpacker>>> {
        // A panic half-way leaves a packet that will be found incomplete.
        self.unpacking
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a drop charged to this association.
    pub fn count_drop(&self, reason: Dropped) {
        let drops = self.drops.get_or_init(Box::default);
        drops[reason.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// The drops charged to this association, those that are not 0.
    pub fn drops(&self) -> Vec<(Dropped, u64)> {
        let Some(drops) = self.drops.get() else {
            return Vec::new();
        };
        let count = |reason: &Dropped| (*reason, drops[reason.index()].load(Ordering::Relaxed));
        Dropped::ALL
            .iter()
            .map(count)
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// The limits passed since the last call, each reported once. `now` also ages the association.
    pub fn take_events(&self, config: &SaConfig, now: u64) -> Vec<LifetimeEvent> {
        self.take_events_and_usage(config, now).0
    }

    /// The same with all counters at that moment.
    pub(crate) fn take_events_and_usage(
        &self,
        config: &SaConfig,
        now: u64,
    ) -> (Vec<LifetimeEvent>, SaUsage) {
        let mut counters = self.counters();
        let _ = counters.check_age(config, self.created.load(Ordering::Relaxed), now);
        let due = [
            (counters.soft.take(), LifetimeEvent::Soft),
            (counters.hard.take(), LifetimeEvent::Hard),
            (counters.sequence_over.take(), LifetimeEvent::SequenceOver),
        ];
        let due = due.into_iter().filter(|(due, _)| *due);
        let events = due.map(|(_, event)| event).collect();
        (events, self.usage_of(&counters))
    }

    /// Records where an authentic packet in UDP came from, if that is not the association's peer address: a NAT may
    /// have chosen another port or address (RFC 7296 2.23).
    #[inline]
    pub fn record_peer_endpoint(&self, config: &SaConfig, from: SocketAddr) {
        let Some(udp) = config.encapsulation else {
            return;
        };
        let moved = (config.source, udp.source_port) != (from.ip(), from.port());
        if moved || self.peer_has_moved.load(Ordering::Relaxed) {
            *self.lock_peer_endpoint() = moved.then_some(from);
            self.peer_has_moved.store(moved, Ordering::Relaxed);
        }
    }

    /// Where the last authentic packet came from, if that is not the association's peer address.
    pub fn observed_peer_endpoint(&self) -> Option<SocketAddr> {
        let has_moved = self.peer_has_moved.load(Ordering::Relaxed);
        has_moved.then(|| *self.lock_peer_endpoint()).flatten()
    }

    /// When the last NAT keepalive was sent, in seconds since the Unix epoch; 0 for never.
    pub fn kept_alive_at(&self) -> u64 {
        self.kept_alive_at.load(Ordering::Relaxed)
    }

    /// A NAT keepalive is sent now.
    pub fn note_keepalive(&self, now: u64) {
        self.kept_alive_at.store(now, Ordering::Relaxed);
    }

    /// Whether an association of this configuration can go on from here: numbers beyond 32 bits need extended ones, or
    /// they would begin again (RFC 4303 3.3.3).
    pub fn check_update(&self, config: &SaConfig) -> Result<(), SequenceTooHigh> {
        let counters = self.counters();
        let used = counters.sent.max(counters.window.top());
        if used > config.last_number() {
            return Err(SequenceTooHigh { used });
        }
        Ok(())
    }

    /// Applies an update of the configuration.
    pub fn reconfigure(&self, config: &SaConfig) {
        let mut counters = self.counters();
        counters.window.resize(config.replay_window);
        counters.is_limited = is_limited(config);
        drop(counters);
        // The kernel tells where packets come from only as long as that is not what is configured.
        if let Some(from) = self.observed_peer_endpoint() {
            self.record_peer_endpoint(config, from);
        }
    }

    /// All counters at one moment.
    pub fn usage(&self) -> SaUsage {
        self.usage_of(&self.counters())
    }

    fn usage_of(&self, counters: &Counters) -> SaUsage {
        SaUsage {
            sequence: counters.sent.max(counters.window.top()),
            created: self.created.load(Ordering::Relaxed),
            first_used: counters.first_used,
            last_used: counters.last_used,
            bytes: counters.bytes,
            packets: counters.packets,
            phase: counters.phase(),
        }
    }

    /// Whether a hard limit has ended it.
    pub fn is_dead(&self) -> bool {
        self.counters().phase() == Phase::Dead
    }

    fn lock_peer_endpoint(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.peer_endpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        // Nothing below can panic half-way through a change, so poisoned counters are still whole.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockedState<'_> {
    /// Outbound, prepare: takes up to `packets` consecutive sequence numbers, and `bytes_each` of lifetime for each.
    /// Returns the first number and how many were granted (at least 1). A hard limit is never overshot.
    pub fn reserve(
        &mut self,
        config: &SaConfig,
        packets: u32,
        bytes_each: u64,
        now: u64,
    ) -> Result<(SequenceNumber, u32), Dropped> {
        let counters = &mut *self.counters;
        counters.check_age(config, self.created, now)?;
        let granted = counters.grant(config, packets, bytes_each)?;
        let first = SequenceNumber(counters.sent + 1);
        counters.sent += u64::from(granted);
        counters.count(config, granted.into(), bytes_each, now);
        Ok((first, granted))
    }

    /// Inbound, prepare: the full sequence number, if the window would take it. Nothing moves.
    #[inline]
    pub fn precheck(&self, config: &SaConfig, low: u32) -> Result<SequenceNumber, Dropped> {
        let counters = &*self.counters;
        let sequence = if config.esn {
            counters.window.extend(low).ok_or(Dropped::TooOld)?
        } else {
            SequenceNumber(low.into())
        };
        if sequence.0 == 0 && config.replay_window > 0 {
            return Err(Dropped::ZeroSequence);
        }
        counters.check_number(sequence)?;
        Ok(sequence)
    }

    /// Inbound, commit, after the ICV was right: checks again, moves the window, counts lifetimes.
    #[inline]
    pub fn admit(
        &mut self,
        config: &SaConfig,
        sequence: SequenceNumber,
        bytes: u64,
        now: u64,
    ) -> Result<(), Dropped> {
        let counters = &mut *self.counters;
        counters.check_age(config, self.created, now)?;
        counters.check_number(sequence)?;
        counters.grant_lifetime(config, 1, bytes)?;
        counters.window.admit(sequence)?;
        counters.count(config, 1, bytes, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
