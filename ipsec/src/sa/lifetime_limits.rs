//! When an association should be replaced (soft) and when it must die (hard): RFC 4301 4.4.2.1.

/// Soft and hard limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lifetimes {
    /// Past these an event requests a successor.
    pub soft: LifetimeLimits,
    /// Past these nothing is carried any more.
    pub hard: LifetimeLimits,
}

/// Limits of each kind; 0 is "none", as in setkey.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LifetimeLimits {
    /// Bytes carried (plaintext, as the kernel counts them).
    pub bytes: u64,
    /// Packets carried.
    pub packets: u64,
    /// Seconds since it was added.
    pub age: u64,
    /// Seconds since it was first used.
    pub first_use: u64,
}
