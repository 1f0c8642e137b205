//! ESP in UDP (RFC 3948): one socket per port and family, with UDP GSO to send and UDP GRO to receive.
//!
//! ```text
//!   Burst: packet packet packet … ──► sendmmsg, UDP_SEGMENT ──►  one datagram each on the wire
//!   Arrival: the same run again    ◄── recvmmsg, UDP_GRO     ◄──  one datagram each on the wire
//! ```
//!
//! Both are probed with real packets at start ([`probe()`]); what fails is not used, and a warning names it.
//!
//! The socket is bound to the wildcard address and sends from the source address that each burst has, so a gateway with
//! many addresses needs no more sockets. The kernel's `UDP_ENCAP` is not used: it would pass the packets to the
//! kernel's ESP.
//!
//! Port 4500 is also a port of IKE (RFC 3948 2.2). Where IKE is used, a second socket has the port and receives its
//! messages ([`IkeSocket`]).
//!
//! RFC 3948 2.1: the UDP checksum over IPv4 SHOULD be zero. Such datagrams can neither be segmented by the kernel nor
//! coalesced by the receiver's (`udp_send_skb` and `udp_gro_receive_segment` refuse them), so a checksum is sent, which
//! every receiver must accept by the same section, unless [`UdpOptions::zero_checksum`] is set.

mod ike;
mod open;
mod options;
mod probe;
mod shared_port;
mod sink;
mod source;
mod stats;
#[cfg(test)]
mod tests;

pub use ike::{IkeBuffer, IkeSocket, open_ike};
pub use open::{open, open_third};
pub use options::{UdpOffloads, UdpOptions, set_coalescing};
pub use probe::{OffloadState, UdpProbe, probe};
pub use shared_port::{EspOfThird, FirstSocket, MAX_DIVIDED_SPIS, divide_esp};
pub use sink::UdpSink;
pub use source::{IkeHandler, UdpSource};
pub use stats::UdpStats;
