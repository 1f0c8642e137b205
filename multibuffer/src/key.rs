//! An expanded key: cipher and integrity of one security association, ready to use.

use crate::{Cipher, Integrity};

/// The expanded keys of one security association. Shared by all threads, zeroed when dropped, never printed.
pub struct Key {
    cipher: Cipher,
    integrity: Integrity,
    icv_len: u8,
}

/// Why key bytes do not make a [`Key`]. Says nothing of the bytes themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// The cipher takes no key of this many bytes (salt or nonce included).
    CipherKeyLength(usize),
    /// The integrity algorithm takes no key of this many bytes.
    IntegrityKeyLength(usize),
    /// An AEAD cipher was combined with an integrity algorithm.
    AeadWithIntegrity,
    /// The ICV is longer than the algorithm's output, or shorter than 8 bytes.
    IcvLength(usize),
}

impl Key {
    /// Expands the keys. `cipher_key` includes the trailing salt or nonce of counter modes. `icv_len` is the
    /// number of ICV bytes on the wire: the truncation of `integrity`, the AEAD's own length, or 0 for none.
    pub fn new(
        cipher: Cipher,
        cipher_key: &[u8],
        integrity: Integrity,
        integrity_key: &[u8],
        icv_len: usize,
    ) -> Result<Self, KeyError> {
        todo!()
    }

    /// Bytes of explicit IV in each packet.
    pub fn iv_len(&self) -> usize {
        todo!()
    }

    /// Plaintext is padded to a multiple of this many bytes (1 for stream modes).
    pub fn block_len(&self) -> usize {
        todo!()
    }

    /// Bytes of ICV behind the ciphertext.
    pub fn icv_len(&self) -> usize {
        usize::from(self.icv_len)
    }

    /// Whether the explicit IV must be a never-repeating counter rather than unpredictable.
    pub fn iv_is_counter(&self) -> bool {
        todo!()
    }

    /// The cipher.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The integrity algorithm.
    pub fn integrity(&self) -> Integrity {
        self.integrity
    }
}
