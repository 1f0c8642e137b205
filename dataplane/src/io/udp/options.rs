//! The options of a UDP socket for ESP.

use super::shared_port::FirstSocket;
use crate::io::SocketOptions;
use crate::io::socket_option::set_option;
use std::io;
use std::os::fd::BorrowedFd;

/// Options of a UDP socket for ESP.
#[derive(Clone)]
pub struct UdpOptions {
    /// The local port: 4500 (RFC 3948).
    pub port: u16,
    /// Whether datagrams over IPv4 have the checksum 0. It disables GSO and GRO on both ends.
    pub zero_checksum: bool,
    /// Which offloads are used: those that [`super::probe()`] has found to work.
    pub offloads: UdpOffloads,
    /// Set where an [`IkeSocket`](super::IkeSocket) has the port too, now or later, and receives the IKE messages
    /// there: which of the two is bound first.
    pub beside_ike: Option<FirstSocket>,
    /// Options of every socket.
    pub socket: SocketOptions,
}

impl UdpOptions {
    /// Port 4500, checksums, all offloads.
    pub fn new(socket: SocketOptions) -> Self {
        Self {
            port: 4500,
            zero_checksum: false,
            offloads: UdpOffloads::ALL,
            beside_ike: None,
            socket,
        }
    }
}

/// UDP GSO and GRO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpOffloads {
    /// The kernel segments what is sent (`UDP_SEGMENT`).
    pub segment: bool,
    /// The kernel coalesces what arrives (`UDP_GRO`).
    pub coalesce: bool,
}

impl UdpOffloads {
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

/// Lets the kernel coalesce what arrives at a UDP socket (`UDP_GRO`), or not. The latter succeeds on a kernel without
/// GRO too.
pub fn set_coalescing(socket: BorrowedFd<'_>, coalesces: bool) -> io::Result<()> {
    match set_option(socket, libc::SOL_UDP, libc::UDP_GRO, coalesces.into()) {
        Err(_) if !coalesces => Ok(()),
        outcome => outcome,
    }
}
