//! The Encapsulating Security Payload (RFC 4303), one packet at a time, in the three steps of the pipeline.
//!
//! ```text
//!   outbound   sealed_len           where the next packet will begin       prepare (in order)
//!              Sa::random_iv        for suites with random IVs             prepare
//!              OutboundEsp::new     header, IV, trailer are fixed          transform (any thread)
//!              OutboundEsp::job     the cipher's view of it                transform
//!   inbound    InboundEsp::parse    SPI, sequence number, replay pre-check prepare
//!              InboundEsp::job      the cipher's view                      transform
//!              InboundEsp::strip    padding and next header                transform
//!              SaState::admit       replay window and lifetimes            commit (in order)
//! ```
//!
//! A packet here runs from its SPI to its ICV; outer IP and UDP headers belong to [`crate::tunnel`].

use crate::Dropped;
use crate::sa::{LockedState, Mode, Sa, SaConfig, SequenceNumber};
use multibuffer::{Iv, OpenJob, SealJob, Verdict};
use std::ops::Range;

/// Bytes of SPI and sequence number.
pub const HEADER_LEN: usize = 8;

/// Pad length and next header, behind the padding (RFC 4303 2.5, 2.6).
const TRAILER_LEN: usize = 2;

/// Header, IV and trailer of a packet to be sealed. Holds no reference, so that it can wait in a slot.
#[derive(Clone, Debug)]
pub struct OutboundEsp {
    authenticated: Authenticated,
    iv: Iv,
    trailer: Trailer,
    packet_len: usize,
}

impl OutboundEsp {
    /// Fixes header, padding and trailer of the packet that carries `plaintext_len` bytes of `next_header`.
    /// `sequence` was reserved with [`SaState::reserve`](crate::sa::SaState::reserve); `iv` comes from
    /// [`Sa::iv_for`].
    pub fn new(
        sa: &Sa,
        sequence: SequenceNumber,
        iv: Iv,
        next_header: u8,
        plaintext_len: usize,
    ) -> Self {
        let config = &sa.config;
        let trailer = Trailer::new(config, plaintext_len, next_header);
        let overhead = HEADER_LEN + config.suite.iv_len() + config.suite.icv_len();
        Self {
            authenticated: Authenticated::new(config, sequence),
            iv,
            packet_len: overhead + plaintext_len + trailer.as_bytes().len(),
            trailer,
        }
    }

    /// Bytes from SPI to ICV.
    pub fn packet_len(&self) -> usize {
        self.packet_len
    }

    /// Writes SPI, sequence number and IV to the start of `out`, which is exactly [`OutboundEsp::packet_len`] bytes,
    /// and returns the job that seals `head ++ payload ++ trailer` behind them.
    pub fn job<'a>(
        &'a self,
        sa: &'a Sa,
        head: &'a [u8],
        payload: &'a [u8],
        out: &'a mut [u8],
    ) -> SealJob<'a> {
        let (header, rest) = out.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&self.authenticated.header());
        let (iv, output) = rest.split_at_mut(sa.config.suite.iv_len());
        // RFC 8750: an implicit IV enters the nonce and does not travel.
        self.iv.write(iv);
        SealJob {
            key: &sa.key,
            aad: self.authenticated.aad(),
            aad_tail: self.authenticated.tail(),
            iv: self.iv,
            input: [head, payload, self.trailer.as_bytes()],
            output,
        }
    }
}

/// Bytes from SPI to ICV of a packet that carries `plaintext_len` bytes: what a tunnel costs, padding counted.
#[inline]
pub fn sealed_len(config: &SaConfig, plaintext_len: usize) -> usize {
    let suite = &config.suite;
    let trailer = Trailer::padding(config, plaintext_len) + TRAILER_LEN;
    HEADER_LEN + suite.iv_len() + plaintext_len + trailer + suite.icv_len()
}

/// Where the ciphertext of a packet begins, counted from its SPI.
#[inline]
pub fn ciphertext_at(config: &SaConfig) -> usize {
    HEADER_LEN + config.suite.iv_len()
}

/// The largest plaintext whose sealed packet is at most `packet_len` bytes, or 0 if none is.
pub fn max_plaintext_len(config: &SaConfig, packet_len: usize) -> usize {
    let suite = &config.suite;
    let overhead = HEADER_LEN + suite.iv_len() + suite.icv_len();
    let padded = packet_len.saturating_sub(overhead) / suite.align() * suite.align();
    padded.saturating_sub(TRAILER_LEN)
}

/// RFC 4303 2.4: 1, 2, 3, … as far as any cipher needs them.
const PADDING: u128 = u128::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

/// A packet that came in, parsed and pre-checked, its ICV not verified.
#[derive(Clone, Debug)]
pub struct InboundEsp {
    authenticated: Authenticated,
    sequence: SequenceNumber,
}

