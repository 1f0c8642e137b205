//! What is known of the few messages of a window, by their IDs: in one piece of memory, none while there are none.

/// Values by message ID, in order.
pub(super) struct ById<T>(Vec<(u32, T)>);

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ById<T> {
    pub fn get(&self, id: u32) -> Option<&T> {
        let place = self.place(id).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let place = self.place(id).ok()?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    /// Adds a value, or replaces the one of this ID.
    pub fn insert(&mut self, id: u32, value: T) {
        match self.get_mut(id) {
            Some(known) => *known = value,
            None => {
                let place = self.place(id).unwrap_or_else(|place| place);
                self.0.reserve_exact(1);
                self.0.insert(place, (id, value));
            }
        }
    }

    pub fn remove(&mut self, id: u32) -> Option<T> {
        let place = self.place(id).ok()?;
        let (_, value) = self.0.remove(place);
        self.0.shrink_to_fit();
        Some(value)
    }

    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.0.retain(|(id, _)| keep(*id));
        self.0.shrink_to_fit();
    }

    pub fn ids(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.0.iter().map(|(id, _)| *id)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The first for which `is_it` holds.
    pub fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<(u32, &T)> {
        let found = self.0.iter().find(|(_, value)| is_it(value))?;
        Some((found.0, &found.1))
    }

    fn place(&self, id: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |(id, _)| *id)
    }
}
