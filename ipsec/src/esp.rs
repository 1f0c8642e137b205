//! The Encapsulating Security Payload (RFC 4303), one packet at a time, in the three steps of the pipeline.
//!
//! ```text
//!   outbound   Stamp::new      header, IV, trailer are fixed        prepare (in order)
//!              Stamp::job      the cipher's view of it              transform (any thread)
//!   inbound    Received::look  SPI, sequence number, cheap window   prepare
//!              Received::job   the cipher's view                    transform
//!              SaState::admit  window and lifetimes (sa/state.rs)   commit (in order)
//!              Received::strip padding and next header              commit
//! ```
//!
//! A packet here runs from its SPI to its ICV; outer IP and UDP headers belong to [`crate::tunnel`].

use crate::Dropped;
use crate::sa::{Sa, SaConfig, SequenceNumber};
use multibuffer::{Iv, OpenJob, SealJob};
use std::ops::Range;

/// Bytes of SPI and sequence number.
pub const HEADER_LEN: usize = 8;

/// Everything of a packet to be sealed but its plaintext: made in order, used on any thread. Holds no reference, so
/// that it can wait in a slot.
#[derive(Clone, Debug)]
pub struct Stamp {
    _private: (),
}

impl Stamp {
    /// Fixes header, padding and trailer of the packet that carries `plaintext_len` bytes of `next_header`.
    /// `sequence` was reserved with [`SaState::reserve`](crate::sa::SaState::reserve); `iv` is the fresh random (CBC)
    /// or counter value, [`Sa::iv_for`] makes it.
    pub fn new(
        sa: &Sa,
        sequence: SequenceNumber,
        iv: Iv,
        next_header: u8,
        plaintext_len: usize,
    ) -> Self {
        todo!()
    }

    /// Bytes from SPI to ICV.
    pub fn packet_len(&self) -> usize {
        todo!()
    }

    /// Writes SPI, sequence number and IV to the start of `out`, which is exactly [`Stamp::packet_len`] bytes, and
    /// returns the job that seals `head ++ payload ++ trailer` behind them.
    pub fn job<'a>(
        &'a self,
        sa: &'a Sa,
        head: &'a [u8],
        payload: &'a [u8],
        out: &'a mut [u8],
    ) -> SealJob<'a> {
        todo!()
    }
}

/// Bytes from SPI to ICV of a packet that carries `plaintext_len` bytes: what a tunnel costs, padding counted.
pub fn sealed_len(config: &SaConfig, plaintext_len: usize) -> usize {
    todo!()
}

/// The largest plaintext whose sealed packet is at most `packet_len` bytes, or 0 if none is.
pub fn plaintext_limit(config: &SaConfig, packet_len: usize) -> usize {
    todo!()
}

/// A packet that came in, looked at but not yet believed.
#[derive(Clone, Debug)]
pub struct Received {
    _private: (),
}

impl Received {
    /// Reads the header, completes an extended sequence number (RFC 4303 A2.1) and looks at the replay window without
    /// moving it: cheap floods end here.
    pub fn look(sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        todo!()
    }

    /// The full sequence number, a guess until the ICV has proved it.
    pub fn sequence(&self) -> SequenceNumber {
        todo!()
    }

    /// The job that opens `packet` (the same bytes as in [`Received::look`]) in place.
    pub fn job<'a>(&'a self, sa: &'a Sa, packet: &'a mut [u8]) -> OpenJob<'a> {
        todo!()
    }

    /// After the job was genuine: where in `packet` the plaintext lies, without padding, and its next header.
    /// RFC 4303 2.4: padding bytes that are not 1, 2, 3, … are refused.
    pub fn strip(&self, sa: &Sa, packet: &[u8]) -> Result<(Range<usize>, u8), Dropped> {
        todo!()
    }
}
