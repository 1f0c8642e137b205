//! What is done to the packets of a capture.

/// What is done to the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    /// Authenticate and decrypt.
    Open,
    /// Encrypt and authenticate.
    Seal,
}
