//! What is asked of a UDP socket for ESP.

use crate::io::SocketOptions;

/// How a UDP socket for ESP is to behave.
#[derive(Clone)]
pub struct UdpOptions {
    /// The local port: 4500 (RFC 3948).
    pub port: u16,
    /// Whether datagrams over IPv4 carry the checksum 0. It costs the trains of both ends.
    pub zero_checksum: bool,
    /// Which trains are used: those that [`probe()`] has found to work.
    pub offloads: UdpOffloads,
    /// What every socket needs to know.
    pub socket: SocketOptions,
}

impl UdpOptions {
    /// Port 4500, checksums, trains.
    pub fn new(socket: SocketOptions) -> Self {
        Self {
            port: 4500,
            zero_checksum: false,
            offloads: UdpOffloads::ALL,
            socket,
        }
    }
}

/// Offloads for datagrams, either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpOffloads {
    /// The kernel cuts what we send (`UDP_SEGMENT`).
    pub segment: bool,
    /// The kernel joins what arrives (`UDP_GRO`).
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
