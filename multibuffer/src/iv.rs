//! An explicit IV, as it stands in a packet.

use crate::copy::copy;

/// An explicit initialisation vector: 0 to 16 bytes, held inline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Iv {
    bytes: [u8; 16],
    len: u8,
}

impl Iv {
    /// The IV made of `bytes`, at most 16 of them.
    ///
    /// # Panics
    /// If `bytes` is longer than 16.
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        let mut iv = Self::default();
        copy(bytes, &mut iv.bytes[..bytes.len()]);
        iv.len = bytes.len() as u8;
        iv
    }

    /// The bytes as they stand in the packet.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Writes the first bytes to `place`, which holds none where an IV is implicit (RFC 8750).
    ///
    /// # Panics
    /// If `place` is longer than the IV.
    #[inline]
    pub fn write(&self, place: &mut [u8]) {
        copy(&self.as_bytes()[..place.len()], place);
    }
}
