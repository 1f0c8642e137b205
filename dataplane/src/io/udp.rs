//! ESP in UDP (RFC 3948): one socket per port and family, trains both ways.
//!
//! ```text
//!   Burst: packet packet packet … ──► sendmmsg, UDP_SEGMENT ──►  one datagram each on the wire
//!   Arrival: the same run again    ◄── recvmmsg, UDP_GRO     ◄──  one datagram each on the wire
//! ```
//!
//! Both are tried with real packets at start ([`probe()`]); what fails is done without, and said aloud.
//!
//! The socket is bound to the wildcard address and sends from the source that each burst names, so gateways with many
//! addresses need no more sockets. The kernel's `UDP_ENCAP` is not used: it would hand the packets to a kernel ESP.
//!
//! RFC 3948 2.1 says that the UDP checksum over IPv4 should be zero. Such datagrams can neither be segmented by the
//! kernel nor coalesced by the receiver's (`udp_send_skb` and `udp_gro_receive_segment` refuse them), so we send a
//! checksum, which the same section obliges every receiver to take, unless [`UdpOptions::zero_checksum`] asks otherwise.

mod open;
mod options;
mod probe;
mod sink;
mod source;
mod stats;
#[cfg(test)]
mod tests;

pub use open::open;
pub use options::{UdpOffloads, UdpOptions};
pub use probe::{OffloadState, UdpProbe, probe};
pub use sink::UdpSink;
pub use source::{IkeHandler, UdpSource};
pub use stats::UdpStats;