impl InboundEsp {
    /// Reads the header, completes an extended sequence number (RFC 4303 A2.1) and checks it against the replay window
    /// without moving that: replayed floods end here, before any cipher runs.
    pub fn parse(sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        Self::parse_locked(&sa.state.lock(), sa, packet)
    }

    /// The same where the association's state is already locked, for several packets of it in a row.
    #[inline]
    pub fn parse_locked(locked: &LockedState<'_>, sa: &Sa, packet: &[u8]) -> Result<Self, Dropped> {
        let suite = &sa.config.suite;
        let ciphertext_at = ciphertext_at(&sa.config);
        let text_len = packet
            .len()
            .checked_sub(ciphertext_at + suite.icv_len())
            .ok_or(Dropped::Malformed)?;
        if text_len < TRAILER_LEN || text_len & (suite.align() - 1) != 0 {
            return Err(Dropped::Malformed);
        }
        let low = packet
            .get(4..HEADER_LEN)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(Dropped::Malformed)?;
        let sequence = locked.precheck(&sa.config, u32::from_be_bytes(low))?;
        Ok(Self {
            authenticated: Authenticated::new(&sa.config, sequence),
            sequence,
        })
    }

    /// The full sequence number; its high half is inferred until the ICV is verified.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The job that opens `packet` (the same bytes as in [`InboundEsp::parse`]) in place.
    pub fn job<'a>(&'a self, sa: &'a Sa, packet: &'a mut [u8]) -> OpenJob<'a> {
        let ciphertext_at = ciphertext_at(&sa.config).min(packet.len());
        let (header, text) = packet.split_at_mut(ciphertext_at);
        let iv = if sa.config.has_implicit_iv() {
            implicit_iv(self.sequence)
        } else {
            Iv::new(header.get(HEADER_LEN..).unwrap_or_default())
        };
        OpenJob {
            key: &sa.key,
            aad: self.authenticated.aad(),
            aad_tail: self.authenticated.tail(),
            iv,
            text,
            verdict: Verdict::Pending,
        }
    }

    /// After the ICV was verified: where in `packet` the plaintext lies, without padding, and its next header.
    /// RFC 4303 2.4: the padding must be 1, 2, 3, …, as RFC 4303 requires of every sender.
    pub fn strip(&self, sa: &Sa, packet: &[u8]) -> Result<(Range<usize>, u8), Dropped> {
        let suite = &sa.config.suite;
        let start = ciphertext_at(&sa.config);
        let end = packet
            .len()
            .checked_sub(suite.icv_len())
            .ok_or(Dropped::BadPadding)?;
        let text = packet.get(start..end).ok_or(Dropped::BadPadding)?;
        let [padded @ .., pad_len, next_header] = text else {
            return Err(Dropped::BadPadding);
        };
        let plain_len = padded
            .len()
            .checked_sub(usize::from(*pad_len))
            .ok_or(Dropped::BadPadding)?;
        let padding = padded.get(plain_len..).unwrap_or_default();
        if !padding
            .iter()
            .zip(1u8..)
            .all(|(byte, expected)| *byte == expected)
        {
            return Err(Dropped::BadPadding);
        }
        Ok((start..start + plain_len, *next_header))
    }
}

impl Sa {
    /// The IV for the packet of this sequence number. `random` fills its argument with unpredictable bytes; CBC suites
    /// draw from it for every packet (RFC 3602 3), counter suites never do.
    pub fn iv_for(&self, sequence: SequenceNumber, random: &mut dyn FnMut(&mut [u8])) -> Iv {
        if self.has_random_ivs() {
            self.random_iv(random)
        } else {
            self.derived_iv(sequence)
        }
    }

    /// Whether IVs are random, drawn in order. Those of other suites are derived from sequence numbers, on any thread.
    #[inline]
    pub fn has_random_ivs(&self) -> bool {
        !self.config.has_implicit_iv() && !self.key.iv_is_counter()
    }

    /// The IV of a suite with random IVs.
    pub fn random_iv(&self, random: &mut dyn FnMut(&mut [u8])) -> Iv {
        let mut bytes = [0; 16];
        let fresh = &mut bytes[..self.config.suite.iv_len()];
        random(fresh);
        Iv::new(fresh)
    }

    /// The IV of a suite that derives it from the sequence number.
    #[inline]
    pub fn derived_iv(&self, sequence: SequenceNumber) -> Iv {
        if self.config.has_implicit_iv() {
            implicit_iv(sequence)
        } else {
            Iv::new(&self.state.counter_iv(sequence).to_be_bytes())
        }
    }
}

/// RFC 8750 4: the whole extended number, or 32 zero bits and the short one.
fn implicit_iv(sequence: SequenceNumber) -> Iv {
    Iv::new(&sequence.0.to_be_bytes())
}

