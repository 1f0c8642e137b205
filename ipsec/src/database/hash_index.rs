//! A hash table from keys to positions in another table. A slot takes eight bytes, so the slots of a hundred thousand
//! entries fit into a cache; the entries themselves may not, and can be prefetched ([`HashIndex::guess`]).

use multibuffer::prefetch;
use std::hash::{BuildHasher, RandomState};

/// Slots, of which at least half are empty. No entry is ever removed.
#[derive(Default)]
pub(super) struct HashIndex {
    slots: Box<[Slot]>,
    /// By how much a hash is shifted to name a slot.
    shift: u32,
    seed: u64,
}

#[derive(Clone, Copy)]
struct Slot {
    /// A part of the hash: keys with different tags differ.
    tag: u32,
    place: u32,
}

/// A slot without an entry.
const EMPTY: Slot = Slot {
    tag: 0,
    place: u32::MAX,
};

impl HashIndex {
    /// The positions of these keys, all of them different, in their order.
    pub fn of<const N: usize>(keys: impl ExactSizeIterator<Item = [u64; N]>) -> Self {
        let mut places = Self::with_room(keys.len());
        for (key, place) in keys.zip(0..) {
            places.find_or_insert(key, place, |_| false);
        }
        places
    }

    /// Empty, for at most so many keys.
    pub fn with_room(keys: usize) -> Self {
        let count = (2 * keys).next_power_of_two().max(2);
        Self {
            slots: vec![EMPTY; count].into(),
            shift: 64 - count.trailing_zeros(),
            // Random, so that keys cannot be chosen to collide.
            seed: RandomState::new().hash_one(count),
        }
    }

    /// The position of a key, as [`HashIndex::find`]; a key that has none gets `place`.
    pub fn find_or_insert<const N: usize>(
        &mut self,
        key: [u64; N],
        place: u32,
        is_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let hash = self.hash(key);
        let tag = hash as u32;
        let mut at = self.first(hash);
        while self.slots[at].place != EMPTY.place {
            if self.slots[at].tag == tag && is_it(self.slots[at].place) {
                return Some(self.slots[at].place);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Slot { tag, place };
        None
    }

    /// The position of a key; `is_it` checks whether the entry at a position has it.
    #[inline]
    pub fn find<const N: usize>(&self, key: [u64; N], is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let hash = self.hash(key);
        let mut at = self.first(hash);
        loop {
            let Slot { tag, place } = self.slots[at];
            if place == EMPTY.place {
                return None;
            }
            if tag == hash as u32 && is_it(place) {
                return Some(place);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The most probable position of a key, without reading the entry.
    #[inline]
    pub fn guess<const N: usize>(&self, key: [u64; N]) -> Option<u32> {
        self.find(key, |_| true)
    }

    /// Prefetches the slot of a key.
    #[inline]
    pub fn fetch<const N: usize>(&self, key: [u64; N]) {
        if let Some(slot) = self.slots.get(self.first(self.hash(key))) {
            prefetch(slot);
        }
    }

    fn hash<const N: usize>(&self, key: [u64; N]) -> u64 {
        key.into_iter().fold(self.seed, |hash, word| {
            let product = u128::from(hash ^ word) * u128::from(SPREAD);
            product as u64 ^ (product >> 64) as u64
        })
    }

    fn first(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }
}

/// An odd number with as many ones as zeros.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_place_and_no_other_key_has_one() {
        for count in [0_u64, 1, 2, 3, 100, 10_000] {
            let keys: Vec<_> = (0..count).map(|n| [n << 40, n]).collect();
            let places = HashIndex::of(keys.iter().copied());
            let find = |key: [u64; 2]| places.find(key, |place| keys[place as usize] == key);
            for (place, key) in (0..).zip(&keys) {
                assert_eq!(find(*key), Some(place));
            }
            assert!((count..count + 1000).all(|n| find([n << 40, n]).is_none()));
        }
    }

    #[test]
    fn a_guess_is_nearly_always_right_and_a_table_of_nothing_has_none() {
        let places = HashIndex::of((0..10_000_u32).map(|n| [n.into()]));
        let right = (0..10_000).filter(|n| places.guess([u64::from(*n)]) == Some(*n));
        assert!(right.count() > 9_990);
        assert_eq!(HashIndex::default().guess([1]), None);
    }
}
