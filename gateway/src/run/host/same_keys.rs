//! Associations with counter nonces that both planes use under one key (`plane move --same-keys`): what each has used,
//! and whether a nonce would come twice. The kernel does not tell its salt: a packet that it has sealed does.

use crate::plane::{KernelIvs, UsedIvs, association_name};
use dataplane::io::packet::{DepartingEsp, EspBeginning, MAX_DEPARTING_SPIS};
use ipsec::database::Snapshot;
use ipsec::sa::{Protocol, Sa, SaConfig, SaId, SequenceNumber};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// A nonce that comes again only after so many more packets is no reason to stop: at ten million a second, after a day.
const MAX_NUMBERS_AHEAD: u64 = 1 << 40;

/// Numbers that the kernel may use between a read of its counters and its end.
const MAX_NUMBERS_SINCE_READ: u64 = 1 << 24;

/// After so many checks, one a second, at which an association had sent nothing it is not watched until it sends again.
const MAX_IDLE_CHECKS: u32 = 10;

/// How often an association may have been the kernel's: each time is remembered.
const MAX_TIMES_IN_KERNEL: usize = 10_000;

/// What is known of them.
#[derive(Default)]
pub(super) struct SameKeys {
    used: HashMap<SaId, UsedIvs>,
    /// Salts of the kernel's associations, once known.
    salts: HashMap<SaId, u64>,
    /// Associations of the kernel whose salt is not known yet.
    waiting: HashMap<SaId, Unknown>,
    /// Present while some of them are in use.
    tap: Option<DepartingEsp>,
    /// Of what has been learnt since the last check: by which a nonce would come twice, and the number.
    repeated: Vec<(Arc<Sa>, u64)>,
}

/// One whose salt is not known.
#[derive(Clone, Copy)]
struct Unknown {
    /// The last number that it had sent at the last check.
    sent: u64,
    /// How many checks ago that was another one, or the kernel got it.
    idle_checks: u32,
}

impl SameKeys {
    /// The kernel is about to get these associations, and seals nothing by them before [`SameKeys::begin_behind`].
    pub(super) fn watch(&mut self, sas: &[Arc<Sa>]) {
        for sa in sas.iter().filter(|sa| is_watched(&sa.config)) {
            let id = sa.config.id;
            let start = sa.state.counter_iv(SequenceNumber(0));
            let sent = sa.state.saved().sent;
            let known = self.used.remove(&id).filter(|known| known.start == start);
            let by_kernel = known.map_or_else(Vec::new, |known| known.by_kernel);
            let used = UsedIvs {
                start,
                sent,
                by_kernel,
            };
            self.used.insert(id, used);
            self.salts.remove(&id);
            let unknown = Unknown {
                sent,
                idle_checks: 0,
            };
            self.waiting.insert(id, unknown);
        }
    }

    /// The kernel's numbers of one begin behind this one.
    pub(super) fn begin_behind(&mut self, id: &SaId, sent: u64) {
        if let Some(used) = self.used.get_mut(id) {
            used.sent = sent;
        }
    }

    /// Captures from now on what leaves by associations whose salt is not known.
    pub(super) fn capture_from_now(&mut self) -> io::Result<()> {
        self.capture(self.waiting.keys().copied().collect())
    }

    /// Captures what leaves by these, as many of them as can be watched at a time; none ends it.
    fn capture(&mut self, ids: Vec<SaId>) -> io::Result<()> {
        let spis = ids.iter().map(|id| id.spi.get());
        let spis: Vec<_> = spis.take(MAX_DEPARTING_SPIS).collect();
        self.tap = match (self.tap.take(), spis.is_empty()) {
            (_, true) => None,
            (Some(tap), false) => tap.narrow(&spis).map(|()| Some(tap))?,
            (None, false) => Some(DepartingEsp::open(&spis)?),
        };
        Ok(())
    }

    /// Reads what has left, and captures what leaves from now on by those that are in use: without them the host need
    /// not copy its packets. Associations by which a nonce would come twice, with the number by which it would, are
    /// returned.
    pub(super) fn check(&mut self, snapshot: &Snapshot) -> Vec<(Arc<Sa>, u64)> {
        if self.used.is_empty() {
            return Vec::new();
        }
        self.read_tap(snapshot);
        let mut in_use = Vec::new();
        self.waiting.retain(|id, unknown| {
            let Some(sent) = sent(snapshot, id) else {
                return false;
            };
            unknown.idle_checks = if sent == unknown.sent {
                unknown.idle_checks.saturating_add(1)
            } else {
                0
            };
            unknown.sent = sent;
            if unknown.idle_checks < MAX_IDLE_CHECKS {
                in_use.push(*id);
            }
            true
        });
        let is_there = |id: &SaId| snapshot.find(id).is_some();
        self.used.retain(|id, _| is_there(id));
        self.salts.retain(|id, _| is_there(id));
        // Where that is refused it is tried again with the next check.
        let _ = self.capture(in_use);
        std::mem::take(&mut self.repeated)
    }

