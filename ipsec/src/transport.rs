//! The headers before ESP or AH in transport mode (RFC 4302 3.1.1, RFC 4303 3.1.1): where they end, and how they change
//! when ESP or AH is inserted behind them or removed.
//!
//! ```text
//!   [ IP, options │ hop-by-hop, routing, fragment ]                       [ destination options, upper layer ]
//!   [ IP, options │ hop-by-hop, routing, fragment ][ UDP? ][ ESP or AH    [ destination options, upper layer ] ]
//!                                     └── names the next ──┘ and is renamed
//! ```

use crate::Dropped;
use crate::wire::ip::{Chain, Ip, v4, v6};

/// Where IPv4 names its payload.
const PROTOCOL_AT: usize = 9;
/// Where IPv6's fixed header names what follows.
const NEXT_HEADER_AT: usize = 6;

/// The headers of one packet that stay outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnprotectedHeaders {
    /// Their bytes.
    pub len: usize,
    /// Where among them the byte stands that names what follows.
    pub named_at: usize,
    /// What it names.
    pub next: u8,
}

impl UnprotectedHeaders {
    /// The headers of `packet` that stay outside when it is protected.
    pub fn of(packet: &[u8]) -> Result<Self, Dropped> {
        Self::up_to(packet, |chain| {
            (chain.transport_at, chain.transport_named_at)
        })
    }

    /// The headers of a protected `packet` that stand before its ESP, AH or UDP.
    pub fn before(packet: &[u8]) -> Result<Self, Dropped> {
        Self::up_to(packet, |chain| (chain.upper_at, chain.named_at))
    }

    /// In IPv4, ESP or AH follows the header and its options. In IPv6 two places are possible: `of_v6` chooses one.
    fn up_to(packet: &[u8], of_v6: fn(&Chain) -> (usize, usize)) -> Result<Self, Dropped> {
        let (len, named_at) = match Ip::new_checked(packet)? {
            Ip::V4(ipv4) => (ipv4.header_len(), PROTOCOL_AT),
            Ip::V6(ipv6) => of_v6(&Chain::read(&ipv6)?),
        };
        Ok(Self {
            len,
            named_at,
            next: *packet.get(named_at).ok_or(Dropped::Malformed)?,
        })
    }

    /// The headers of a packet that begins with an outer header as it was written, without options.
    pub fn plain(is_v6: bool, next: u8) -> Self {
        if is_v6 {
            Self {
                len: v6::HEADER_LEN,
                named_at: NEXT_HEADER_AT,
                next,
            }
        } else {
            Self {
                len: v4::MIN_HEADER_LEN,
                named_at: PROTOCOL_AT,
                next,
            }
        }
    }

    /// Whether there is nothing but the fixed header.
    pub fn is_plain(&self, is_v6: bool) -> bool {
        self.len == Self::plain(is_v6, self.next).len
    }

    /// Makes these headers, at the start of `headers`, name `next` and count `total_len` bytes in all; an IPv4
    /// checksum is computed anew, and an identification of 0 becomes `identification` (if that is not 0 itself).
    pub fn rename(&self, headers: &mut [u8], next: u8, total_len: usize, identification: u16) {
        if let Some(named) = headers.get_mut(self.named_at) {
            *named = next;
        }
        match headers.first().map(|first| first >> 4) {
            Some(4) => v4::set_total_len(headers, total_len, identification),
            _ => v6::set_total_len(headers, total_len),
        }
    }
}

#[cfg(test)]
mod tests;
