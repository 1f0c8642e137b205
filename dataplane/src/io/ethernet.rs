//! An Ethernet device as the plaintext side: packets of hosts behind it are forwarded without a TUN device.
//!
//! ```text
//!   hosts ──► device ──┬─► packet ring ──► EthernetSource ──► outbound      only what a policy protects
//!                      └─► kernel: the same packets; it drops those that the ring takes and handles the others
//!   hosts ◄── device ◄─┬─ AF_XDP or packet socket ◄── EthernetSink ◄── inbound      directly to the neighbour
//!                      └─ raw socket bound to the device: neighbour unknown, and at intervals to refresh it
//! ```
//!
//! A TUN device costs a route look-up, all of netfilter and a system call for each packet outside a train. Here single
//! packets cost neither. Receiving by AF_XDP would need a program in the kernel and gain nothing (see `io/xdp.rs`), so
//! a packet ring is used.
//!
//! **Which packets.** The ring is a copy: the kernel sees each packet too. Both apply the same policies: the source
//! takes what a policy protects or discards, and the gateway makes the kernel drop exactly that, before its stack
//! handles it. If the two ever differ, the drop rules in the forward path still keep protected traffic from leaving in
//! clear. Left to the kernel: packets without a policy or with a bypass policy, packets to addresses of this host,
//! broadcast and multicast, ARP, VLANs, link-local addresses, and packets that cannot be parsed.
//!
//! **A router's duties.** Source and sink decrement the hop limit (RFC 1812 5.3.1); when it reaches zero, the sender
//! gets "time exceeded" from the device's own address. IPv4's header checksum is verified (RFC 1812 5.2.2). Packets too
//! big for the tunnel are handled by [`crate::outbound`]; packets from the tunnel that are too big for the device are
//! fragmented where that is allowed, otherwise their sender gets "packet too big". Such ICMP errors enter the tunnel as
//! if they had arrived on the device: a queue of `IcmpReports` leads from the sink to the source. They are limited to
//! [`MAX_ICMP_ERRORS_PER_SECOND`].
//!
//! **Checksums and trains.** A packet from a host in another namespace, or coalesced by the device (GRO), has an
//! unfinished checksum and may be a train: both are in the ring's virtio header, and the engine handles them as it does
//! for a TUN device. A train is larger than a frame of the ring: it waits whole in the socket's receive queue. In the
//! other direction trains leave through a packet socket with virtio headers, and the device segments them; where that
//! fails they are segmented here, after one warning.
//!
//! **Not supported**: this host's own traffic (it neither enters nor leaves the tunnel here), options of IPv4 headers
//! (passed on unchanged), redirects, and leaving by any other device: such packets are dropped, since they would leave
//! in clear.

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
