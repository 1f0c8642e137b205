//! The phases of an association.

/// The phase of an association (PF_KEY's states).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// An SPI is reserved, no keys yet.
    Larval,
    /// In use.
    #[default]
    Mature,
    /// Past a soft limit.
    Dying,
    /// Past a hard limit; carries nothing.
    Dead,
}