    fn read_tap(&mut self, snapshot: &Snapshot) {
        while let Some(beginning) = self.tap.as_ref().and_then(DepartingEsp::next) {
            let repeated = self.learn(&beginning, snapshot);
            self.repeated.extend(repeated);
        }
    }

    fn learn(&mut self, beginning: &EspBeginning, snapshot: &Snapshot) -> Option<(Arc<Sa>, u64)> {
        let is_it =
            |id: &&SaId| (id.destination, id.spi.get()) == (beginning.destination, beginning.spi);
        let id = self.waiting.keys().find(is_it).copied()?;
        let sa = snapshot.sas().find(|sa| sa.config.id == id)?;
        let used = self.used.get(&id)?;
        // Below that it is a packet of our own data plane.
        let number = number_above(used.sent, beginning.sequence, sa.config.esn)?;
        self.waiting.remove(&id);
        let salt = beginning.iv ^ number;
        self.salts.insert(id, salt);
        let repeated = used.repeated_by_kernel(salt, used.sent.saturating_add(1));
        let repeated = repeated.filter(|repeated| is_near(*repeated, used.sent, &sa.config));
        repeated.map(|repeated| (Arc::clone(sa), repeated))
    }

    /// The kernel has ended these: what it has used of them is kept.
    pub(super) fn end(&mut self, sas: &[Arc<Sa>], snapshot: &Snapshot) {
        self.read_tap(snapshot);
        // By an association that has ended no nonce comes again.
        self.repeated
            .retain(|(sa, _)| !sas.iter().any(|ended| ended.config.id == sa.config.id));
        for sa in sas {
            let id = sa.config.id;
            self.waiting.remove(&id);
            if let (Some(salt), Some(used)) = (self.salts.remove(&id), self.used.get_mut(&id)) {
                used.by_kernel.push(KernelIvs {
                    salt,
                    first: used.sent.saturating_add(1),
                    last: sa.state.saved().sent,
                });
            }
        }
    }

    /// Why one of these associations cannot move once more under the same key, if that is so.
    pub(super) fn refusal(&self, snapshot: &Snapshot, to_kernel: bool) -> Option<String> {
        let mut watched = snapshot.sas().filter(|sa| is_watched(&sa.config));
        watched.find_map(|sa| {
            let id = sa.config.id;
            let used = self.used.get(&id)?;
            let why = if used.by_kernel.len() >= MAX_TIMES_IN_KERNEL {
                format!(
                    "it has been on the kernel plane {MAX_TIMES_IN_KERNEL} times under the same key"
                )
            } else if to_kernel {
                return None;
            } else {
                let number = self.repeated_by_user(sa, used)?;
                format!("with sequence number {number} a nonce would come twice under its key")
            };
            Some(format!(
                "{}: {why}: set new keys on both sides",
                association_name(&sa.config)
            ))
        })
    }

    fn repeated_by_user(&self, sa: &Sa, used: &UsedIvs) -> Option<u64> {
        let last = sa.state.saved().sent;
        let mut used = used.clone();
        used.by_kernel
            .extend(self.salts.get(&sa.config.id).map(|salt| KernelIvs {
                salt: *salt,
                first: used.sent.saturating_add(1),
                last: last.saturating_add(MAX_NUMBERS_SINCE_READ),
            }));
        let repeated = used.repeated_by_user(last.saturating_add(1));
        repeated.filter(|repeated| is_near(*repeated, last, &sa.config))
    }
}

/// Keys of IKE are never on both planes.
fn is_watched(config: &SaConfig) -> bool {
    config.nonce_is_counter() && !config.is_negotiated && config.id.protocol == Protocol::Esp
}

fn is_near(repeated: u64, sent: u64, config: &SaConfig) -> bool {
    repeated
        <= config
            .last_number()
            .min(sent.saturating_add(MAX_NUMBERS_AHEAD))
}

/// The number whose lower half travels, if it is above `sent`: of extended ones the one that is nearest to that.
fn number_above(sent: u64, low: u32, is_extended: bool) -> Option<u64> {
    if !is_extended {
        return Some(low.into()).filter(|number| *number > sent);
    }
    let ahead = low.wrapping_sub(sent as u32);
    let is_ahead = ahead > 0 && ahead < 1 << 31;
    is_ahead.then(|| sent.wrapping_add(ahead.into()))
}

/// The last number sent by an association.
fn sent(snapshot: &Snapshot, id: &SaId) -> Option<u64> {
    let place = snapshot.find(id)?;
    Some(snapshot.sa(place).state.saved().sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_our_own_data_plane_tells_no_salt() {
        for is_extended in [false, true] {
            for low in [3, 5] {
                assert_eq!(number_above(5, low, is_extended), None, "{low}");
            }
            assert_eq!(number_above(5, 7, is_extended), Some(7));
        }
    }

    #[test]
    fn the_upper_half_of_an_extended_number_follows_from_what_was_sent() {
        let sent = 0x1_ffff_fff0;
        assert_eq!(number_above(sent, 0xffff_fff8, true), Some(0x1_ffff_fff8));
        assert_eq!(number_above(sent, 3, true), Some(0x2_0000_0003));
        assert_eq!(number_above(sent, 0xffff_ffe0, true), None);
    }
}
