//! Prefetching. With tens of thousands of associations, that of a packet is in no cache, and it is found by a chain of
//! look-ups in which each step waits for memory. So before a batch is processed, all its packets take each step
//! together:
//!
//! ```text
//!   hosts ──► slot of the index ──► selector ──► decision of the policy   ──► association ──► its numbers
//!    all           all                all                 all                     all            all
//! ```
//!
//! Nothing is decided here: a wrong guess only means that the packet waits for memory later.

use super::SaIndex;
use super::index::{Guess, Hosts};
use super::resolve::{Route, SaPaths};
use super::snapshot::{Snapshot, Spd, words};
use crate::sa::SaId;
use multibuffer::prefetch;

/// How many packets take their steps together at most.
pub const MAX_PREFETCH_PACKETS: usize = 64;

/// Up to this number, associations are in a cache anyway.
const MAX_CACHED_ASSOCIATIONS: usize = 128;

impl Snapshot {
    /// Prefetches what outbound packets between these hosts need. At most [`MAX_PREFETCH_PACKETS`] are read.
    pub fn prefetch_outbound(&self, hosts: impl Iterator<Item = Hosts>) {
        self.for_distinct(hosts, |hosts| {
            let mut sas = [None; MAX_PREFETCH_PACKETS];
            let ranks = self.out.fetch_entries(hosts);
            for ((sa, rank), hosts) in sas.iter_mut().zip(ranks).zip(hosts) {
                *sa = rank.and_then(|rank| self.first_association(rank, *hosts));
                self.fetch_pointer(*sa);
            }
            self.fetch_sas(&sas);
        });
    }

    /// Prefetches what inbound packets with these SPIs need. At most [`MAX_PREFETCH_PACKETS`] are read.
    pub fn prefetch_inbound(&self, ids: impl Iterator<Item = SaId>) {
        self.for_distinct(ids, |ids| {
            let mut sas = [None; MAX_PREFETCH_PACKETS];
            for id in ids {
                self.places.fetch(words(id));
            }
            for (sa, id) in sas.iter_mut().zip(ids) {
                *sa = self.places.guess(words(id)).map(SaIndex);
                self.fetch_pointer(*sa);
            }
            self.fetch_sas(&sas);
        });
    }

    /// Prefetches what inbound policy needs for packets between these hosts. At most [`MAX_PREFETCH_PACKETS`] are read.
    pub fn prefetch_inbound_policies(&self, hosts: impl Iterator<Item = Hosts>) {
        self.for_distinct(hosts, |hosts| {
            self.inbound.fetch_entries(hosts);
            if self.in_and_fwd_differ {
                self.forward.fetch_entries(hosts);
            }
        });
    }

    /// Prefetches these associations and their counters.
    pub fn prefetch_associations(&self, sas: impl Iterator<Item = SaIndex>) {
        self.for_distinct(sas, |indices| {
            for index in indices {
                self.fetch_pointer(Some(*index));
            }
            let mut sas = [None; MAX_PREFETCH_PACKETS];
            for (sa, index) in sas.iter_mut().zip(indices) {
                *sa = Some(*index);
            }
            self.fetch_sas(&sas);
        });
    }

    /// Calls `fetch` with what differs from packet to packet, if there is more than one and the associations are many
    /// enough to be out of the cache.
    #[inline]
    fn for_distinct<T: Copy + PartialEq>(
        &self,
        mut of_packets: impl Iterator<Item = T>,
        fetch: impl FnOnce(&[T]),
    ) {
        if self.sas.len() <= MAX_CACHED_ASSOCIATIONS {
            return;
        }
        let Some(first) = of_packets.next() else {
            return;
        };
        let (mut different, mut count) = ([first; MAX_PREFETCH_PACKETS], 1);
        for of_packet in of_packets.take(MAX_PREFETCH_PACKETS - 1) {
            if of_packet != different[count - 1] {
                different[count] = of_packet;
                count += 1;
            }
        }
        if count > 1 {
            fetch(&different[..count]);
        }
    }

    fn first_association(&self, rank: u32, (source, destination): Hosts) -> Option<SaIndex> {
        let route = &self.out.entries[rank as usize].answer;
        match route {
            Route::Fixed(_) => route.between(source, destination).and_then(first),
            Route::ByDevice(choices) => choices
                .paths()
                .next()
                .and_then(|path| path.first().copied()),
            // Rare, and not worth a second look-up.
            Route::Discard | Route::Bypass | Route::ByHosts(_) => None,
        }
    }

    fn fetch_pointer(&self, sa: Option<SaIndex>) {
        if let Some(SaIndex(place)) = sa {
            prefetch(&self.sas[place as usize]);
        }
    }

    fn fetch_sas(&self, sas: &[Option<SaIndex>]) {
        for index in sas.iter().flatten() {
            self.sa(*index).fetch();
        }
        for index in sas.iter().flatten() {
            self.sa(*index).state.fetch();
        }
    }
}

impl<A> Spd<A> {
    /// Prefetches the policies that most probably fit, and returns their ranks.
    fn fetch_entries(&self, hosts: &[Hosts]) -> [Option<u32>; MAX_PREFETCH_PACKETS] {
        let mut guesses: [Option<Guess>; MAX_PREFETCH_PACKETS] = [None; MAX_PREFETCH_PACKETS];
        let mut ranks = [None; MAX_PREFETCH_PACKETS];
        for hosts in hosts {
            self.index.fetch(*hosts);
        }
        for (guess, hosts) in guesses.iter_mut().zip(hosts) {
            *guess = self.index.guess(*hosts);
        }
        for ((rank, guess), hosts) in ranks.iter_mut().zip(guesses).zip(hosts) {
            *rank = guess.and_then(|guess| self.index.rank(*hosts, guess));
            if let Some(rank) = *rank {
                prefetch(&self.entries[rank as usize]);
            }
        }
        ranks
    }
}

fn first(way: &SaPaths) -> Option<SaIndex> {
    match way {
        SaPaths::Single(path) => path.first().copied(),
        // Which one a flow takes is not guessed.
        SaPaths::Spread(_) => None,
    }
}

#[cfg(test)]
mod tests;
