//! What a network card does of an association's work.

use std::sync::Arc;

/// How much of the work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OffloadKind {
    /// Encryption and authentication.
    Crypto,
    /// Headers, sequence numbers and the replay window too.
    Packet,
}

/// A network card that takes over work of an association.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Offload {
    /// How much of the work.
    pub kind: OffloadKind,
    /// The name of its network device.
    pub device: Arc<str>,
}
