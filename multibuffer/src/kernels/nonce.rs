//! What stays the same through the counter blocks of a packet.

/// Salt and IV, twelve bytes together.
///
/// A number, because it is passed in registers: bytes that are assembled in memory and read back as one have to be
/// written first, and a short packet has nothing else to do meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Nonce(u128);

impl Nonce {
    /// The salt, then the IV.
    pub(crate) fn new(salt: [u8; 4], iv: [u8; 8]) -> Self {
        let (salt, iv) = (u32::from_le_bytes(salt), u64::from_le_bytes(iv));
        Self(u128::from(iv) << 32 | u128::from(salt))
    }

    /// The bytes in order.
    pub(crate) fn to_bytes(self) -> [u8; 12] {
        let bytes = self.0.to_le_bytes();
        *bytes.first_chunk().expect("12 of 16 bytes")
    }

    /// The counter block with this number, as the processor reads it from memory but for the number's own order.
    pub(crate) fn with_counter_last(self, number: u32) -> u128 {
        u128::from(number) << 96 | self.0
    }

    /// The same with the number in front, as ChaCha20 has it (RFC 8439 2.3).
    pub(crate) fn with_counter_first(self, number: u32) -> u128 {
        self.0 << 32 | u128::from(number)
    }
}
