//! Opening the socket of one family: its port, and the offloads that the kernel has.

use super::options::UdpOptions;
use super::shared_port::{FirstSocket, SHARED_PORT, steer};
use super::sink::UdpSink;
use super::source::UdpSource;
use super::stats::UdpStats;
use crate::io::socket::Socket;
use crate::io::{Family, OpenError, SocketOptions};
use rustix::net::SocketType;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) const NO_SEGMENTATION: &str =
    "this kernel has no UDP segmentation offload: ESP in UDP is sent packet by packet (slower)";
pub(super) const NO_COALESCING: &str =
    "this kernel has no UDP GRO: ESP in UDP is received packet by packet (slower)";

/// Opens the socket of one family; both families may use the same port.
pub fn open(family: Family, options: &UdpOptions) -> Result<(UdpSource, UdpSink), OpenError> {
    let socket = Socket::open(family, SocketType::DGRAM, None, &options.socket)?;
    // A socket inherited from another process is bound already.
    if bound_port(&socket)? != options.port || options.port == 0 {
        if options.beside_ike.is_some() {
            share_port(&socket)?;
        }
        bind(&socket, options.port)?;
        if options.beside_ike == Some(FirstSocket::Esp) {
            steer(&socket, FirstSocket::Esp)?;
        }
    }
    let stats = Arc::new(UdpStats::default());
    set_up(&socket, options, &stats)?;
    let socket = Arc::new(socket);
    let port = bound_port(&socket)?;
    let sink = UdpSink::new(socket.clone(), port, stats.clone());
    Ok((UdpSource::new(socket, port, stats), sink))
}

/// Opens the third socket of the port, bound after those of key exchange and of ESP. It gets nothing until
/// [`divide_esp`](super::divide_esp) says so.
pub fn open_third(family: Family, options: &SocketOptions) -> Result<OwnedFd, OpenError> {
    let socket = Socket::open(family, SocketType::DGRAM, None, options)?;
    share_port(&socket)?;
    bind(&socket, SHARED_PORT)?;
    Ok(socket.into_file())
}

/// Lets another socket of the same user have the port too; before either is bound.
pub(super) fn share_port(socket: &Socket) -> Result<(), OpenError> {
    socket
        .set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
        .map_err(OpenError::during("share the port with another socket"))
}

pub(super) fn bind(socket: &Socket, port: u16) -> Result<(), OpenError> {
    let any: IpAddr = match socket.family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    if socket.family == Family::V6 {
        // The other family has a socket of its own on the same port.
        socket
            .set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
            .map_err(OpenError::during("set socket options"))?;
    }
    rustix::net::bind(socket, &SocketAddr::new(any, port)).map_err(|error| match error {
        rustix::io::Errno::ADDRINUSE => OpenError::PortTaken { port },
        other => OpenError::from(format!("bind UDP port {port}"), other.into()),
    })
}

pub(super) fn bound_port(socket: &Socket) -> Result<u16, OpenError> {
    let address =
        rustix::net::getsockname(socket).map_err(OpenError::during("read the UDP port"))?;
    SocketAddr::try_from(address)
        .map(|address| address.port())
        .map_err(OpenError::during("read the UDP port"))
}

fn set_up(socket: &Socket, options: &UdpOptions, stats: &UdpStats) -> Result<(), OpenError> {
    let zero = options.zero_checksum && socket.family == Family::V4;
    if zero {
        socket
            .set(libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
            .map_err(OpenError::during("send without UDP checksum"))?;
    }
    if socket.family == Family::V6 {
        // RFC 6935 5: a peer may send the checksum 0 over IPv6 as well. Old kernels without the option drop it.
        let _ = socket.set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
    }
    let wish = options.offloads;
    // Setting the option to 0 changes nothing; that it succeeds shows that the kernel can segment.
    let segments = wish.segment && !zero && socket.set(libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
    let coalesces = wish.coalesce && socket.set(libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    stats.segments.store(segments, Ordering::Relaxed);
    stats.coalesces.store(coalesces, Ordering::Relaxed);
    if wish.segment && !zero && !segments {
        (options.socket.warn)(NO_SEGMENTATION);
    }
    if wish.coalesce && !coalesces {
        (options.socket.warn)(NO_COALESCING);
    }
    Ok(())
}
