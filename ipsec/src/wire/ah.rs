//! The Authentication Header (RFC 4302 2).

use crate::Dropped;

/// Bytes before the ICV.
pub const FIXED_LEN: usize = 12;

/// A header whose length field was found to lie inside the bytes given.
#[derive(Clone, Copy, Debug)]
pub struct Ah<'a> {
    fixed: &'a [u8; FIXED_LEN],
    icv: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ah<'a> {
    /// Reads a header and what it protects.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Dropped> {
        let (fixed, rest) = bytes
            .split_first_chunk::<FIXED_LEN>()
            .ok_or(Dropped::Malformed)?;
        // RFC 4302 2.2: the length is in 32-bit words, minus 2.
        let len = (usize::from(fixed[1]) + 2) * 4;
        let (icv, payload) = len
            .checked_sub(FIXED_LEN)
            .and_then(|icv_len| rest.split_at_checked(icv_len))
            .ok_or(Dropped::Malformed)?;
        Ok(Self {
            fixed,
            icv,
            payload,
        })
    }

    /// What follows this header.
    pub fn next_header(&self) -> u8 {
        self.fixed[0]
    }

    /// Bytes of this header, ICV and its padding included.
    pub fn header_len(&self) -> usize {
        FIXED_LEN + self.icv.len()
    }

    /// The security parameters index as it travels.
    pub fn spi(&self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The sequence number's low half.
    pub fn sequence(&self) -> u32 {
        let [.., a, b, c, d] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The ICV and the padding that aligns the header (RFC 4302 2.6).
    pub fn icv(&self) -> &'a [u8] {
        self.icv
    }

    /// What follows.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The meaning of a header, to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AhFields {
    /// What follows.
    pub next_header: u8,
    /// The security parameters index.
    pub spi: u32,
    /// The sequence number's low half.
    pub sequence: u32,
}

impl AhFields {
    /// The header up to its ICV, of which `icv_len` bytes follow, padding included: a multiple of 4 over IPv4, and
    /// such that the header is one of 8 over IPv6 (RFC 4302 2.6).
    #[inline]
    pub fn emit(&self, icv_len: usize) -> [u8; FIXED_LEN] {
        debug_assert!(icv_len.is_multiple_of(4) && icv_len <= 1020);
        let mut header = [0; FIXED_LEN];
        header[0] = self.next_header;
        header[1] = ((FIXED_LEN + icv_len) / 4 - 2) as u8;
        header[4..8].copy_from_slice(&self.spi.to_be_bytes());
        header[8..].copy_from_slice(&self.sequence.to_be_bytes());
        header
    }
}