/// SPI and sequence number in each shape in which they are authenticated.
#[derive(Clone, Debug)]
struct Authenticated {
    /// SPI, high half, low half.
    words: [u8; 12],
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// SPI, low half: as it travels.
    Plain,
    /// SPI, high half, low half before the text (AEAD, RFC 4106 5).
    HighInside,
    /// SPI, low half before the text, high half behind it (RFC 4303 2.2.1).
    HighBehind,
}

impl Authenticated {
    #[inline]
    fn new(config: &SaConfig, sequence: SequenceNumber) -> Self {
        let is_aead = config
            .suite
            .encryption()
            .is_some_and(|(row, _)| row.icv_len > 0);
        let shape = match (config.esn, is_aead) {
            (false, _) => Shape::Plain,
            (true, true) => Shape::HighInside,
            (true, false) => Shape::HighBehind,
        };
        let [a, b, c, d] = config.id.spi.get().to_be_bytes();
        // The high half stands where `aad` and `tail` can both be slices.
        let (second, third) = match shape {
            Shape::HighInside => (sequence.high(), sequence.low()),
            Shape::Plain | Shape::HighBehind => (sequence.low(), sequence.high()),
        };
        let ([e, f, g, h], [i, j, k, l]) = (second.to_be_bytes(), third.to_be_bytes());
        Self {
            words: [a, b, c, d, e, f, g, h, i, j, k, l],
            shape,
        }
    }

    /// SPI and low half, as they travel.
    fn header(&self) -> [u8; HEADER_LEN] {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.words;
        match self.shape {
            Shape::HighInside => [a, b, c, d, i, j, k, l],
            Shape::Plain | Shape::HighBehind => [a, b, c, d, e, f, g, h],
        }
    }

    fn aad(&self) -> &[u8] {
        match self.shape {
            Shape::HighInside => &self.words,
            Shape::Plain | Shape::HighBehind => &self.words[..8],
        }
    }

    fn tail(&self) -> &[u8] {
        match self.shape {
            Shape::HighBehind => &self.words[8..],
            Shape::Plain | Shape::HighInside => &[],
        }
    }
}

/// Padding, pad length and next header.
#[derive(Clone, Debug)]
enum Trailer {
    /// Without traffic-flow confidentiality: at most 15 bytes of padding.
    Short { bytes: ShortTrailer, len: u8 },
    /// With it: zeros before the padding (RFC 4303 2.7). On the heap, because it is rare.
    Long(Box<[u8]>),
}

/// At most 15 bytes of padding and the trailer behind.
///
/// MEASURED: made in whole words and aligned to them. Written byte by byte, a copy of it waited for the bytes to leave
/// the store buffer, which took two thirds of the time of [`OutboundEsp::new`].
#[derive(Clone, Debug)]
#[repr(align(16))]
struct ShortTrailer([[u8; 16]; 2]);

impl ShortTrailer {
    #[inline]
    fn new(pad_len: usize, next_header: u8) -> Self {
        let at = 8 * pad_len;
        let before = PADDING & ((1 << at) - 1);
        let lengths = u128::from(u16::from_le_bytes([pad_len as u8, next_header]));
        // Of 15 bytes of padding the next header stands in the second word.
        let beyond = if pad_len == 15 { next_header } else { 0 };
        let words = [before | lengths << at, beyond.into()];
        Self(words.map(u128::to_le_bytes))
    }
}

impl Trailer {
    fn new(config: &SaConfig, plaintext_len: usize, next_header: u8) -> Self {
        let zeros = Self::confidentiality(config, plaintext_len);
        let pad_len = Self::alignment(config, plaintext_len + zeros);
        let bytes = ShortTrailer::new(pad_len, next_header);
        let len = pad_len + TRAILER_LEN;
        if zeros > 0 {
            let short = &bytes.0.as_flattened()[..len];
            return Self::Long([&vec![0; zeros][..], short].concat().into());
        }
        Self::Short {
            bytes,
            len: len as u8,
        }
    }

    /// Bytes between the plaintext and the pad length, zeros of confidentiality included.
    fn padding(config: &SaConfig, plaintext_len: usize) -> usize {
        let zeros = Self::confidentiality(config, plaintext_len);
        zeros + Self::alignment(config, plaintext_len + zeros)
    }

    /// Bytes of padding that make the text a whole number of blocks.
    fn alignment(config: &SaConfig, text_len: usize) -> usize {
        (text_len + TRAILER_LEN).wrapping_neg() & (config.suite.align() - 1)
    }

    /// Zeros that hide the length. RFC 4303 2.7: only where the plaintext contains its own length (an IP packet does),
    /// so never in transport mode.
    fn confidentiality(config: &SaConfig, plaintext_len: usize) -> usize {
        if config.mode == Mode::Transport {
            0
        } else {
            usize::from(config.tfc).saturating_sub(plaintext_len)
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes.0.as_flattened()[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests;
