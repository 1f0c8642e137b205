//! The sockets of key exchange: UDP port 500, and on port 4500 the datagrams that begin with the non-ESP marker.
//!
//! ```text
//!   port 500   ─────────────────────────────► IkeSocket
//!   port 4500  ── 00 00 00 00 in front? ─ yes ► IkeSocket     one of the port's group
//!                 (BPF, in the kernel)  ─ no ─► UdpSource      the other one
//! ```
//!
//! Each socket has a queue of its own, so a flood of one kind takes no room from the other. Both belong to one
//! `SO_REUSEPORT` group, which sockets of the same user alone may join.
//!
//! The kernel's GRO looks for the socket before there is a program's verdict, and coalesces only for a socket that asks
//! for it. So the IKE socket asks for it too, and cuts what it gets into datagrams again. A coalesced receive goes to
//! the socket that its first datagram is for: what else is in it is counted by either side.

use super::open::{bind, bound_port, share_port};
use super::shared_port::{FirstSocket, SHARED_PORT, steer};
use crate::io::ancillary::ControlMessage;
use crate::io::messages::{MAX_MESSAGES, Received, SendBatch};
use crate::io::receiving::SocketReceiver;
use crate::io::socket::Socket;
use crate::io::{Family, MAX_ITEM_BYTES, OpenError, PmtuCache, ReceiveBuffer, SocketOptions, Wait};
use rustix::net::SocketType;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// RFC 3948 2.2: in front of IKE messages on port 4500, where ESP has its SPI.
const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// Opens the socket of one family at port 500 or 4500. At port 4500 `first` tells whether the socket with
/// [`UdpOptions::beside_ike`](super::UdpOptions::beside_ike) is there already. `coalesces`: whether that one uses GRO.
pub fn open_ike(
    family: Family,
    port: u16,
    coalesces: bool,
    first: FirstSocket,
    options: &SocketOptions,
) -> Result<OwnedFd, OpenError> {
    let socket = Socket::open(family, SocketType::DGRAM, None, options)?;
    // What the path does not carry whole is fragmented by RFC 7383 where the peer knows it, else by IP.
    socket
        .set_dont_fragment(false)
        .map_err(OpenError::during("set socket options"))?;
    if port == SHARED_PORT {
        share_port(&socket)?;
    }
    bind(&socket, port)?;
    if port == SHARED_PORT {
        // The first socket brings the program, so that no packet goes to the wrong one in between.
        if first == FirstSocket::Ike {
            steer(&socket, first)?;
        }
        if coalesces {
            // Without GRO in the kernel there is nothing to keep.
            let _ = socket.set(libc::SOL_UDP, libc::UDP_GRO, 1);
        }
    }
    Ok(socket.into_file())
}

/// Room for the datagrams of one call; sockets take turns with it.
pub struct IkeBuffer(ReceiveBuffer<Datagrams>);

/// Where datagrams come from and to, and the length of each but the last.
#[derive(Clone, Copy)]
struct Datagrams {
    from: SocketAddr,
    to: SocketAddr,
    stride: usize,
}

/// The most datagrams of one [`IkeSocket::receive`], if the kernel has coalesced none.
const MAX_RECEIVED_DATAGRAMS: usize = 64;

impl Default for IkeBuffer {
    fn default() -> Self {
        let room = ReceiveBuffer::with_capacity(2 * MAX_ITEM_BYTES, MAX_RECEIVED_DATAGRAMS);
        Self(room)
    }
}

/// Sends and receives IKE messages.
pub struct IkeSocket {
    receiver: SocketReceiver,
    batch: SendBatch,
    family: Family,
    port: u16,
    not_ike: u64,
    unsent: u64,
}

impl IkeSocket {
    /// Over what [`open_ike`] has opened, in whichever process.
    pub fn over(file: OwnedFd) -> Result<Self, OpenError> {
        let bound =
            rustix::net::getsockname(&file).map_err(OpenError::during("read the UDP port"))?;
        let bound = SocketAddr::try_from(bound).map_err(OpenError::during("read the UDP port"))?;
        let family = Family::of(bound.ip());
        let options = SocketOptions::new(PmtuCache::default(), Arc::new(|_| ()));
        let socket = Socket::from_file(file, family, options);
        let port = bound_port(&socket)?;
        Ok(Self {
            receiver: SocketReceiver::new(Arc::new(socket)),
            batch: SendBatch::new(),
            family,
            port,
            not_ike: 0,
            unsent: 0,
        })
    }

