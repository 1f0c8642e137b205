//! The Authentication Header (RFC 4302), one packet at a time, in the three steps of the pipeline.
//!
//! ```text
//!   outbound   OutboundAh::new      sequence number, next header           prepare (in order)
//!              OutboundAh::write    the header, its ICV zero               transform (any thread)
//!              icv_input            all headers as the ICV covers them     transform
//!              OutboundAh::job      the cipher's view of it                transform
//!   inbound    InboundAh::parse     SPI, sequence number, replay pre-check prepare
//!              icv_input            as above                               transform
//!              InboundAh::job       the cipher's view                      transform
//! ```
//!
//! ```text
//!   [ IP header, options, extension headers ][ AH: next, length, SPI, sequence | ICV, padding ][ payload ] (ESN high)
//!   └── mutable fields zero: `clear_mutable` ┘└────────── ICV zero ──────────┘               └── as it is ┘
//! ```
//!
//! AES-GMAC has an IV in front of the ICV, which is covered as it is (RFC 4543 4 and 7).
//!
//! The headers before AH must be final, but for what routers change, before the ICV is computed: IPv4's identification
//! included, which [`identification`] chooses.

mod mutable;

pub use mutable::clear_mutable;

use crate::Dropped;
use crate::sa::{LockedState, Sa, SaConfig, SequenceNumber};
use crate::wire::ah::{Ah, AhFields, FIXED_LEN};
use multibuffer::{Iv, SignJob, Verdict, VerifyJob};
use std::ops::Range;

/// Bytes of the header, IV, ICV and padding included. RFC 4302 2.6: a multiple of 4 over IPv4, of 8 over IPv6, and no
/// padding beyond that.
pub fn header_len(config: &SaConfig) -> usize {
    let unit = if config.id.destination.is_ipv6() || config.ah_align8 {
        8
    } else {
        4
    };
    icv_place(config).end.next_multiple_of(unit)
}

/// Where the ICV lies in the header: behind the IV, where there is one (RFC 4543 4).
fn icv_place(config: &SaConfig) -> Range<usize> {
    let start = FIXED_LEN + config.suite.iv_len();
    start..start + config.suite.icv_len()
}

/// The identification of an IPv4 packet with AH of this sequence number: never 0, which the kernel would
/// replace after the ICV was computed over it (RFC 4302 3.3.3.1.1.1).
pub fn identification(sequence: SequenceNumber) -> u16 {
    (sequence.low() % 0xffff) as u16 + 1
}

/// The header of a packet to be signed, all but its ICV: made in order, used on any thread.
#[derive(Clone, Copy, Debug)]
pub struct OutboundAh {
    fields: AhFields,
    iv: Iv,
    header_len: usize,
    icv_len: usize,
    high: High,
}

impl OutboundAh {
    /// Fixes the header. `sequence` was reserved with [`SaState::reserve`](crate::sa::SaState::reserve), and `iv` is
    /// its [`Sa::iv_for`], empty for most algorithms.
    pub fn new(config: &SaConfig, sequence: SequenceNumber, iv: Iv, next_header: u8) -> Self {
        Self {
            fields: AhFields {
                next_header,
                spi: config.id.spi.get(),
                sequence: sequence.low(),
            },
            iv,
            header_len: header_len(config),
            icv_len: config.suite.icv_len(),
            high: High::of(config, sequence),
        }
    }

    /// Bytes of the header.
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Writes the header to `out`, which is exactly [`OutboundAh::header_len`] bytes; its ICV and padding are zero.
    pub fn write(&self, out: &mut [u8]) {
        let (fixed, data) = out.split_at_mut(FIXED_LEN);
        fixed.copy_from_slice(&self.fields.emit(data.len()));
        let (iv, icv) = data.split_at_mut(self.iv.as_bytes().len());
        iv.copy_from_slice(self.iv.as_bytes());
        icv.fill(0);
    }

