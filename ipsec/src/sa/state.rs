//! What an association remembers: sequence numbers, replay window, lifetimes and counters.
//!
//! It is shared by every snapshot that holds the association. One short lock guards it, taken once for a run of packets
//! ([`SaState::hold`]) and never held while a cipher runs; an association belongs to one lane for each direction, so
//! that hardly anybody ever waits for it.

mod counters;
mod saved;

pub use saved::Kept;

use crate::Dropped;
use crate::aggfrag::{Aggfrag, Receiver, Released};
use crate::command::Phase;
use crate::sa::{SaConfig, SequenceNumber};
use counters::{Ledger, is_limited, last_number};
use multibuffer::prefetch;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The living half of an association. The order is kept in memory: what every packet needs comes first
/// (`SaState::fetch`).
#[repr(C)]
pub struct SaState {
    ledger: Mutex<Ledger>,
    created: AtomicU64,
    counter_start: u64,
    /// Whether `origin` holds one: looked at for each packet, where the lock would be too dear.
    has_moved: AtomicBool,
    /// By reason; absent until the first one, for most associations never drop anything.
    drops: OnceLock<Box<[AtomicU64; Dropped::ALL.len()]>>,
    /// Parts of packets that AGGFRAG payloads brought; absent until the first one came.
    unpacking: Mutex<Option<Box<Receiver>>>,
    origin: Mutex<Option<SocketAddr>>,
}

/// The numbers of one association, held for a run of its packets: one lock for many. Whoever holds them must take no
/// other association's, nor do anything that may sleep.
pub struct Held<'a> {
    ledger: MutexGuard<'a, Ledger>,
    created: u64,
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

/// The numbers an association shows, read at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
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
    /// Where it is in its life.
    pub phase: Phase,
}

impl SaState {
    /// A new incarnation. `counter_start` is random, so that two incarnations of one key do not share counter IVs.
    pub fn new(config: &SaConfig, now: u64, counter_start: u64) -> Self {
        Self {
            ledger: Mutex::new(Ledger::new(config)),
            created: AtomicU64::new(now),
            counter_start,
            drops: OnceLock::new(),
            unpacking: Mutex::new(None),
            has_moved: AtomicBool::new(false),
            origin: Mutex::new(None),
        }
    }

    /// Asks for what every packet needs.
    pub(crate) fn fetch(&self) {
        prefetch(&self.ledger);
        prefetch(&self.counter_start);
        prefetch(&self.has_moved);
    }