    /// The local port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// IPv4 or IPv6.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Datagrams on port 4500 without the marker.
    pub fn not_ike(&self) -> u64 {
        self.not_ike
    }

    /// Messages that the system refused to send.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Receives what is there, as far as the room goes, and gives each message to `take`: from where, to which local
    /// address, and its bytes without the marker. Never waits.
    pub fn receive(
        &mut self,
        room: &mut IkeBuffer,
        mut take: impl FnMut(SocketAddr, SocketAddr, &mut [u8]),
    ) -> io::Result<()> {
        let (buffer, port) = (&mut room.0, self.port);
        buffer.clear();
        self.receiver
            .fill(buffer, Wait::Poll, |buffer, range, received| {
                if let Some(datagrams) = describe(&received, port, range.len()) {
                    buffer.items.push((range, datagrams));
                }
            })?;
        let ReceiveBuffer { bytes, items, .. } = buffer;
        for (range, datagrams) in items {
            let received = bytes.get_mut(range.clone()).unwrap_or_default();
            for datagram in received.chunks_mut(datagrams.stride.max(1)) {
                match message(datagram, port) {
                    Some(message) => take(datagrams.from, datagrams.to, message),
                    None => self.not_ike += 1,
                }
            }
        }
        Ok(())
    }

    /// Sends messages. From an unspecified address: the kernel chooses. What it refuses is counted: IKE sends again.
    pub fn send(&mut self, from: IpAddr, to: SocketAddr, messages: &[Vec<u8>]) {
        for messages in messages.chunks(MAX_MESSAGES) {
            self.send_some(from, to, messages);
        }
    }

    fn send_some(&mut self, from: IpAddr, to: SocketAddr, messages: &[Vec<u8>]) {
        self.batch.clear();
        for (n, message) in messages.iter().enumerate() {
            let range: Range<usize> = 0..message.len();
            let control = self.batch.add((n, range, 1, false), to);
            if !from.is_unspecified() {
                control.put_source(from);
            }
        }
        let marker: &[u8] = if self.port == SHARED_PORT {
            &NON_ESP_MARKER
        } else {
            &[]
        };
        let socket = &self.receiver.socket;
        let (mut next, mut is_second_try) = (0, false);
        while next < messages.len() {
            let bytes_of = |n: usize, _: &_| [marker, messages.get(n).map_or(&[][..], |m| m)];
            match self.batch.send(socket.as_fd(), next, bytes_of) {
                Ok(sent) => (next, is_second_try) = (next + sent.max(1), false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The first error may be that of a datagram sent earlier.
                Err(_) if !is_second_try => {
                    socket.drain_errors();
                    is_second_try = true;
                }
                Err(_) => {
                    self.unsent += 1;
                    (next, is_second_try) = (next + 1, false);
                }
            }
        }
    }
}

impl AsFd for IkeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.socket.as_fd()
    }
}

fn describe(received: &Received<'_>, port: u16, len: usize) -> Option<Datagrams> {
    let (peer, peer_port) = received.peer.read()?;
    let mut local: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut stride = len;
    for note in received.control.parsed() {
        match note {
            ControlMessage::Destination(address) => local = address,
            ControlMessage::Stride(bytes) if bytes > 0 => stride = bytes.min(len),
            _ => {}
        }
    }
    Some(Datagrams {
        from: SocketAddr::new(peer, peer_port),
        to: SocketAddr::new(local, port),
        stride,
    })
}

/// The IKE message in a datagram, if it is one.
fn message(datagram: &mut [u8], port: u16) -> Option<&mut [u8]> {
    if port != SHARED_PORT {
        return Some(datagram);
    }
    let (marker, message) = datagram.split_first_chunk_mut::<4>()?;
    (*marker == NON_ESP_MARKER).then_some(message)
}

#[cfg(test)]
mod tests;
