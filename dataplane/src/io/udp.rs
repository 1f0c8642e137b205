//! ESP in UDP (RFC 3948): one socket per port and family, trains both ways.
//!
//! ```text
//!   Parcel: packet packet packet … ──► sendmmsg, UDP_SEGMENT ──►  one datagram each on the wire
//!   Arrival: the same run again    ◄── recvmmsg, UDP_GRO     ◄──  one datagram each on the wire
//! ```
//!
//! Both are tried with real packets at start ([`choose`]); what fails is done without, and said aloud.
//!
//! The socket is bound to the wildcard address and sends from the source that each parcel names, so gateways with many
//! addresses need no more sockets. The kernel's `UDP_ENCAP` is not used: it would hand the packets to a kernel ESP.
//!
//! RFC 3948 2.1 says that the UDP checksum over IPv4 should be zero. Such datagrams can neither be segmented by the
//! kernel nor coalesced by the receiver's (`udp_send_skb` and `udp_gro_receive_segment` refuse them), so we send a
//! checksum, which the same section obliges every receiver to take, unless [`UdpOptions::zero_checksum`] asks otherwise.

mod sink;
mod source;
#[cfg(test)]
mod tests;
mod trial;

pub use sink::UdpSink;
pub use source::{IkeHandler, UdpSource};
pub use trial::{Standing, Trial, choose};

use super::socket::Socket;
use super::{Family, Refusal, SocketOptions};
use rustix::net::SocketType;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How a UDP socket for ESP is to behave.
#[derive(Clone)]
pub struct UdpOptions {
    /// The local port: 4500 (RFC 3948).
    pub port: u16,
    /// Whether datagrams over IPv4 carry the checksum 0. It costs the trains of both ends.
    pub zero_checksum: bool,
    /// Which trains are used: those that [`choose`] has found to work.
    pub trains: Trains,
    /// What every socket needs to know.
    pub socket: SocketOptions,
}

impl UdpOptions {
    /// Port 4500, checksums, trains.
    pub fn new(socket: SocketOptions) -> Self {
        Self {
            port: 4500,
            zero_checksum: false,
            trains: Trains::ALL,
            socket,
        }
    }
}

/// Trains of datagrams, either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trains {
    /// The kernel cuts what we send (`UDP_SEGMENT`).
    pub segment: bool,
    /// The kernel joins what arrives (`UDP_GRO`).
    pub coalesce: bool,
}

impl Trains {
    /// Both ways.
    pub const ALL: Self = Self {
        segment: true,
        coalesce: true,
    };
    /// Packet by packet.
    pub const NONE: Self = Self {
        segment: false,
        coalesce: false,
    };
}

const NO_SEGMENTATION: &str =
    "this kernel has no UDP segmentation: ESP in UDP goes packet by packet, slowly";
const NO_COALESCING: &str = "this kernel has no UDP GRO: ESP in UDP comes packet by packet, slowly";

/// What a UDP socket is doing, for `status`; shared by its source and its sink.
#[derive(Debug, Default)]
pub struct UdpFacts {
    segments: AtomicBool,
    coalesces: AtomicBool,
    keepalives: AtomicU64,
    ike: AtomicU64,
}

impl UdpFacts {
    /// Whether the kernel segments our trains.
    pub fn segments(&self) -> bool {
        self.segments.load(Ordering::Relaxed)
    }

    /// Whether the kernel coalesces what arrives.
    pub fn coalesces(&self) -> bool {
        self.coalesces.load(Ordering::Relaxed)
    }

    /// Keepalives that came (RFC 3948 2.3).
    pub fn keepalives(&self) -> u64 {
        self.keepalives.load(Ordering::Relaxed)
    }

    /// IKE messages that came (RFC 3948 2.2).
    pub fn ike_messages(&self) -> u64 {
        self.ike.load(Ordering::Relaxed)
    }
}

/// Opens the socket of one family; both families may use the same port.
pub fn open(family: Family, options: &UdpOptions) -> Result<(UdpSource, UdpSink), Refusal> {
    let socket = Socket::open(family, SocketType::DGRAM, None, &options.socket)?;
    // A socket that another process has opened for us is bound already.
    if bound_port(&socket)? != options.port || options.port == 0 {
        bind(&socket, options.port)?;
    }
    let facts = Arc::new(UdpFacts::default());
    set_up(&socket, options, &facts)?;
    let socket = Arc::new(socket);
    let port = bound_port(&socket)?;
    let sink = UdpSink::new(socket.clone(), port, facts.clone());
    Ok((UdpSource::new(socket, port, facts), sink))
}

fn bind(socket: &Socket, port: u16) -> Result<(), Refusal> {
    let any: IpAddr = match socket.family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    if socket.family == Family::V6 {
        // The other family has a socket of its own on the same port.
        socket
            .set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
            .map_err(Refusal::during("set socket options"))?;
    }
    rustix::net::bind(socket, &SocketAddr::new(any, port)).map_err(|error| match error {
        rustix::io::Errno::ADDRINUSE => Refusal::PortTaken { port },
        other => Refusal::from(format!("bind UDP port {port}"), other.into()),
    })
}

fn bound_port(socket: &Socket) -> Result<u16, Refusal> {
    let address = rustix::net::getsockname(socket).map_err(Refusal::during("read the UDP port"))?;
    SocketAddr::try_from(address)
        .map(|address| address.port())
        .map_err(Refusal::during("read the UDP port"))
}

fn set_up(socket: &Socket, options: &UdpOptions, facts: &UdpFacts) -> Result<(), Refusal> {
    let zero = options.zero_checksum && socket.family == Family::V4;
    if zero {
        socket
            .set(libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
            .map_err(Refusal::during("send without UDP checksum"))?;
    }
    if socket.family == Family::V6 {
        // RFC 6935 5: a peer may send the checksum 0 over IPv6 as well. Old kernels without the option drop it.
        let _ = socket.set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
    }
    let wish = options.trains;
    // Setting the option to 0 changes nothing; that it is known tells that the kernel can segment.
    let segments = wish.segment && !zero && socket.set(libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
    let coalesces = wish.coalesce && socket.set(libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    facts.segments.store(segments, Ordering::Relaxed);
    facts.coalesces.store(coalesces, Ordering::Relaxed);
    if wish.segment && !zero && !segments {
        (options.socket.warn)(NO_SEGMENTATION);
    }
    if wish.coalesce && !coalesces {
        (options.socket.warn)(NO_COALESCING);
    }
    Ok(())
}
