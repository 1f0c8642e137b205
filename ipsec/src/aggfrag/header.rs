//! The header of an AGGFRAG payload (RFC 9347 6.1), both sub-types.

use crate::Dropped;

/// Bytes of the header without congestion control (RFC 9347 6.1.1).
pub const HEADER_LEN: usize = 4;
/// Bytes of the one with it (RFC 9347 6.1.2).
const CONGESTION_LEN: usize = 24;

/// Where in a payload the first data block begins, and the report of a sender with congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes from the header's end to the first data block that begins here or in a later payload: what belongs to a
    /// packet begun before.
    pub block_offset: u16,
    /// Sub-type 1 alone.
    pub congestion: Option<Congestion>,
}

/// What sub-type 1 adds (RFC 9347 6.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Congestion {
    /// The sender probes the path's MTU.
    pub probing: bool,
    /// Congestion was marked on a packet that the sender received.
    pub marked: bool,
    /// The inverse of the sender's loss event rate.
    pub loss_event_rate: u32,
    /// Round-trip time in microseconds, 22 bits.
    pub round_trip: u32,
    /// Microseconds between `echo`'s arrival and this, 21 bits.
    pub echo_delay: u32,
    /// Microseconds between two packets of the sender, 21 bits.
    pub transmit_delay: u32,
    /// An opaque value, to be echoed.
    pub value: u32,
    /// The value echoed.
    pub echo: u32,
}

impl Header {
    /// Reads the header of a payload; the data blocks follow. Reserved bits are ignored, as both sub-types require.
    pub fn read(payload: &[u8]) -> Result<(Self, &[u8]), Dropped> {
        match payload.first() {
            Some(0) => {
                let ([_, _, high, low], data) =
                    payload.split_first_chunk().ok_or(Dropped::BadInner)?;
                let header = Self {
                    block_offset: u16::from_be_bytes([*high, *low]),
                    congestion: None,
                };
                Ok((header, data))
            }
            Some(1) => {
                let (fixed, data) = payload.split_first_chunk().ok_or(Dropped::BadInner)?;
                Ok((Self::with_congestion(fixed), data))
            }
            _ => Err(Dropped::BadInner),
        }
    }

    fn with_congestion(fixed: &[u8; CONGESTION_LEN]) -> Self {
        let [
            _,
            flags,
            high,
            low,
            a,
            b,
            c,
            d,
            times @ ..,
            e,
            f,
            g,
            h,
            i,
            j,
            k,
            l,
        ] = *fixed;
        let times = u64::from_be_bytes(times);
        let congestion = Congestion {
            probing: flags & 2 != 0,
            marked: flags & 1 != 0,
            loss_event_rate: u32::from_be_bytes([a, b, c, d]),
            round_trip: (times >> 42) as u32,
            echo_delay: (times >> 21) as u32 & 0x1f_ffff,
            transmit_delay: times as u32 & 0x1f_ffff,
            value: u32::from_be_bytes([e, f, g, h]),
            echo: u32::from_be_bytes([i, j, k, l]),
        };
        Self {
            block_offset: u16::from_be_bytes([high, low]),
            congestion: Some(congestion),
        }
    }

    /// The header of sub-type 0 (RFC 9347 6.1.1).
    pub fn emit(block_offset: u16) -> [u8; HEADER_LEN] {
        let [high, low] = block_offset.to_be_bytes();
        [0, 0, high, low]
    }
}
