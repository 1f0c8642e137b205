//! An Ethernet device as the plaintext side: packets of hosts behind it are forwarded without a TUN device.
//!
//! ```text
//!   hosts ──► device ──┬─► packet ring ──► EthernetSource ──► outbound      what a policy protects, and only that
//!                      └─► kernel: the same packets, of which it drops what the ring takes, and keeps the rest
//!   hosts ◄── device ◄──┬─ AF_XDP or packet socket ◄── EthernetSink ◄── inbound      straight to the neighbour
//!                       └─ raw socket bound to the device: no neighbour yet, and once in a while so that it stays known
//! ```
//!
//! A TUN device costs a route look-up, all of netfilter and a system call for each packet that is no train. Here small
//! packets cost neither. Receiving by AF_XDP would need a program in the kernel and gain nothing (see `io/xdp.rs`): the
//! ring it is.
//!
//! **Who takes what.** The ring is a tap: the kernel sees each packet too. Both ask the same policies: the source takes what
//! one of them protects or discards; the gateway makes the kernel drop just that, before anything else looks at it. If the
//! two ever differ, the drop rules behind forwarding still keep protected traffic from leaving in clear. Left to the kernel:
//! what no policy names or one lets pass, packets to addresses of this host, broadcast and multicast, ARP, VLANs,
//! link-local addresses, and whatever cannot be read.
//!
//! **A router's duties.** Both ends take one off the hop limit (RFC 1812 5.3.1); where it was the last, the sender hears
//! "time exceeded" from the device's own address. IPv4's header checksum is verified (RFC 1812 5.2.2). What is too big for
//! the tunnel is answered as ever by [`crate::outbound`]; what came out of the tunnel too big for the device is cut where
//! that is allowed, else its sender is told. Such answers enter the tunnel as if they had come by the device: an `IcmpReports`
//! queue leads from the sink to the source. Reports are limited to [`MAX_ICMP_ERRORS_PER_SECOND`].
//!
//! **Checksums and trains.** A packet from a host in another namespace, or merged by the device (GRO), has its checksum
//! unfinished and may be a train: the ring's virtio header tells, and the engine does the rest as it does for a TUN device.
//! A train is larger than a frame of the ring: it waits whole in the socket's queue. Outwards trains go by a packet socket
//! with virtio headers, and the device has them cut; where that fails they are cut here, which is told once.
//!
//! **Not here**: this host's own traffic (it has no way into the tunnel, nor out of it), options of IPv4 headers (passed on
//! as they are), redirects, and a way out by any other device than this one: what would leave elsewhere is dropped, since
//! that would be in clear.

mod device;
mod egress;
mod forwarding;
mod frame;
mod gso;
mod icmp_reports;
mod neighbour_cache;
mod options;
mod shared;
mod sink;
pub(super) mod source;
mod stats;
#[cfg(test)]
mod tests;

pub use device::{Ethernet, EthernetHandle};
pub use forwarding::LocalAddresses;
pub use icmp_reports::MAX_ICMP_ERRORS_PER_SECOND;
pub use options::EthernetOptions;
pub use sink::EthernetSink;
pub use source::EthernetSource;
pub use stats::EthernetStats;
