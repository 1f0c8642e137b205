//! Associations with counter nonces that both planes use under one key (`plane move --same-keys`): what each has used,
//! and whether a nonce would come twice. The kernel does not tell its salt: the first packet that it seals does.

use crate::plane::{KernelIvs, UsedIvs, association_name};
use dataplane::io::packet::{DepartingEsp, EspBeginning, MAX_DEPARTING_SPIS};
use ipsec::database::Snapshot;
use ipsec::sa::{Protocol, Sa, SaConfig, SaId, SequenceNumber};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// A nonce that comes again only after so many more packets is no reason to stop: at ten million a second, after a day.
const MAX_NUMBERS_AHEAD: u64 = 1 << 40;

/// Numbers that the kernel may use between a look at its counters and its end.
const MAX_NUMBERS_SINCE_READ: u64 = 1 << 24;

/// How often an association may have been the kernel's: each time is remembered.
const MAX_TIMES_IN_KERNEL: usize = 10_000;

/// What is known of them.
#[derive(Default)]
pub(super) struct SameKeys {
    used: HashMap<SaId, UsedIvs>,
    /// Salts of the kernel's associations, once known.
    salts: HashMap<SaId, u64>,
    /// Associations of the kernel whose salt is not known yet.
    waiting: HashSet<SaId>,
    /// Present while there are some.
    tap: Option<DepartingEsp>,
}

impl SameKeys {
    /// The kernel is about to get these associations. What leaves by them is looked at from now on.
    pub(super) fn watch(&mut self, sas: &[Arc<Sa>]) -> io::Result<()> {
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
            self.waiting.insert(id);
        }
        if !self.waiting.is_empty() {
            self.tap = Some(DepartingEsp::open(&self.spis())?);
        }
        Ok(())
    }

    /// The kernel's numbers of one begin behind this one.
    pub(super) fn begin_behind(&mut self, id: &SaId, sent: u64) {
        if let Some(used) = self.used.get_mut(id) {
            used.sent = sent;
        }
    }

    /// Reads what has left. Associations by which a nonce would come twice, with the number by which it would, are
    /// returned.
    pub(super) fn look(&mut self, snapshot: &Snapshot) -> Vec<(Arc<Sa>, u64)> {
        let mut repeated = Vec::new();
        let before = self.waiting.len();
        while let Some(beginning) = self.tap.as_ref().and_then(DepartingEsp::next) {
            repeated.extend(self.learn(&beginning, snapshot));
        }
        let is_there = |id: &SaId| snapshot.find(id).is_some();
        self.waiting.retain(is_there);
        self.used.retain(|id, _| is_there(id));
        self.salts.retain(|id, _| is_there(id));
        if self.waiting.is_empty() {
            self.tap = None;
        } else if let Some(tap) = self.tap.as_ref().filter(|_| self.waiting.len() < before) {
            // Should that be refused, what is not waited for is passed over.
            let _ = tap.narrow(&self.spis());
        }
        repeated
    }

    fn learn(&mut self, beginning: &EspBeginning, snapshot: &Snapshot) -> Option<(Arc<Sa>, u64)> {
        let is_it =
            |id: &&SaId| (id.destination, id.spi.get()) == (beginning.destination, beginning.spi);
        let id = self.waiting.iter().find(is_it).copied()?;
        let sa = snapshot.sas().find(|sa| sa.config.id == id)?;
        let used = self.used.get(&id)?;
        let number = whole_number(beginning.sequence, used.sent, sa.config.esn);
        self.waiting.remove(&id);
        let salt = beginning.iv ^ number;
        self.salts.insert(id, salt);
        let repeated = used.repeated_by_kernel(salt, used.sent.saturating_add(1));
        let repeated = repeated.filter(|repeated| is_near(*repeated, used.sent, &sa.config));
        repeated.map(|repeated| (Arc::clone(sa), repeated))
    }

    /// The kernel has ended these: what it has used of them is kept.
    pub(super) fn end(&mut self, sas: &[Arc<Sa>], snapshot: &Snapshot) {
        // By an association that has ended no nonce comes again.
        self.look(snapshot);
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
        if self.waiting.is_empty() {
            self.tap = None;
        }
    }

    /// Why one of these associations cannot move once more under the same key, if that is so.
    pub(super) fn refusal(&self, snapshot: &Snapshot, to_kernel: bool) -> Option<String> {
        let watched = snapshot.sas().filter(|sa| is_watched(&sa.config));
        let watched: Vec<_> = watched.collect();
        // Half of them are inbound.
        if watched.len() / 2 > MAX_DEPARTING_SPIS {
            return Some(format!(
                "--same-keys can watch the nonces of {MAX_DEPARTING_SPIS} outbound associations, and there are more"
            ));
        }
        watched.into_iter().find_map(|sa| {
            let id = sa.config.id;
            let used = self.used.get(&id)?;
            let why = match used.by_kernel.len() >= MAX_TIMES_IN_KERNEL {
                true => format!(
                    "it has been on the kernel plane {MAX_TIMES_IN_KERNEL} times under the same key"
                ),
                false if to_kernel => return None,
                false => {
                    let number = self.repeated_by_user(sa, used)?;
                    format!("with sequence number {number} a nonce would come twice under its key")
                }
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

    fn spis(&self) -> Vec<u32> {
        self.waiting.iter().map(|id| id.spi.get()).collect()
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

/// The number whose lower half travels, of one that is above `sent`.
fn whole_number(low: u32, sent: u64, is_extended: bool) -> u64 {
    let number = sent & !u64::from(u32::MAX) | u64::from(low);
    match is_extended && number <= sent {
        true => number.saturating_add(1 << 32),
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_half_of_an_extended_number_follows_from_what_was_sent() {
        assert_eq!(whole_number(7, 5, false), 7);
        assert_eq!(whole_number(7, 0x1_0000_0005, true), 0x1_0000_0007);
        assert_eq!(whole_number(3, 0x1_ffff_fff0, true), 0x2_0000_0003);
    }
}
