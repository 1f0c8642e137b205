//! Native ESP that bypasses the kernel's IP layer: received through a packet ring, sent by AF_XDP or a packet socket.
//!
//! ```text
//!   PacketSource  ◄── ring of frames, shared with the kernel ◄── device        no system call while packets are there
//!   PacketSink    ──► Ethernet and IP header, packet ──► AF_XDP or packet socket ──► device
//!                 └─► raw socket: next hop not in the cache, fragments, too big, and at intervals so that the kernel
//!                     refreshes its neighbour entry
//! ```
//!
//! A raw socket costs a route look-up, all of netfilter and a new skb for each packet, on both sides, and wakes the
//! receiver for each. MEASURED: 1400-byte packets over veth, nanoseconds of processor time for each on both sides
//! together: raw to raw 3100, packet socket to ring 2000, AF_XDP to ring 1300 (2-core Xeon VM, Linux 6.18, under load).
//!
//! What the kernel does for a raw socket is done here: fragments are joined (RFC 4303 3.4.1), the header's checksum is
//! verified, the next hop is looked up ([`NextHops`]). These packets bypass the host's firewall, its qdiscs and, when
//! sent, a packet capture on the same host.

mod departing;
pub(super) mod egress;
mod ethernet_header;
mod filter;
mod native_io;
mod next_hop;
mod probe;
pub(super) mod ring;
mod sink;
pub(super) mod source;
#[cfg(test)]
mod tests;

pub use departing::{DepartingEsp, EspBeginning, MAX_DEPARTING_SPIS};
pub use filter::RingAddresses;
pub use native_io::NativeIo;
pub use next_hop::{NextHop, NextHops};
pub use probe::probe;
pub use sink::{PacketSink, PacketStats};
pub use source::{PacketSource, RingHandle};

pub(super) use ethernet_header::{ETHERNET_HEADER_BYTES, LinkAddresses, ethertype};
pub(super) use ring::bind;
