//! The ESP header (RFC 4303 2): SPI and sequence number, the part that no suite encrypts.

use crate::Dropped;

/// Bytes of SPI and sequence number.
pub const HEADER_LEN: usize = 8;

/// A packet long enough for its header.
#[derive(Clone, Copy, Debug)]
pub struct Esp<'a> {
    fixed: &'a [u8; HEADER_LEN],
    rest: &'a [u8],
}

impl<'a> Esp<'a> {
    /// Reads a packet that begins with its SPI.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Dropped> {
        let (fixed, rest) = bytes.split_first_chunk().ok_or(Dropped::Malformed)?;
        Ok(Self { fixed, rest })
    }

    /// The security parameters index as it travels; 0 and 1 to 255 included.
    pub fn spi(&self) -> u32 {
        let [a, b, c, d, ..] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The sequence number's low half.
    pub fn sequence(&self) -> u32 {
        let [.., a, b, c, d] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// IV, ciphertext and ICV: where each begins depends on the suite.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// The meaning of a header, to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspFields {
    /// The security parameters index.
    pub spi: u32,
    /// The sequence number's low half.
    pub sequence: u32,
}

impl EspFields {
    /// The header.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&self.spi.to_be_bytes());
        header[4..].copy_from_slice(&self.sequence.to_be_bytes());
        header
    }
}
