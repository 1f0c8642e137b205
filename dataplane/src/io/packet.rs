//! Native ESP past the kernel's IP layer: in through a packet ring, out through AF_XDP or a packet socket.
//!
//! ```text
//!   PacketSource  ◄── ring of frames, shared with the kernel ◄── device        no system call while packets are there
//!   PacketSink    ──► Ethernet and IP header, packet ──► AF_XDP or packet socket ──► device
//!                 └─► raw socket: no simple way, fragments, too big, and once in a while so that the kernel keeps
//!                     its neighbour fresh
//! ```
//!
//! A raw socket costs a route look-up, all of netfilter and a fresh buffer for each packet, on both sides, and wakes the
//! receiver for each. MEASURED: 1400-byte packets over veth, nanoseconds of processor time for each on both sides
//! together: raw to raw 3100, packet socket to ring 2000, AF_XDP to ring 1300 (2-core Xeon VM, Linux 6.18, under load).
//!
//! What the kernel would do for a raw socket is done here: fragments are joined (RFC 4303 3.4.1), the header's checksum is
//! looked at, the next hop is asked of a [`NextHops`]. What these packets do not meet any more: the host's own firewall,
//! traffic shaping, and on the way out a packet capture on the same host.

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

pub use filter::RingAddresses;
pub use native_io::NativeIo;
pub use next_hop::{NextHop, NextHops};
pub use probe::probe;
pub use sink::{PacketSink, PacketStats};
pub use source::{PacketSource, RingHandle};

pub(super) use ethernet_header::{ETHERNET_HEADER_BYTES, LinkAddresses, ethertype};
pub(super) use ring::bind;