    /// The job that signs a packet whose headers are `covered`; the ICV goes to its place in `data`, which is what the
    /// header has behind its fixed part.
    pub fn job<'a>(
        &'a self,
        sa: &'a Sa,
        covered: &'a [u8],
        payload: &'a [u8],
        data: &'a mut [u8],
    ) -> SignJob<'a> {
        SignJob {
            key: &sa.key,
            input: [covered, payload, self.high.as_bytes()],
            iv: self.iv,
            icv: &mut data[self.iv.as_bytes().len()..][..self.icv_len],
        }
    }
}

/// Writes to `out` what the ICV covers before the payload: `headers`, from the first byte of IP to the last of AH,
/// with mutable fields and the ICV zero. `out` is as long as `headers`, of which `ah_len` bytes are AH.
pub fn icv_input(
    config: &SaConfig,
    headers: &[u8],
    ah_len: usize,
    out: &mut [u8],
) -> Result<(), Dropped> {
    out.copy_from_slice(headers);
    let ah_at = headers
        .len()
        .checked_sub(ah_len)
        .ok_or(Dropped::Malformed)?;
    let (before, ah) = out.split_at_mut(ah_at);
    // RFC 4302 3.3.3.2.1: padding behind the ICV is covered as it is; RFC 4543 7: the IV before it, too.
    ah.get_mut(icv_place(config))
        .ok_or(Dropped::Malformed)?
        .fill(0);
    clear_mutable(before)
}

/// A packet that came in, parsed and pre-checked, its ICV not verified.
#[derive(Clone, Copy, Debug)]
pub struct InboundAh {
    sequence: SequenceNumber,
    next_header: u8,
    header_len: u16,
    high: High,
}

impl InboundAh {
    /// Reads the header at the start of `packet`, completes an extended sequence number and checks it against the
    /// replay window without moving that: replayed floods end here, before any cipher runs.
    pub fn parse(sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        Self::parse_locked(&sa.state.lock(), sa, packet)
    }

    /// The same where the association's state is already locked, for several packets of it in a row.
    pub fn parse_locked(locked: &LockedState<'_>, sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        let config = &sa.config;
        let ah = Ah::new_checked(packet)?;
        // RFC 4302 3.4.4 requires the length; older Linux peers pad IPv4's to 8 bytes as well, which does no harm.
        let least = icv_place(config).end;
        let fits = [4, 8]
            .map(|unit| least.next_multiple_of(unit))
            .contains(&ah.header_len());
        if !fits {
            return Err(Dropped::Malformed);
        }
        let sequence = locked.precheck(config, ah.sequence())?;
        Ok(Self {
            sequence,
            next_header: ah.next_header(),
            header_len: ah.header_len() as u16,
            high: High::of(config, sequence),
        })
    }

    /// The full sequence number; its high half is inferred until the ICV is verified.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// What follows the header.
    pub fn next_header(&self) -> u8 {
        self.next_header
    }

    /// Bytes of the header.
    pub fn header_len(&self) -> usize {
        self.header_len.into()
    }

    /// The job that checks `packet` (the same bytes as in [`InboundAh::parse`]), whose headers are `covered`.
    pub fn job<'a>(&'a self, sa: &'a Sa, covered: &'a [u8], packet: &'a [u8]) -> VerifyJob<'a> {
        let (header, payload) = packet.split_at(self.header_len().min(packet.len()));
        let icv = icv_place(&sa.config);
        // INVARIANT: `parse` has checked that IV and ICV lie in the header.
        let iv = header.get(FIXED_LEN..icv.start).unwrap_or_default();
        VerifyJob {
            key: &sa.key,
            input: [covered, payload, self.high.as_bytes()],
            iv: Iv::new(iv),
            icv: header.get(icv).unwrap_or_default(),
            verdict: Verdict::Pending,
        }
    }
}

/// RFC 4302 3.3.3.3: the high half of an extended sequence number is covered behind everything else, and does not
/// travel.
#[derive(Clone, Copy, Debug)]
struct High(Option<[u8; 4]>);

impl High {
    fn of(config: &SaConfig, sequence: SequenceNumber) -> Self {
        Self(config.esn.then(|| sequence.high().to_be_bytes()))
    }

    fn as_bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |bytes| bytes)
    }
}

#[cfg(test)]
mod tests;
