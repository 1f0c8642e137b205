//! Writes structures that begin with their own length.

use super::PayloadType;
use std::fmt;

/// A payload that its length field of 16 bits cannot describe: too many local certificates or proposals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong(pub PayloadType);

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "payload {} or a list in it is too long for its length field",
            self.0
        )
    }
}

impl std::error::Error for TooLong {}

/// That a length or a count does not fit its field; which payload it is in is added where that is known.
pub(super) struct Overflow;

/// Writes a structure whose bytes 2 and 3 are its length, and fills these in behind it.
pub(super) fn with_length(
    out: &mut Vec<u8>,
    structure: impl FnOnce(&mut Vec<u8>) -> Result<(), Overflow>,
) -> Result<(), Overflow> {
    let start = out.len();
    structure(out)?;
    let len = u16::try_from(out.len() - start).map_err(|_| Overflow)?;
    out[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// A count or a length of 8 bits.
pub(super) fn count(len: usize) -> Result<u8, Overflow> {
    u8::try_from(len).map_err(|_| Overflow)
}
