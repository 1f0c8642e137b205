//! The position of an association in one snapshot.

/// The position of an association in one snapshot. Never valid in another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SaIndex(pub u32);
