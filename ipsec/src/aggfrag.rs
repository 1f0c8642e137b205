//! AGGFRAG mode (RFC 9347): many small packets in one ESP packet, large ones across several, and with a constant rate
//! nothing outside tells what goes on inside (IP-TFS).
//!
//! ```text
//!   inner packets   [ A ][ B ][ ....... C ....... ][ D ]
//!   payloads        [h| A | B | C.. ]  [h| ..C.. ]  [h| ..C | D | pad ]      h = header: where the next block begins
//!                          │ one ESP packet each, consecutive sequence numbers
//!   Packer          packets ──► payloads              outbound, in order
//!   Receiver        payloads ──► packets              inbound, in order, behind the replay window
//! ```
//!
//! An association carries AGGFRAG payloads or none at all (RFC 9347 2.3).

#[doc(hidden)]
pub mod fuzz_body;
mod header;
mod packer;
mod receiver;

pub use header::{Congestion, HEADER_LEN, Header};
pub use packer::Packer;
pub use receiver::{Receiver, Released};

use crate::esp;
use crate::sa::SaConfig;
use crate::wire::ip::{v4, v6};

/// The protocol number of an AGGFRAG payload inside ESP (RFC 9347 6.1).
pub const PROTOCOL: u8 = 144;

/// The most payloads that a receiver waits behind a missing one for.
pub const MAX_WINDOW: u16 = 1024;

/// How an association aggregates and fragments. Both ends need the mode; each chooses the rest for itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aggfrag {
    /// Whether a packet may be continued in the next payload (RFC 9347 2.2.2), or only whole ones are sent.
    pub fragments: bool,
    /// Bytes of an outer packet, its IP header included; 0 for as many as the path carries.
    pub size: u16,
    /// Outer packets each second, all of one size, padding where there is nothing to send (RFC 9347 2.4.1); 0 for
    /// packets as there are some, without padding.
    pub rate: u32,
    /// How many payloads may overtake a missing one before it is given up (RFC 9347 2.2.3).
    pub window: u16,
    /// Milliseconds after which it is given up whatever follows.
    pub patience: u16,
}

impl Default for Aggfrag {
    fn default() -> Self {
        Self {
            fragments: true,
            size: 0,
            rate: 0,
            window: 3,
            patience: 100,
        }
    }
}

/// Bytes of data blocks in each payload of `sa` over a path of `path_mtu`; 0 if none fits. RFC 9347 2.2.8: the outer
/// path decides, whatever the inner packets are.
pub fn room(sa: &SaConfig, path_mtu: usize) -> usize {
    let wanted = sa.aggfrag.map_or(0, |aggfrag| usize::from(aggfrag.size));
    let packet_len = match wanted {
        0 => path_mtu,
        wanted => wanted.min(path_mtu),
    };
    let ip_len = match sa.id.destination.is_ipv4() {
        true => v4::MIN_HEADER_LEN,
        false => v6::HEADER_LEN,
    };
    let headers = ip_len + sa.encapsulation_len();
    esp::plaintext_limit(sa, packet_len.saturating_sub(headers)).saturating_sub(HEADER_LEN)
}

#[cfg(test)]
mod tests;
