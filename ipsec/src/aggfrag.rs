//! AGGFRAG mode (RFC 9347): many small packets in one ESP packet, large ones across several, and with a constant rate
//! the outer packets do not show when inner ones are sent (IP-TFS).
//!
//! ```text
//!   inner packets   [ A ][ B ][ ....... C ....... ][ D ]
//!   payloads        [h| A | B | C.. ]  [h| ..C.. ]  [h| ..C | D | pad ]      h = header: where the next block begins
//!                          │ one ESP packet each, consecutive sequence numbers
//!   Packer          packets ──► payloads              outbound, in order
//!   Unpacker        payloads ──► packets              inbound, in order, behind the replay window
//! ```
//!
//! An association carries AGGFRAG payloads or none at all (RFC 9347 2.3).

mod config;
mod header;
mod packer;
mod unpacker;

pub use config::{Aggfrag, MAX_REORDER_WINDOW_PAYLOADS};
pub use header::{Congestion, HEADER_LEN, Header};
pub use packer::Packer;
pub use unpacker::{Unpacked, Unpacker};

use crate::esp;
use crate::sa::SaConfig;
use crate::wire::ip::{v4, v6};

/// The protocol number of an AGGFRAG payload inside ESP (RFC 9347 6.1).
pub const PROTOCOL: u8 = 144;

/// Bytes of data blocks in each payload of `sa` over a path of `path_mtu`; 0 if none fits. RFC 9347 2.2.8: the outer
/// path decides, not the inner packets.
pub fn payload_capacity(sa: &SaConfig, path_mtu: usize) -> usize {
    let wanted = sa.aggfrag.map_or(0, |aggfrag| usize::from(aggfrag.size));
    let packet_len = match wanted {
        0 => path_mtu,
        wanted => wanted.min(path_mtu),
    };
    let ip_len = if sa.id.destination.is_ipv4() {
        v4::MIN_HEADER_LEN
    } else {
        v6::HEADER_LEN
    };
    let headers = ip_len + sa.encapsulation_len();
    esp::max_plaintext_len(sa, packet_len.saturating_sub(headers)).saturating_sub(HEADER_LEN)
}

#[cfg(test)]
mod tests;
