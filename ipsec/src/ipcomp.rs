//! IP payload compression (RFC 3173) by DEFLATE (RFC 2394), one packet at a time: RFC 3173 2.1 forbids any state from
//! packet to packet, because packets are lost and overtake each other.
//!
//! ```text
//!   [ IP header │ payload ........................ ]      transport mode: what follows the headers is compressed
//!   [ IP header │ next, 0, CPI │ DEFLATE ....... ]        tunnel mode: the whole packet, behind a new IP header
//! ```
//!
//! RFC 3173 2.2: a payload that would not become smaller is sent as it is, without this header.

use crate::Dropped;
use miniz_oxide::DataFormat;
use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, TDEFLStatus, compress};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

/// Next header, flags and CPI (RFC 3173 3.2).
pub const HEADER_LEN: usize = 4;

/// The well-known CPI of DEFLATE (RFC 3173 3.3, RFC 2394 2.1).
pub const DEFLATE_CPI: u16 = 2;

/// Shorter payloads are not tried: most would grow (RFC 2394 2.2). Linux has the same limit.
pub const MIN_PAYLOAD_LEN: usize = 90;

/// No IP packet is longer, so nothing is decompressed to more.
const MAX_PACKET_LEN: usize = 65_535;

/// How hard the compressor looks, of 1 to 10. Packets are short: higher levels find little more in them.
const LEVEL: u8 = 3;

/// What compresses. It holds about 300 KiB, and is used for one packet after the other.
pub struct Compressor(Box<CompressorOxide>);

impl Default for Compressor {
    fn default() -> Self {
        let mut state = Box::<CompressorOxide>::default();
        state.set_format_and_level(DataFormat::Raw, LEVEL);
        Self(state)
    }
}

impl Compressor {
    /// Appends an IPComp header and the compressed `payload` to `out`, and returns true; or changes nothing and returns
    /// false, where both together would not be shorter than `payload` (RFC 3173 2.2).
    pub fn compress(
        &mut self,
        next_header: u8,
        cpi: u16,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        if payload.len() < MIN_PAYLOAD_LEN {
            return false;
        }
        let start = out.len();
        // One byte less than the payload: what does not fit is no gain.
        out.resize(start + payload.len() - 1, 0);
        let (header, room) = out[start..].split_at_mut(HEADER_LEN);
        let [high, low] = cpi.to_be_bytes();
        header.copy_from_slice(&[next_header, 0, high, low]);
        self.0.reset();
        let (status, _, len) = compress(&mut self.0, payload, room, TDEFLFlush::Finish);
        let is_shorter = status == TDEFLStatus::Done;
        let end = if is_shorter { HEADER_LEN + len } else { 0 };
        out.truncate(start + end);
        is_shorter
    }
}

/// What decompresses, with room for the largest packet.
pub struct Decompressor {
    state: Box<DecompressorOxide>,
    text: Box<[u8]>,
}

impl Default for Decompressor {
    fn default() -> Self {
        Self {
            state: Box::default(),
            text: vec![0; MAX_PACKET_LEN].into(),
        }
    }
}

impl Decompressor {
    /// The payload that `data`, from behind the IPComp header on, was made from, if that leaves room for `headers`
    /// bytes of IP headers in an IP packet. What would become longer is not decompressed any further.
    pub fn decompress(&mut self, data: &[u8], headers: usize) -> Result<&[u8], Dropped> {
        let room = &mut self.text[..MAX_PACKET_LEN.saturating_sub(headers)];
        self.state.init();
        let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, _, len) = decompress(&mut self.state, data, room, 0, flags);
        match status {
            TINFLStatus::Done => Ok(&self.text[..len]),
            TINFLStatus::HasMoreOutput => Err(Dropped::ExpandsTooFar),
            _ => Err(Dropped::BadCompression),
        }
    }
}

/// A packet that came in, behind its IP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InboundIpComp {
    next_header: u8,
    is_compressed: bool,
}

impl InboundIpComp {
    /// Reads the header. RFC 3173 3.2: flags are ignored.
    pub fn parse(packet: &[u8]) -> Result<Self, Dropped> {
        match packet {
            [next_header, _, _, _, ..] => Ok(Self {
                next_header: *next_header,
                is_compressed: true,
            }),
            _ => Err(Dropped::Malformed),
        }
    }

    /// A packet of a tunnel that was sent as it is (RFC 3173 2.2): its outer IP header names `next_header` itself.
    pub fn left_out(next_header: u8) -> Self {
        Self {
            next_header,
            is_compressed: false,
        }
    }

    /// Bytes of IPComp header: none where it was left out.
    pub fn header_len(&self) -> usize {
        if self.is_compressed { HEADER_LEN } else { 0 }
    }

    /// What is inside.
    pub fn next_header(&self) -> u8 {
        self.next_header
    }

    /// Whether the payload is compressed at all.
    pub fn is_compressed(&self) -> bool {
        self.is_compressed
    }
}

/// The CPI of a packet that begins with an IPComp header.
pub fn cpi(packet: &[u8]) -> Option<u32> {
    let [_, _, high, low, ..] = packet else {
        return None;
    };
    Some(u16::from_be_bytes([*high, *low]).into())
}

#[cfg(test)]
mod tests;
