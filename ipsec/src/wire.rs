//! The headers, as bytes and as fields, in one vocabulary for all of them.
//!
//! ```text
//!   bytes ──► View::new_checked ──► accessors      every length was proven there, so that no accessor can panic
//!   meaning ──► Fields::emit    ──► bytes          lengths and checksums are computed, never passed in
//! ```
//!
//! A view borrows the bytes it read and ends at the length in its own length field: link padding behind a packet is
//! left out. Only here are network bytes addressed by position; all other modules use a view.

pub mod ah;
pub mod checksum;
pub mod esp;
pub mod icmp;
pub mod ip;
pub mod tcp;
pub mod udp;

/// Two bytes in network order.
fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests;
