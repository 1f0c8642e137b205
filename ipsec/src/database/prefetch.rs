//! Fetching ahead. Where there are tens of thousands of associations, a packet finds its own in no cache, and what leads to it
//! is a chain in which each step waits for memory. So before a batch is worked on, its packets take each step together:
//!
//! ```text
//!   hosts ──► slot of the index ──► selector ──► what the policy comes to ──► association ──► its numbers
//!    all           all                all                 all                     all            all
//! ```
//!
//! Nothing here decides anything: what was guessed wrong is waited for when its packet's turn comes.

use super::index::{Guess, Hosts};
use super::resolve::{Route, Way};
use super::snapshot::{SaIndex, Snapshot, Spd, words};
use crate::sa::SaId;
use multibuffer::prefetch;

/// How many packets take their steps together.
pub const TOGETHER: usize = 64;

/// So few associations are in a cache anyway.
const FEW: usize = 128;

impl Snapshot {
    /// Asks for all that packets between these hosts will need on their way out. At most [`TOGETHER`] are looked at.
    pub fn fetch_ways_out(&self, hosts: impl Iterator<Item = Hosts>) {
        self.among_many(hosts, |hosts| {
            let mut sas = [None; TOGETHER];
            let ranks = self.out.fetch_entries(hosts);
            for ((sa, rank), hosts) in sas.iter_mut().zip(ranks).zip(hosts) {
                *sa = rank.and_then(|rank| self.fetch_way(rank, *hosts));
                self.fetch_place(*sa);
            }
            self.fetch_sas(&sas);
        });
    }

    /// Asks for all that packets will need that name these associations as theirs. At most [`TOGETHER`] are looked at.
    pub fn fetch_arrivals(&self, ids: impl Iterator<Item = SaId>) {
        self.among_many(ids, |ids| {
            let mut sas = [None; TOGETHER];
            for id in ids {
                self.places.fetch(words(id));
            }
            for (sa, id) in sas.iter_mut().zip(ids) {
                *sa = self.places.guess(words(id)).map(SaIndex);
                self.fetch_place(*sa);
            }
            self.fetch_sas(&sas);
        });
    }

    /// Asks for what inbound policy will need for packets between these hosts. At most [`TOGETHER`] are looked at.
    pub fn fetch_policies_in(&self, hosts: impl Iterator<Item = Hosts>) {
        self.among_many(hosts, |hosts| {
            self.inbound.fetch_entries(hosts);
            if self.ways_differ {
                self.forward.fetch_entries(hosts);
            }
        });
    }

    /// Asks for the association and the numbers that a packet belongs to.
    pub fn fetch_sas_of(&self, sas: impl Iterator<Item = SaIndex>) {
        self.among_many(sas, |indices| {
            for index in indices {
                self.fetch_place(Some(*index));
            }
            let mut sas = [None; TOGETHER];
            for (sa, index) in sas.iter_mut().zip(indices) {
                *sa = Some(*index);
            }
            self.fetch_sas(&sas);
        });
    }

    /// Hands on what differs from packet to packet, if there is more than one and they are many enough to be far.
    #[inline]
    fn among_many<T: Copy + PartialEq>(
        &self,
        mut of_packets: impl Iterator<Item = T>,
        fetch: impl FnOnce(&[T]),
    ) {
        if self.sas.len() <= FEW {
            return;
        }
        let Some(first) = of_packets.next() else {
            return;
        };
        let (mut different, mut count) = ([first; TOGETHER], 1);
        for of_packet in of_packets.take(TOGETHER - 1) {
            if of_packet != different[count - 1] {
                different[count] = of_packet;
                count += 1;
            }
        }
        if count > 1 {
            fetch(&different[..count]);
        }
    }

    fn fetch_way(&self, rank: u32, (source, destination): Hosts) -> Option<SaIndex> {
        let route = &self.out.entries[rank as usize].answer;
        match route {
            Route::Fixed(_) => route.between(source, destination).and_then(first),
            // Rare, and not looked up twice.
            Route::Discard | Route::Bypass | Route::ByHosts(_) => None,
        }
    }

    fn fetch_place(&self, sa: Option<SaIndex>) {
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
    /// Asks for the policies that most probably fit, and returns their ranks.
    fn fetch_entries(&self, hosts: &[Hosts]) -> [Option<u32>; TOGETHER] {
        let mut guesses: [Option<Guess>; TOGETHER] = [None; TOGETHER];
        let mut ranks = [None; TOGETHER];
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

fn first(way: &Way) -> Option<SaIndex> {
    match way {
        Way::Path(path) => path.first().copied(),
        // Which one a flow takes is not guessed.
        Way::OneOf(_) => None,
    }
}

#[cfg(test)]
mod tests;