    /// Holds the numbers until the answer is dropped.
    pub fn hold(&self) -> Held<'_> {
        Held {
            ledger: self.lock(),
            created: self.created.load(Ordering::Relaxed),
        }
    }

    /// [`Held::reserve`] for one train alone.
    pub fn reserve(
        &self,
        config: &SaConfig,
        packets: u32,
        bytes_each: u64,
        now: u64,
    ) -> Result<(SequenceNumber, u32), Dropped> {
        self.hold().reserve(config, packets, bytes_each, now)
    }

    /// The explicit counter IV that belongs to a sequence number: never the same twice in one incarnation.
    pub fn counter_iv(&self, sequence: SequenceNumber) -> u64 {
        self.counter_start.wrapping_add(sequence.0)
    }

    /// [`Held::look`] for one packet alone.
    pub fn look(&self, config: &SaConfig, low: u32) -> Result<SequenceNumber, Dropped> {
        self.hold().look(config, low)
    }

    /// [`Held::admit`] for one packet alone.
    pub fn admit(
        &self,
        config: &SaConfig,
        sequence: SequenceNumber,
        bytes: u64,
        now: u64,
    ) -> Result<(), Dropped> {
        self.hold().admit(config, sequence, bytes, now)
    }

    /// Inbound, commit, after [`SaState::admit`]: takes an AGGFRAG payload; packets that are whole now go to `out`, in order.
    /// Returns when [`SaState::stop_waiting`] has something to do, if ever. `now` is in milliseconds.
    pub fn unpack(
        &self,
        aggfrag: &Aggfrag,
        sequence: SequenceNumber,
        payload: &[u8],
        now: u64,
        out: &mut dyn FnMut(Released<'_>),
    ) -> Option<u64> {
        let mut receiver = self.receiver();
        let receiver = receiver.get_or_insert_default();
        receiver.offer(sequence, payload, aggfrag.window, now, out);
        receiver.deadline(aggfrag.patience)
    }

    /// Gives up what has been missing for too long, and returns when to look again.
    pub fn stop_waiting(
        &self,
        aggfrag: &Aggfrag,
        now: u64,
        out: &mut dyn FnMut(Released<'_>),
    ) -> Option<u64> {
        let mut receiver = self.receiver();
        let receiver = receiver.as_mut()?;
        receiver.expire(aggfrag.patience, now, out);
        receiver.deadline(aggfrag.patience)
    }

    fn receiver(&self) -> MutexGuard<'_, Option<Box<Receiver>>> {
        // What a caller's panic has left half-way is a packet that will be found incomplete.
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

    /// Limits passed since the last call, each told once. `now` also ages the association.
    pub fn take_events(&self, config: &SaConfig, now: u64) -> Vec<LifeEvent> {
        let mut ledger = self.lock();
        let _ = ledger.check_age(config, self.created.load(Ordering::Relaxed), now);
        let due = [
            (ledger.soft.take(), LifeEvent::Soft),
            (ledger.hard.take(), LifeEvent::Hard),
            (ledger.sequence_over.take(), LifeEvent::SequenceOver),
        ];
        due.into_iter()
            .filter(|(due, _)| *due)
            .map(|(_, event)| event)
            .collect()
    }

    /// Notes where an authentic packet in UDP came from: of interest only if the association says otherwise, as behind
    /// a NAT that has chosen another port or address (RFC 7296 2.23).
    #[inline]
    pub fn hear_from(&self, config: &SaConfig, from: SocketAddr) {
        let Some(udp) = config.encapsulation else {
            return;
        };
        let moved = (config.source, udp.source_port) != (from.ip(), from.port());
        if moved || self.has_moved.load(Ordering::Relaxed) {
            *self.lock_origin() = moved.then_some(from);
            self.has_moved.store(moved, Ordering::Relaxed);
        }
    }

    /// Where the last authentic packet came from, if that is not where the association says.
    pub fn moved_to(&self) -> Option<SocketAddr> {
        *self.lock_origin()
    }

    /// Whether an association of this configuration can go on from here, or why not: numbers beyond 32 bits need
    /// extended ones, or they would begin again (RFC 4303 3.3.3).
    pub fn can_become(&self, config: &SaConfig) -> Result<(), String> {
        let ledger = self.lock();
        let used = ledger.sent.max(ledger.window.top());
        match used > last_number(config) {
            false => Ok(()),
            true => Err(format!(
                "its sequence numbers have reached {used}, and without extended ones there are none above {}: keep \
                 `-o esn`, or delete it and add one with new keys",
                u32::MAX
            )),
        }
    }

    /// Follows an update of the configuration.
    pub fn reconfigure(&self, config: &SaConfig) {
        let mut ledger = self.lock();
        ledger.window.resize(config.replay_window);
        ledger.is_limited = is_limited(config);
    }

    /// All numbers at one moment.
    pub fn tally(&self) -> Tally {
        let ledger = self.lock();
        Tally {
            sequence: ledger.sent.max(ledger.window.top()),
            created: self.created.load(Ordering::Relaxed),
            first_used: ledger.first_used,
            last_used: ledger.last_used,
            bytes: ledger.bytes,
            packets: ledger.packets,
            phase: ledger.phase(),
        }
    }

    /// Whether a hard limit has ended it.
    pub fn is_dead(&self) -> bool {
        self.lock().phase() == Phase::Dead
    }

    fn lock_origin(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Nothing below can panic half-way through a change, so a poisoned ledger is still whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held<'_> {
    /// Outbound, prepare: takes up to `packets` consecutive sequence numbers, and `bytes_each` of lifetime for each.
    /// Returns the first number and how many were granted (at least 1). A hard limit is never overshot.
    pub fn reserve(
        &mut self,
        config: &SaConfig,
        packets: u32,
        bytes_each: u64,
        now: u64,
    ) -> Result<(SequenceNumber, u32), Dropped> {
        let ledger = &mut *self.ledger;
        ledger.check_age(config, self.created, now)?;
        let granted = ledger.grant(config, packets, bytes_each)?;
        let first = SequenceNumber(ledger.sent + 1);
        ledger.sent += u64::from(granted);
        ledger.count(config, granted.into(), bytes_each, now);
        Ok((first, granted))
    }

    /// Inbound, prepare: the full sequence number, if the window would take it. Nothing moves.
    #[inline]
    pub fn look(&self, config: &SaConfig, low: u32) -> Result<SequenceNumber, Dropped> {
        let ledger = &*self.ledger;
        let sequence = match config.esn {
            true => ledger.window.extend(low).ok_or(Dropped::TooOld)?,
            false => SequenceNumber(low.into()),
        };
        if sequence.0 == 0 && config.replay_window > 0 {
            return Err(Dropped::ZeroSequence);
        }
        ledger.window.check(sequence)?;
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
        let ledger = &mut *self.ledger;
        ledger.check_age(config, self.created, now)?;
        ledger.window.check(sequence)?;
        ledger.grant_lifetime(config, 1, bytes)?;
        ledger.window.admit(sequence)?;
        ledger.count(config, 1, bytes, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
