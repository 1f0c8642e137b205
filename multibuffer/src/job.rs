//! One packet's work, as keys and byte ranges.

use crate::{Iv, Key};

/// Encrypt and authenticate: gathers up to three ranges into one.
pub struct SealJob<'a> {
    /// Cipher, integrity and their expanded keys.
    pub key: &'a Key,
    /// Authenticated, not encrypted, before the IV: SPI and sequence number.
    pub aad: &'a [u8],
    /// Authenticated after the ciphertext by encrypt-then-MAC keys; empty for AEAD keys.
    pub aad_tail: &'a [u8],
    /// The explicit IV, exactly [`Key::iv_len`] bytes.
    pub iv: Iv,
    /// The plaintext in order: a new header, a slice of the payload, a trailer. Any may be empty; together they
    /// are a multiple of [`Key::block_len`].
    pub input: [&'a [u8]; 3],
    /// Receives the ciphertext and, behind it, the ICV.
    pub output: &'a mut [u8],
}

/// Authenticate and decrypt in place.
pub struct OpenJob<'a> {
    /// Cipher, integrity and their expanded keys.
    pub key: &'a Key,
    /// As in [`SealJob::aad`].
    pub aad: &'a [u8],
    /// As in [`SealJob::aad_tail`].
    pub aad_tail: &'a [u8],
    /// The explicit IV as received.
    pub iv: Iv,
    /// Ciphertext and ICV; afterwards the plaintext stands at its start.
    pub text: &'a mut [u8],
    /// The outcome.
    pub verdict: Verdict,
}

/// Authenticate alone: an ICV over up to three ranges.
pub struct SignJob<'a> {
    /// Integrity algorithm and its expanded key.
    pub key: &'a Key,
    /// The authenticated bytes in order.
    pub input: [&'a [u8]; 3],
    /// For GMAC (in AH, RFC 4543 4) the explicit IV; empty otherwise.
    pub iv: Iv,
    /// Receives exactly [`Key::icv_len`] bytes.
    pub icv: &'a mut [u8],
}

/// Check an ICV alone, over up to three ranges.
pub struct VerifyJob<'a> {
    /// As in [`SignJob::key`].
    pub key: &'a Key,
    /// As in [`SignJob::input`].
    pub input: [&'a [u8]; 3],
    /// As in [`SignJob::iv`].
    pub iv: Iv,
    /// The ICV as received.
    pub icv: &'a [u8],
    /// The outcome.
    pub verdict: Verdict,
}

/// The outcome of opening or verifying a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// Not processed yet.
    #[default]
    Pending,
    /// The ICV is right and the plaintext is in place.
    Genuine,
    /// The ICV is wrong, or the lengths cannot be right.
    BadIcv,
}
