//! A map of a handful of values by their numbers: as large as what is in it, where a tree takes room for eleven.

use std::slice;

/// Values by rising keys.
#[derive(Clone)]
pub(crate) struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Copy, V> Few<K, V> {
    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let place = self.place(key).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => {
                // Nearly every map has one entry; a second one exists only briefly, so room is reserved for one at a
                // time.
                self.0.reserve_exact(1);
                self.0.insert(place, (key, value));
            }
        }
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key).ok()?;
        let (_, value) = self.0.remove(place);
        self.0.shrink_to_fit();
        Some(value)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All, by rising keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// All, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        let all: slice::IterMut<'_, (K, V)> = self.0.iter_mut();
        all.map(|(key, value)| (*key, value))
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// All values, to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by_key(key, |(known, _)| *known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_holds_what_a_tree_holds(
            steps in proptest::collection::vec((any::<bool>(), 0u8..12, any::<u32>()), 0..60),
        ) {
            let (mut few, mut tree) = (Few::default(), BTreeMap::new());
            for (adds, key, value) in steps {
                if adds {
                    few.insert(key, value);
                    tree.insert(key, value);
                } else {
                    prop_assert_eq!(few.remove(&key), tree.remove(&key));
                }
                prop_assert_eq!(few.get(&key), tree.get(&key));
                prop_assert_eq!(few.get_mut(&key), tree.get_mut(&key));
                prop_assert_eq!(few.is_empty(), tree.is_empty());
                let all: Vec<_> = few.iter().map(|(key, value)| (key, *value)).collect();
                prop_assert_eq!(all, tree.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!(few.0.capacity(), tree.len());
            }
        }
    }
}
